"""The report on what runs had to do with: warnings and what came of them, time, environment."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.compare.names import place_of, sort_key
from cellrepro.compare.verdicts import Judgement, Verdict, combine
from cellrepro.show.report.page import Cell, Column, Download, Table, table, table_file, which
from cellrepro.show.report.summary import NO_VERDICT, OF_MACHINE, Chapter, where
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Repeat, Run
from cellrepro.text import amount, ppm_text
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.torch_warnings import about_determinism

PHASES = {
    "import": "import",
    "data": "read data",
    "model": "load model",
    "train": "train",
    "segment": "segment",
}
"""The phases of a run in the order in which it passes them, and what the page calls them."""

_MOST_PLACES = 3
_MOST_BARS = 12  # specs with a bar each; of more, a bar for each profile and mode

Of = tuple[Chapter, Run, Repeat]


def _repeats(chapters: Sequence[Chapter]) -> Iterator[Of]:
    for chapter in chapters:
        for run, _ in chapter.every:
            for repeat in run.repeats:
                yield chapter, run, repeat


# -- warnings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """How the repeats of the specs came out that were set alike, in one mode."""

    mode: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Alert:
    """One operation that cannot repeat, wherever it was seen; not known if it was left loose."""

    name: str
    known: NondeterministicOperation | None
    where: str
    phases: str
    count: int
    runs: str
    effects: list[Effect]


@dataclass(frozen=True)
class WarningsView:
    """What PyTorch warned of: operations that cannot repeat, with what they did; and the rest."""

    n_runs: int
    n_strict: int
    n_warned: int
    alerts: list[Alert]
    others: Table | None
    data: Download | None


def warnings_view(chapters: Sequence[Chapter]) -> WarningsView:
    """Over all chapters."""
    every = list(_repeats(chapters))
    seen: dict[str, list[tuple[Of, NondeterministicOperation | None]]] = defaultdict(list)
    for one in every:
        _, run, repeat = one
        for warning in about_determinism(repeat.manifest.warnings):
            seen[warning.op].append((one, warning))
        if run.spec.loose is not None:
            seen[run.spec.loose].append((one, None))
    alerts = [_alert(name, found, len(every)) for name, found in seen.items()]
    switches = [repeat.manifest.switches for _, _, repeat in every]
    watched = [found for found in switches if found.get("deterministic_algorithms")]
    n_warned = sum(bool(found.get("deterministic_warn_only")) for found in watched)
    columns = [
        Column("operation", lambda row: row[0].name),
        Column("times", lambda row: row[0].count),
        Column("phases", lambda row: row[0].phases),
        Column("runs", lambda row: row[0].runs),
        Column("remedy", lambda row: row[0].known and row[0].known.remedy),
        Column("substitute", lambda row: row[0].known and row[0].known.substitute),
        Column("mode", lambda row: row[1].mode),
        Column("verdict", lambda row: row[1].verdict),
        Column("effect", lambda row: row[1].text),
    ]
    rows = [(alert, effect) for alert in alerts for effect in alert.effects]
    return WarningsView(
        n_runs=len(every),
        n_strict=len(watched) - n_warned,
        n_warned=n_warned,
        alerts=alerts,
        others=_other_warnings(every),
        data=table(rows, columns, file="determinism-warnings").data,
    )


def _alert(
    name: str, seen: Sequence[tuple[Of, NondeterministicOperation | None]], n_runs: int
) -> Alert:
    places: Counter[str] = Counter()
    for _, warning in seen:
        if warning is not None:
            source = _short_path(warning.source) if warning.source else ""
            place = ", ".join(filter(None, [warning.module, source]))
            places[place or "not observed"] += warning.calls
    shown = [place for place, _ in places.most_common()]
    more = f"; and {len(shown) - _MOST_PLACES} more" if len(shown) > _MOST_PLACES else ""
    warnings = [warning for _, warning in seen if warning is not None]
    labels = {repeat.name: chapter.names.label(repeat) for (chapter, _, repeat), _ in seen}
    return Alert(
        name=name,
        known=warnings[0] if warnings else None,
        where="; ".join(shown[:_MOST_PLACES]) + more,
        phases=", ".join(dict.fromkeys(one.phase or "not observed" for one in warnings)),
        count=places.total(),
        runs=which(list(labels.values()), n_runs, "run"),
        effects=_effects([of for of, _ in seen]),
    )


def _effects(seen: Sequence[Of]) -> list[Effect]:
    """By mode: how the repeats of the specs came out that were set as these, the mode excepted."""
    settings = {
        (chapter.title, chapter.names.without(where(run), "mode")): chapter
        for chapter, run, _ in seen
    }
    by_mode: dict[str, list[tuple[Judgement, float]]] = defaultdict(list)
    for (_, setting), chapter in settings.items():
        for run, judgement in chapter.every:
            if chapter.names.without(where(run), "mode") == setting:
                by_mode[run.spec.held].append((judgement, _largest_ppm(chapter, run)))
    ordered = sorted(by_mode.items(), key=lambda item: sort_key("mode", item[0]))
    return [_effect(mode, found) for mode, found in ordered]


def _effect(mode: str, found: Sequence[tuple[Judgement, float]]) -> Effect:
    repeated = [(one.overall, ppm) for one, ppm in found if one.overall is not None]
    told = [(verdict, ppm) for verdict, ppm in repeated if verdict != Verdict.VACUOUS]
    if not repeated:
        text = f"{amount(len(found), 'spec')}, not repeated: nothing is known"
    elif not told:
        text = f"{amount(len(repeated), 'spec')} repeated, but nothing was found or trained"
    if not told:
        return Effect(mode, NO_VERDICT, text)
    n_differ = sum(verdict == Verdict.DIFFERENT for verdict, _ in told)
    over = f"{len(told)} repeated {'spec' if len(told) == 1 else 'specs'}"
    largest = max(ppm for _, ppm in told)
    masks = f"up to {ppm_text(largest)} of the pixels" if largest else "the masks are the same"
    text = f"{n_differ} of {over} differ; {masks}"
    if not n_differ:
        text = f"no effect seen: 0 of {over} differ"
    return Effect(mode, str(combine(verdict for verdict, _ in told)), text)


def _largest_ppm(chapter: Chapter, run: Run) -> float:
    """Between two repeats of one run."""
    axis = chapter.spread.axis("repeats")
    pairs = axis.pairs if axis else []
    return max((pair.ppm for pair in pairs if place_of(pair.a) == where(run)), default=0.0)


def _other_warnings(every: Sequence[Of]) -> Table | None:
    """Each kind of warning by where it was raised, the most frequent first."""
    found: dict[tuple[str, str, str], list[tuple[int, str, str]]] = defaultdict(list)
    for chapter, _, repeat in every:
        for record in repeat.manifest.warnings:
            if not about_determinism([record]):
                place = f"{_short_path(record.file)}, line {record.line}"
                seen = (record.count, record.phase, chapter.names.label(repeat))
                found[record.category, record.message, place].append(seen)
    columns = [
        Column("category", lambda row: row[0][0]),
        Column("warning", lambda row: row[0][1], "long"),
        Column("where", lambda row: row[0][2], "code"),
        Column("times", lambda row: sum(n for n, _, _ in row[1]), "number"),
        Column("phase", lambda row: ", ".join(dict.fromkeys(phase for _, phase, _ in row[1]))),
        Column(
            "in which runs",
            lambda row: which(list(dict.fromkeys(r for *_, r in row[1])), len(every), "run"),
        ),
    ]
    rows = sorted(found.items(), key=lambda row: -sum(n for n, _, _ in row[1]))
    return table(rows, columns) if rows else None


def _short_path(file: str) -> str:
    """A library's file as its users name it, whatever the machine."""
    path = file.replace("\\", "/")
    inside = path.rpartition("site-packages/")[2]
    return inside if inside != path else "/".join(Path(path).parts[-2:])


