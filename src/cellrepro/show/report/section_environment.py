"""The report on where runs were computed, and how long that took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cellrepro.compare.names import place_of
from cellrepro.show.report.page import Cell, Download, Table, table, table_file
from cellrepro.show.report.summary import OF_MACHINE, Chapter
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Repeat
from cellrepro.text import amount

PHASES = ("import", "data", "model", "train", "segment")
"""Of a run, in the order in which it passes them."""
_FIELDS: dict[str, Any] = {
    **{"machine": {"label"}, "numeric_class": {"name"}},
    **dict.fromkeys(("device", "threads", "cpu_capability", "host", "cuda"), True),
    **dict.fromkeys(("switches", "variables", "versions"), True),
}
_PLAIN = {"True": "on", "False": "off", "None": "not set", "[]": "none"}


# -- time ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """Some repeats together: seconds of every phase, the mean over them."""

    name: str
    repeats: Sequence[Repeat]

    @cached_property
    def seconds(self) -> dict[str, float]:
        """By phase."""
        each = [repeat.manifest.seconds for repeat in self.repeats]
        found = dict.fromkeys(phase for one in each for phase in one)
        phases = sorted(found, key=lambda p: PHASES.index(p) if p in PHASES else len(PHASES))
        return {phase: sum(one.get(phase, 0.0) for one in each) / len(each) for phase in phases}

    @property
    def total(self) -> float:
        """Of all phases."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class CostView:
    """What the runs of one chapter took, and what strict takes beside fast for the same spec."""

    rows: list[Timed]
    phase: str  # that strict and fast are compared in
    ratios: list[float]
    median: float
    strict: Table | None
    data: Download | None


def cost_view(chapter: Chapter) -> CostView:
    """Of one chapter."""
    rows = [Timed(chapter.names.short(one.place), one.repeats) for one in chapter.every]
    file = [
        {"spec": row.name, "run": row.repeats[0].name, "runs": len(row.repeats), **row.seconds}
        for row in rows
    ]
    phase = "train" if chapter.task == "train" else "segment"
    pairs = _strict_beside_fast(chapter, phase)
    kinds = {"strict": "{:.1f}", "fast": "{:.1f}", "times as long": "{:.2f}"}
    name = f"strict-beside-fast-{chapter.data}"
    ratios = [pair["times as long"] for pair in pairs]
    return CostView(
        rows=rows,
        phase=phase,
        ratios=ratios,
        median=statistics.median(ratios or [0.0]),
        strict=table(pairs, kinds, file=name) if pairs else None,
        data=table_file(f"seconds-{chapter.data}", file),
    )


def _strict_beside_fast(chapter: Chapter, phase: str) -> list[dict[str, Any]]:
    """Specs that differ in nothing but the mode, on one machine."""
    seconds = {one.place: Timed("", one.repeats).seconds.get(phase) for one in chapter.every}
    axis, rows = chapter.spread.axis("mode"), []
    for pair in axis.pairs if axis else []:
        modes = {repeat.spec.held: seconds[place_of(repeat)] for repeat in (pair.a, pair.b)}
        strict, fast = modes.get("strict"), modes.get("fast")
        if strict and fast:
            ratio, name = strict / fast, pair.context or "the only setting"
            rows.append({"spec": name, "strict": strict, "fast": fast, "times as long": ratio})
    return rows


# -- environment ---------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentView:
    """What differs between the environments of the repeats, side by side, and what does not."""

    n: int
    n_runs: int
    differing: Table
    equal: Table
    data: Download | None


def environment_view(chapters: Sequence[Chapter]) -> EnvironmentView:
    """Over all chapters."""
    every = [(c, repeat) for c in chapters for one in c.every for repeat in one.repeats]
    files = [{"run": repeat.name, **_fields(repeat.manifest)} for _, repeat in every]
    names = [name for name in dict.fromkeys(n for fields in files for n in fields) if name != "run"]
    values = {name: [fields.get(name, "–") for fields in files] for name in names}
    differing = [name for name in names if len(set(values[name])) > 1]
    groups: dict[tuple[str, ...], list[Repeat]] = defaultdict(list)
    settings: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for i, (chapter, repeat) in enumerate(every):
        group = tuple(values[name][i] for name in differing)
        groups[group].append(repeat)
        settings[group].append(_setting(chapter, repeat))
    rows: list[dict[str, Any]] = [{"field": name} for name in differing]
    for number, (group, repeats) in enumerate(groups.items(), start=1):
        said = "; ".join(dict.fromkeys(settings[group]))
        title = f"{number}: {said} ({amount(len(repeats), 'run')})"
        for row, value, first in zip(rows, group, next(iter(groups)), strict=True):
            row[title] = Cell(value, marked=value != first)
    equal = [{"field": n, "value": values[n][0]} for n in names if n not in differing]
    return EnvironmentView(
        n=len(groups),
        n_runs=len(every),
        differing=table(rows, dict.fromkeys(rows[0], "value") if rows else {}),
        equal=table(equal, {"value": "value"}),
        data=table_file("environment", files),
    )


def _setting(chapter: Chapter, repeat: Repeat) -> str:
    """Machine, where there are several, profile and mode."""
    place, names = place_of(repeat), chapter.names
    machine = [names.facts[place][name] for name in OF_MACHINE if name in names.varying]
    return ", ".join(filter(None, [*machine, *names.column(place)]))


def _fields(manifest: Manifest) -> dict[str, str]:
    """The environment as texts by name."""
    from pandas import json_normalize

    fields = manifest.model_dump(include=_FIELDS)
    fields["library"] = {
        f"{one.get('internal_api') or one.get('user_api')} {one.get('version') or ''}".strip(): {
            name: one[name] for name in ("architecture", "num_threads") if one.get(name)
        }
        for one in manifest.numeric_libraries
    }
    flat = json_normalize(fields, sep=": ").iloc[0].to_dict()
    if isinstance(flat.get("host: memory"), int):
        flat["host: memory"] = f"{flat['host: memory'] / 2**30:.1f} GiB"
    return {name: _PLAIN.get(str(value), str(value)) for name, value in flat.items()}
