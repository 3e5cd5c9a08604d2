"""The report on what runs had to do with: warnings and what came of them, time, surroundings."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellrepro.compare.names import place_of, sort_key
from cellrepro.compare.verdicts import Judgement, Verdict, combine
from cellrepro.show.report.findings import OF_MACHINE, Chapter, where
from cellrepro.show.report.page import table_file, which
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Repeat, Run
from cellrepro.text import amount, ppm_text
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.torch_warnings import about_determinism

_MOST_PLACES = 3
_MOST_BARS = 12  # specs with a bar each; of more, a bar for each profile and mode
_MOST_SPECS = 60  # in the table of times
_COUNTS = (Verdict.IDENTICAL, Verdict.SAME_OBJECTS, Verdict.DIFFERENT)
PHASES = ("import", "data", "model", "train", "segment")
"""The phases of a run in the order in which it passes them."""
_PHASE_WORDS = {
    "import": "import",
    "data": "read data",
    "model": "load model",
    "train": "train",
    "segment": "segment",
}


# -- warnings ------------------------------------------------------------------------------


@dataclass
class _Alert:
    """One operation that cannot repeat, wherever it was seen."""

    known: NondeterministicOperation | None
    places: Counter[str] = field(default_factory=Counter)
    phases: dict[str, None] = field(default_factory=dict)
    count: int = 0
    repeats: dict[str, str] = field(default_factory=dict)
    settings: dict[tuple[int, tuple], None] = field(default_factory=dict)
    """Chapter and everything but the mode, for the runs in which it was seen."""


def warnings_view(chapters: Sequence[Chapter]) -> dict[str, Any]:
    """What PyTorch warned of: operations that cannot repeat, with what they did; and the rest."""
    repeats = [(chapters[number], repeat) for number, _, repeat in _repeats(chapters)]
    alerts = _alerts(chapters)
    rows = [_alert_row(name, alert, chapters, len(repeats)) for name, alert in alerts.items()]
    watched = [r for _, r in repeats if r.manifest.switches.get("deterministic_algorithms")]
    warned = [r for r in watched if r.manifest.switches.get("deterministic_warn_only")]
    return {
        "n_runs": len(repeats),
        "n_strict": len(watched) - len(warned),
        "n_warned": len(warned),
        "alerts": rows,
        "others": _other_warnings(repeats),
        "download": table_file(
            "determinism-warnings",
            [
                {**{k: v for k, v in row.items() if k not in ("effects", "places")}, **effect}
                for row in rows
                for effect in row["effects"]
            ],
        ),
    }


def _alerts(chapters: Sequence[Chapter]) -> dict[str, _Alert]:
    found: dict[str, _Alert] = {}
    for number, run, repeat in _repeats(chapters):
        chapter = chapters[number]
        setting = number, chapter.names.without(where(run), "mode")
        for warning in about_determinism(repeat.manifest.warnings):
            alert = found.setdefault(warning.op, _Alert(warning))
            alert.count += warning.calls
            alert.places[_place_text(warning)] += warning.calls
            alert.phases[warning.phase or "not observed"] = None
            alert.repeats[repeat.name] = chapter.label(repeat)
            alert.settings[setting] = None
        if run.spec.loose is not None:
            alert = found.setdefault(run.spec.loose, _Alert(None))
            alert.repeats[repeat.name] = chapter.label(repeat)
            alert.settings[setting] = None
    return found


def _repeats(chapters: Sequence[Chapter]) -> Iterator[tuple[int, Run, Repeat]]:
    for number, chapter in enumerate(chapters):
        for run, _ in chapter.every:
            for repeat in run.repeats:
                yield number, run, repeat


def _place_text(warning: NondeterministicOperation) -> str:
    parts = [warning.module or "", _short_path(warning.source) if warning.source else ""]
    return ", ".join(filter(None, parts)) or "not observed"


def _alert_row(
    name: str, alert: _Alert, chapters: Sequence[Chapter], n_repeats: int
) -> dict[str, Any]:
    known = alert.known
    places = [place for place, _ in alert.places.most_common()]
    more = f"; and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return {
        "operation": name,
        "alert": known.alert if known is not None else "",
        "places": "; ".join(places[:_MOST_PLACES]) + more,
        "count": alert.count,
        "phases": ", ".join(alert.phases),
        "runs": which(list(alert.repeats.values()), n_repeats, "run"),
        "reason": known.reason if known is not None else "",
        "remedy": known.remedy if known is not None else "",
        "substitute": known.substitute or "" if known is not None else "",
        "on_purpose": known is None,
        "effects": _effects(alert, chapters),
    }


def _effects(alert: _Alert, chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """By mode: how the repeats of the specs that were set alike came out."""
    by_mode: dict[str, list[tuple[Judgement, float]]] = defaultdict(list)
    for number, setting in alert.settings:
        chapter = chapters[number]
        for run, judgement in chapter.every:
            if chapter.names.without(where(run), "mode") == setting:
                by_mode[run.spec.held].append((judgement, _largest_ppm(chapter, run)))
    effects = []
    for mode in sorted(by_mode, key=lambda mode: sort_key("mode", mode)):
        repeated = [
            (judgement, ppm) for judgement, ppm in by_mode[mode] if judgement.overall is not None
        ]
        told = [(judgement, ppm) for judgement, ppm in repeated if judgement.overall in _COUNTS]
        n_differ = sum(judgement.overall == Verdict.DIFFERENT for judgement, _ in told)
        effects.append(
            {
                "mode": mode,
                "verdict": str(combine(j.overall for j, _ in told if j.overall))
                if told
                else "no verdict",
                "text": _effect_text(len(by_mode[mode]), len(repeated), told, n_differ),
            }
        )
    return effects


def _effect_text(n: int, n_repeated: int, told: Sequence[tuple[Judgement, float]], k: int) -> str:
    if not n_repeated:
        return f"{amount(n, 'spec')}, not repeated: nothing is known"
    if not told:
        return f"{amount(n_repeated, 'spec')} repeated, but nothing was found or trained"
    over = f"{len(told)} repeated {'spec' if len(told) == 1 else 'specs'}"
    if not k:
        return f"no effect seen: 0 of {over} differ"
    cells = max(ppm for _, ppm in told)
    masks = f"up to {ppm_text(cells)} of the pixels" if cells else "the masks are the same"
    return f"{k} of {over} differ; {masks}"


def _largest_ppm(chapter: Chapter, run: Run) -> float:
    """Between two repeats of one run."""
    return max(
        (
            pair.ppm
            for axis in chapter.axes
            if axis.name == "repeats"
            for pair in axis.pairs
            if place_of(pair.a) == where(run)
        ),
        default=0.0,
    )


def _other_warnings(repeats: Sequence[tuple[Chapter, Repeat]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for chapter, repeat in repeats:
        for record in repeat.manifest.warnings:
            if about_determinism([record]):
                continue
            place = (record.message, record.category, _short_path(record.file), record.line)
            row = found.setdefault(place, {"count": 0, "phases": {}, "runs": {}})
            row["count"] += record.count
            row["phases"][record.phase] = None
            row["runs"][repeat.name] = chapter.label(repeat)
    rows = [
        {
            "message": message,
            "category": category,
            "where": f"{file}, line {line}",
            "count": row["count"],
            "phases": ", ".join(row["phases"]),
            "runs": which(list(row["runs"].values()), len(repeats), "run"),
        }
        for (message, category, file, line), row in found.items()
    ]
    return sorted(rows, key=lambda row: -row["count"])


def _short_path(file: str) -> str:
    """A library's file as its users name it, whatever the machine."""
    parts = Path(file.replace("\\", "/")).parts
    if "site-packages" in parts:
        last = len(parts) - 1 - parts[::-1].index("site-packages")
        return "/".join(parts[last + 1 :])
    return "/".join(parts[-2:])