# -- time ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """Some runs together: seconds of every phase, the mean over their repeats."""

    name: str
    runs: list[Run]

    @property
    def seconds(self) -> dict[str, float]:
        """By phase."""
        each = [repeat.manifest.seconds for run in self.runs for repeat in run.repeats]
        phases = dict.fromkeys(phase for one in each for phase in one)
        return {phase: sum(one.get(phase, 0.0) for one in each) / len(each) for phase in phases}

    @property
    def total(self) -> float:
        """Of all phases."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class CostView:
    """What the runs of one chapter took, and what strict takes beside fast for the same spec; the
    bars are parts of a row of `numbers`, with CSS class and width in per cent.
    """

    title: str
    phases: list[tuple[str, str]]
    bars: list[list[tuple[str, float]]]
    numbers: Table
    strict: Table | None
    strict_text: str
    data: Download | None


def cost_view(chapter: Chapter) -> CostView:
    """Of one chapter."""
    rows = [Timed(chapter.names.short(where(run)), [run]) for run, _ in chapter.every]
    together = len(rows) > _MOST_BARS
    shown = _by_setting(chapter) if together else rows
    used = {phase for row in rows for phase in row.seconds}
    phases = [*(phase for phase in PHASES if phase in used), *sorted(used - set(PHASES))]
    styles = {name: f"p-{i}" for i, name in enumerate(PHASES)}
    longest = max(row.total for row in shown) or 1.0
    first = "machine, profile and mode" if together else "spec"
    columns = [
        Column(first, lambda row: row.name),
        Column("key", lambda row: row.runs[0].key, "file"),
        Column("machine", lambda row: row.runs[0].repeats[0].machine, "file"),
        Column("runs", lambda row: sum(len(run.repeats) for run in row.runs), "file"),
        *map(_of_phase, phases),
        Column("in all", lambda row: row.total, "number", "{:.1f}".format),
    ]
    n_runs = sum(len(run.repeats) for run, _ in chapter.every)
    over = "the runs of each machine, profile and mode" if together else "the repeats of each spec"
    caption = (
        f"Seconds of every phase, the mean over {over}: {amount(len(rows), 'spec')}, "
        f"{amount(n_runs, 'run')}."
    )
    strict, text = _strict_beside_fast(chapter)
    return CostView(
        title=chapter.title,
        phases=[(styles.get(phase, "p-5"), PHASES.get(phase, phase)) for phase in phases],
        bars=[
            [
                (styles.get(p, "p-5"), round(100 * row.seconds.get(p, 0) / longest, 2))
                for p in phases
            ]
            for row in shown
        ],
        numbers=table(shown, columns, caption=caption),
        strict=strict,
        strict_text=text,
        data=table(rows, columns, file=f"seconds-{chapter.data}").data,
    )


def _of_phase(phase: str) -> Column:
    title = PHASES.get(phase, phase)
    return Column(title, lambda row: row.seconds.get(phase), "number", "{:.1f}".format)


def _by_setting(chapter: Chapter) -> list[Timed]:
    """The specs of each machine, profile and mode together."""
    found: dict[str, list[Run]] = defaultdict(list)
    for run, _ in chapter.runs:
        found[_setting(chapter, run.repeats[0])].append(run)
    return [Timed(name, runs) for name, runs in found.items()]


def _strict_beside_fast(chapter: Chapter) -> tuple[Table | None, str]:
    """For specs that differ in nothing but the mode, on one machine: how many times as long strict
    takes."""
    phase = "train" if chapter.task == "train" else "segment"
    by_setting: dict[tuple, dict[str, Run]] = defaultdict(dict)
    for run, _ in chapter.every:
        machine = run.repeats[0].manifest.machine
        setting = (machine.identity, machine.device, chapter.names.without(where(run), "mode"))
        by_setting[setting][run.spec.held] = run
    pairs = [
        [Timed(name, [modes[mode]]) for mode in ("strict", "fast")]
        for modes in by_setting.values()
        if {"strict", "fast"} <= modes.keys()
        for name in [chapter.names.context(where(modes["strict"]), {"mode"}) or "the only setting"]
    ]
    pairs = [pair for pair in pairs if all(one.seconds.get(phase) for one in pair)]
    if not pairs:
        return None, ""
    ratios = [strict.seconds[phase] / fast.seconds[phase] for strict, fast in pairs]
    numbers = [len(one.runs[0].repeats) for pair in pairs for one in pair]
    columns = [
        Column("spec", lambda pair: pair[0].name),
        Column("strict", lambda pair: pair[0].seconds[phase], "number", "{:.1f}".format),
        Column("fast", lambda pair: pair[1].seconds[phase], "number", "{:.1f}".format),
        Column(
            "times as long",
            lambda pair: pair[0].seconds[phase] / pair[1].seconds[phase],
            "number",
            "{:.2f}".format,
        ),
        Column("runs", lambda pair: " and ".join(str(len(one.runs[0].repeats)) for one in pair)),
    ]
    caption = (
        f"Seconds to {phase}, the mean over repeats, for specs that differ in nothing but the mode."
    )
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    text = (
        f"To {phase} took {statistics.median(ratios):.2f} times as long in strict as in fast"
        f"{spread}: {amount(len(pairs), 'pair')} of specs, {amount(sum(numbers), 'run')}."
    )
    return table(pairs, columns, caption=caption, file=f"strict-beside-fast-{chapter.data}"), text


# -- environment ---------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentView:
    """What differs between the environments of the repeats, side by side, and what does not."""

    n: int
    n_runs: int
    differing: Table | None
    equal: Table
    data: Download | None


def environment_view(chapters: Sequence[Chapter]) -> EnvironmentView:
    """Over all chapters."""
    every = [
        (chapter, repeat, _fields(repeat.manifest)) for chapter, _, repeat in _repeats(chapters)
    ]
    names = list(dict.fromkeys(name for *_, fields in every for name in fields))
    values = {name: [fields.get(name, "–") for *_, fields in every] for name in names}
    differing = [name for name in names if len(set(values[name])) > 1]
    groups: dict[tuple[str, ...], list[tuple[Chapter, Repeat]]] = defaultdict(list)
    for i, (chapter, repeat, _) in enumerate(every):
        groups[tuple(values[name][i] for name in differing)].append((chapter, repeat))

    def column(number: int, members: Sequence[tuple[Chapter, Repeat]]) -> Column:
        settings = dict.fromkeys(_setting(chapter, repeat) for chapter, repeat in members)
        title = f"{'; '.join(settings)} ({amount(len(members), 'run')})"
        return Column(
            title, lambda row: Cell(row[1][number], marked=row[1][number] != row[1][0]), "value"
        )

    columns = [column(i, members) for i, members in enumerate(groups.values())]
    rows = [(name, [group[i] for group in groups]) for i, name in enumerate(differing)]
    caption = "The fields in which they differ. What differs from the first column is marked."
    field_name = Column("field", lambda row: row[0])
    equal = [(name, values[name][0]) for name in names if name not in differing]
    files = [{"run": repeat.name, **fields} for _, repeat, fields in every]
    return EnvironmentView(
        n=len(groups),
        n_runs=len(every),
        differing=table(rows, [field_name, *columns], caption=caption) if rows else None,
        equal=table(equal, [field_name, Column("value", lambda row: row[1], "value")]),
        data=table_file("environment", files),
    )


def _setting(chapter: Chapter, repeat: Repeat) -> str:
    """Machine, where there are several, profile and mode."""
    place, names = place_of(repeat), chapter.names
    machine = [names.facts[place][name] for name in OF_MACHINE if name in names.varying]
    return ", ".join(filter(None, [*machine, *names.column(place)]))


def _fields(manifest: Manifest) -> dict[str, str]:
    """The environment as texts by name."""
    host = dict(manifest.host)
    memory = host.pop("memory", None)
    if isinstance(memory, int):
        host["memory"] = f"{memory / 2**30:.1f} GiB"
    gpus = [
        f"{gpu.get('name')} ({gpu.get('memory', 0) / 2**30:.0f} GiB, driver {gpu.get('driver')})"
        for gpu in host.pop("gpus", ())
    ]
    host["gpus"] = ", ".join(gpus) or "none"
    flat: dict[str, Any] = {
        "machine": manifest.machine.label,
        "device": manifest.device,
        "threads": manifest.threads,
        "instruction set in use": manifest.cpu_capability,
        "numeric class": (manifest.numeric_class or {}).get("name"),
        **{f"host: {name}": value for name, value in host.items()},
        **{f"CUDA: {name}": value for name, value in manifest.cuda.items()},
        **{f"switch: {name}": value for name, value in manifest.switches.items()},
        **{f"variable: {name}": value for name, value in manifest.variables.items()},
        **{f"version: {name}": value for name, value in manifest.versions.items()},
        **_libraries(manifest.numeric_libraries),
    }
    return {name: _plain(value) for name, value in flat.items()}


def _libraries(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Kernel type and threads of each numeric library, by name and version."""
    texts: dict[str, list[str]] = defaultdict(list)
    for one in found:
        name = one.get("internal_api") or one.get("user_api") or "unknown"
        version = f" {one['version']}" if one.get("version") else ""
        threads = amount(one["num_threads"], "thread") if one.get("num_threads") else ""
        parts = filter(None, [one.get("architecture"), threads])
        texts[f"library: {name}{version}"].append(", ".join(parts) or "loaded")
    return {name: "; ".join(values) for name, values in texts.items()}


def _plain(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return str(value)
