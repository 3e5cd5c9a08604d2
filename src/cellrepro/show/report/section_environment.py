"""The sections on where runs were computed, and on how long that took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.comparison.run_names import place_of
from cellrepro.show.figures.training import rates_by_size
from cellrepro.show.inference_rates import inference_rates
from cellrepro.show.pages.parts import Cell, Figure, Table, TableFile, figure, table, table_file
from cellrepro.show.report.summary import OF_MACHINE, Chapter
from cellrepro.show.tables.runs import rate_table
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.manifest import Manifest
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.words import amount

_PHASES = ("import", "data", "model", "train", "segment", "score")
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(ENVIRONMENT_FIELDS, True),
    "cuda": True,
    "machine": {"label"},
    "numeric_class": {"name"},
}
_PLAIN = {"True": "on", "False": "off", "None": "not set", "[]": "none"}


# -- time ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostSection:
    """How long the runs of one chapter took."""

    n_runs: int
    phases: Sequence[str]
    longest: float
    """Seconds of the slowest spec, all phases together."""
    rows: Sequence[Sequence[object]]
    """For each spec its name, then the mean seconds of each phase."""
    phase: str
    """The phase of which strict and fast are compared."""
    ratios: Sequence[float]
    """Strict over fast, for specs that differ in nothing but the mode."""
    median: float
    strict: Table
    data: TableFile | None


def cost_section(chapter: Chapter) -> CostSection:
    """Make the section on time, with strict beside fast for the same spec."""
    from pandas import DataFrame

    repeats = [repeat for judged in chapter.judged for repeat in judged.repeats]
    each = DataFrame([repeat.manifest.seconds for repeat in repeats]).fillna(0.0)
    each = each[[phase for phase in _PHASES if phase in each]]
    seconds = each.groupby([place_of(repeat) for repeat in repeats], sort=False).mean()
    longest = float(seconds.sum(axis=1).max())
    phase = "train" if chapter.task == "train" else "segment"
    pairs = _strict_beside_fast(chapter, seconds.get(phase, {}))
    kinds = {"strict": "{:.1f}", "fast": "{:.1f}", "times as long": "{:.2f}"}
    ratios = [pair.ratio for pair in pairs]
    rows = [
        {
            "spec": pair.spec,
            "strict": pair.strict,
            "fast": pair.fast,
            "times as long": pair.ratio,
        }
        for pair in pairs
    ]
    seconds.insert(0, "spec", [chapter.names.of_spec(place) for place in seconds.index])
    return CostSection(
        n_runs=len(repeats),
        phases=list(each),
        longest=longest,
        rows=seconds.values.tolist(),
        phase=phase,
        ratios=ratios,
        median=statistics.median(ratios or [0.0]),
        strict=table(rows, kinds, file=f"strict-beside-fast-{chapter.data}"),
        data=table_file(f"seconds-{chapter.data}", seconds.to_dict("records")),
    )


@dataclass(frozen=True)
class _ModePair:
    """The seconds of one phase of a spec, in mode strict and in mode fast."""

    spec: str
    strict: float
    fast: float

    @property
    def ratio(self) -> float:
        return self.strict / self.fast


def _strict_beside_fast(chapter: Chapter, seconds: Mapping[str, float]) -> list[_ModePair]:
    """Pair specs that differ in nothing but the mode, on one machine."""
    axis = chapter.spread.axis("mode")
    mode_pairs = []
    for pair in axis.pairs if axis else []:
        sides = (pair.a, pair.b)
        by_mode = {side.spec.mode_in_words: seconds.get(place_of(side)) for side in sides}
        strict = by_mode.get("strict")
        fast = by_mode.get("fast")
        if strict and fast:
            mode_pairs.append(_ModePair(pair.context or "the only setting", strict, fast))
    return mode_pairs


@dataclass(frozen=True)
class RatesSection:
    """How fast runs segmented."""

    table: Table
    figure: Figure


def rates_section(chapters: Sequence[Chapter]) -> RatesSection | None:
    """Make the section on the speed of runs that only segmented; None without such runs."""
    runs = [Run(judged.spec, judged.repeats) for chapter in chapters for judged in chapter.judged]
    rates = inference_rates(runs)
    if not rates:
        return None
    rows = rate_table(rates).reset_index().to_dict("records")
    shown = table(rows, dict.fromkeys(rows[0], "value"), file="rates")
    return RatesSection(table=shown, figure=figure(rates_by_size(rates)))


# -- environment ---------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentSection:
    """The environments of all repeats."""

    n: int
    """How many different ones there are."""
    n_runs: int
    differing: Table
    equal: Table
    data: TableFile | None


def environment_section(chapters: Sequence[Chapter]) -> EnvironmentSection:
    """Make the section on environments: the fields that differ, and those that do not."""
    from pandas import DataFrame

    repeats = [
        (chapter, repeat)
        for chapter in chapters
        for judged in chapter.judged
        for repeat in judged.repeats
    ]
    texts: dict[str, dict[str, str]] = {}  # most runs share their environment with others
    fields = DataFrame([_fields(repeat.manifest, texts) for _, repeat in repeats]).fillna("–")
    differing = [name for name in fields if fields[name].nunique() > 1]
    environments: dict[tuple[str, ...], list[str]] = defaultdict(list)
    rows_of_fields = fields[differing].itertuples(index=False, name=None)
    for (chapter, repeat), values in zip(repeats, rows_of_fields, strict=True):
        environments[values].append(_setting(chapter, repeat))
    rows: list[dict[str, object]] = [{"field": name} for name in differing]
    first_environment = next(iter(environments), ())
    for number, (values, settings) in enumerate(environments.items(), start=1):
        distinct_settings = "; ".join(dict.fromkeys(settings))
        title = f"{number}: {distinct_settings} ({amount(len(settings), 'run')})"
        for row, value, first in zip(rows, values, first_environment, strict=True):
            row[title] = Cell(value, marked=value != first)
    equal = [{"field": name, "value": fields[name][0]} for name in fields if name not in differing]
    fields.insert(0, "run", [repeat.name for _, repeat in repeats])
    return EnvironmentSection(
        n=len(environments),
        n_runs=len(repeats),
        differing=table(rows, dict.fromkeys(rows[0], "value") if rows else {}),
        equal=table(equal, {"value": "value"}),
        data=table_file("environment", fields.to_dict("records")),
    )


def _setting(chapter: Chapter, repeat: Repeat) -> str:
    """Name profile and mode, and the machine where there are several."""
    place = place_of(repeat)
    names = chapter.names
    machine = [names.values[place][name] for name in OF_MACHINE if name in names.varying]
    return ", ".join(filter(None, [*machine, *names.column(place)]))


def _fields(manifest: Manifest, texts: dict[str, dict[str, str]]) -> dict[str, str]:
    """Get the fields of an environment as texts; equal environments are formatted once."""
    content = manifest.model_dump_json(include=_FIELDS)
    if content not in texts:
        texts[content] = _texts(manifest)
    return texts[content]


def _texts(manifest: Manifest) -> dict[str, str]:
    from pandas import json_normalize

    fields = manifest.model_dump(include=_FIELDS)
    libraries = fields.pop("numeric_libraries")
    fields["library"] = {_library_name(library): _library_facts(library) for library in libraries}
    flat = json_normalize(fields, sep=": ").iloc[0].to_dict()
    if isinstance(flat.get("host: memory"), int):
        flat["host: memory"] = f"{flat['host: memory'] / 2**30:.1f} GiB"
    return {name: _PLAIN.get(str(value), str(value)) for name, value in flat.items()}


def _library_name(library: Mapping[str, object]) -> str:
    name = library.get("internal_api") or library.get("user_api")
    return f"{name} {library.get('version') or ''}".strip()


def _library_facts(library: Mapping[str, object]) -> dict[str, object]:
    return {name: library[name] for name in ("architecture", "num_threads") if library.get(name)}