# -- time ----------------------------------------------------------------------------------


def cost_view(chapter: Chapter) -> dict[str, Any]:
    """Seconds of every phase by spec, and what strict takes beside fast for the same spec."""
    rows = [_cost_row(chapter.names.short(where(run)), [run]) for run, _ in chapter.every]
    n_runs = sum(len(run.repeats) for run, _ in chapter.every)
    bars = rows if len(rows) <= _MOST_BARS else _cost_columns(chapter)
    longest = max(row["total"] for row in bars) or 1.0
    phases = [phase for phase in PHASES if any(phase in row["seconds"] for row in rows)]
    phases += sorted({p for row in rows for p in row["seconds"]} - set(phases))
    for row in bars:
        row["bars"] = [
            {
                "phase": phase,
                "width": round(100 * row["seconds"][phase] / longest, 2),
                "style": _style(phase),
            }
            for phase in phases
            if row["seconds"].get(phase)
        ]
    for row in (*rows, *bars):
        row["cells"] = [row["seconds"].get(phase) for phase in phases]
    slowest = max(rows, key=lambda row: row["total"])
    return {
        "title": chapter.title,
        "phases": [(_style(phase), _PHASE_WORDS.get(phase, phase)) for phase in phases],
        "bars": bars,
        "over": "the repeats of each spec"
        if bars is rows
        else "the runs of each machine, profile and mode",
        "rows": [] if bars is rows else rows[:_MOST_SPECS],
        "n_left_out": max(0, len(rows) - _MOST_SPECS),
        "alt": f"Seconds of {amount(len(rows), 'spec')}, {amount(n_runs, 'run')}: "
        f"the longest is {slowest['name']} with {slowest['total']:.1f} s.",
        "n_specs": len(rows),
        "n_runs": n_runs,
        "strict": _strict_beside_fast(chapter),
        "download": table_file(
            f"seconds-{chapter.data}",
            [
                {
                    "spec": row["name"],
                    "key": run.key,
                    "machine": run.repeats[0].machine,
                    "runs": row["n"],
                    **row["seconds"],
                }
                for row, (run, _) in zip(rows, chapter.every, strict=True)
            ],
        ),
    }


def _style(phase: str) -> str:
    """CSS class of a phase."""
    return f"p-{PHASES.index(phase) if phase in PHASES else len(PHASES)}"


def _cost_columns(chapter: Chapter) -> list[dict[str, Any]]:
    """The specs of each machine, profile and mode together."""
    by_column: dict[str, list[Run]] = defaultdict(list)
    for run, _ in chapter.runs:
        by_column[_setting(run.repeats[0], chapter)].append(run)
    return [_cost_row(column, runs) for column, runs in by_column.items()]


def _cost_row(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    seconds = _mean_seconds([repeat for run in runs for repeat in run.repeats])
    return {
        "name": name,
        "n": sum(len(run.repeats) for run in runs),
        "seconds": seconds,
        "total": sum(seconds.values()),
    }


def _mean_seconds(repeats: Sequence[Repeat]) -> dict[str, float]:
    phases = dict.fromkeys(phase for r in repeats for phase in r.manifest.seconds)
    return {
        phase: sum(r.manifest.seconds.get(phase, 0.0) for r in repeats) / len(repeats)
        for phase in phases
    }


def _strict_beside_fast(chapter: Chapter) -> dict[str, Any] | None:
    """For specs that differ in nothing but the mode, on one machine: how many times as long strict
    takes."""
    phase = "train" if chapter.task == "train" else "segment"
    by_setting: dict[tuple, dict[str, Run]] = defaultdict(dict)
    for run, _ in chapter.every:
        machine = run.repeats[0].manifest.machine
        setting = (machine.identity, machine.device, chapter.names.without(where(run), "mode"))
        by_setting[setting][run.spec.held] = run
    rows: list[dict[str, Any]] = []
    for modes in by_setting.values():
        if "strict" not in modes or "fast" not in modes:
            continue
        strict, fast = (
            _mean_seconds(modes[mode].repeats).get(phase, 0.0) for mode in ("strict", "fast")
        )
        if strict and fast:
            rows.append(
                {
                    "name": chapter.names.context(where(modes["strict"]), {"mode"})
                    or "the only setting",
                    "strict": strict,
                    "fast": fast,
                    "ratio": strict / fast,
                    "n_strict": len(modes["strict"].repeats),
                    "n_fast": len(modes["fast"].repeats),
                }
            )
    if not rows:
        return None
    ratios = [row["ratio"] for row in rows]
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    n_runs = sum(row["n_strict"] + row["n_fast"] for row in rows)
    spread = f" ({low:.2f} to {high:.2f})" if len(rows) > 1 else ""
    verb = "train" if phase == "train" else "segment"
    return {
        "phase": phase,
        "rows": rows,
        "ratio": middle,
        "sentence": f"To {verb} took {middle:.2f} times as long in strict as in fast{spread}: "
        f"{amount(len(rows), 'pair')} of specs, {amount(n_runs, 'run')}.",
        "download": table_file(f"strict-beside-fast-{chapter.data}", rows),
    }


# -- surroundings --------------------------------------------------------------------------


def environment_view(chapters: Sequence[Chapter]) -> dict[str, Any]:
    """What differs between the surroundings of the repeats, side by side, and what does not."""
    repeats = [(chapters[number], repeat) for number, _, repeat in _repeats(chapters)]
    surroundings = [_surroundings(repeat.manifest) for _, repeat in repeats]
    fields = list(dict.fromkeys(name for one in surroundings for name in one))
    values = {name: [one.get(name, "–") for one in surroundings] for name in fields}
    differing = [name for name in fields if len(set(values[name])) > 1]
    members: dict[tuple[str, ...], list[tuple[Chapter, Repeat]]] = defaultdict(list)
    for i, entry in enumerate(repeats):
        members[tuple(values[name][i] for name in differing)].append(entry)
    columns = [
        {
            "names": list(dict.fromkeys(_setting(repeat, chapter) for chapter, repeat in group)),
            "n": len(group),
        }
        for group in members.values()
    ]
    rows = [
        {"name": name, "values": [column[i] for column in members]}
        for i, name in enumerate(differing)
    ]
    return {
        "n": len(members),
        "n_runs": len(repeats),
        "columns": columns,
        "differing": rows,
        "equal": [
            {"name": name, "value": values[name][0]} for name in fields if name not in differing
        ],
        "download": table_file(
            "surroundings",
            [
                {"run": repeat.name, **{name: values[name][i] for name in fields}}
                for i, (_, repeat) in enumerate(repeats)
            ],
        ),
    }


def _setting(repeat: Repeat, chapter: Chapter) -> str:
    """Machine, where there are several, profile and mode."""
    place, names = place_of(repeat), chapter.names
    machine = [names.facts[place][name] for name in OF_MACHINE if name in names.varying]
    return ", ".join(filter(None, [*machine, *names.column(place)]))


def _surroundings(manifest: Manifest) -> dict[str, str]:
    host = dict(manifest.host)
    memory = host.pop("memory", None)
    if isinstance(memory, int):
        host["memory"] = f"{memory / 2**30:.1f} GiB"
    host["gpus"] = ", ".join(_gpu_text(gpu) for gpu in host.pop("gpus", ())) or "none"
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


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    return f"{gpu.get('name')} ({gpu.get('memory', 0) / 2**30:.0f} GiB, driver {gpu.get('driver')})"


def _libraries(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Kernel type and threads of each numeric library, by name and version."""
    texts: dict[str, list[str]] = defaultdict(list)
    for one in found:
        name = one.get("internal_api") or one.get("user_api") or "unknown"
        version = f" {one['version']}" if one.get("version") else ""
        threads = f"{amount(one['num_threads'], 'thread')}" if one.get("num_threads") else ""
        parts = [part for part in (one.get("architecture"), threads) if part]
        texts[f"library: {name}{version}"].append(", ".join(parts) or "loaded")
    return {name: "; ".join(values) for name, values in texts.items()}


def _plain(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value) or "none"
    return str(value)
