"""The section on PyTorch's warnings: which operations cannot repeat, and what came of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.comparison.place_fields import sort_key
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.show.pages.parts import which
from cellrepro.show.report.summary import Chapter
from samebits import NondeterministicOperation, about_determinism

_MOST_PLACES = 3


@dataclass(frozen=True)
class Alert:
    """One operation that cannot repeat, wherever it was seen."""

    name: str
    known: NondeterministicOperation | None
    """PyTorch's first warning; None if the operation was only left loose."""
    where: str
    """Modules and lines of code, those with most calls first; empty without warnings."""
    phases: str
    count: int
    """How many calls were warned of."""
    runs: str


@dataclass(frozen=True)
class ModeOutcome:
    """How the repeated specs in one mode came out."""

    mode: str
    verdict: Verdict
    verdicts: Sequence[Verdict]
    """One for each spec that was repeated and is not vacuous."""


@dataclass(frozen=True)
class WarningsSection:
    """Operations that cannot repeat, and the outcomes of repeating in each mode."""

    n_runs: int
    n_strict: int
    """Runs that allowed deterministic operations only."""
    strict_modes: Sequence[str]
    """The modes of these."""
    n_warned: int
    """Runs that asked PyTorch to warn."""
    alerts: Sequence[Alert]
    outcomes: Sequence[ModeOutcome]


@dataclass(frozen=True)
class _Sighting:
    """An operation in one run, with its warning or, if it was left loose, without."""

    run: str
    warning: NondeterministicOperation | None = None


def warnings_section(chapters: Sequence[Chapter]) -> WarningsSection:
    """Find the operations that cannot repeat, or that were left loose, in all chapters."""
    n_runs = 0
    n_watched = 0
    n_warned = 0
    strict_modes: dict[str, None] = {}
    sightings: dict[str, list[_Sighting]] = defaultdict(list)
    for chapter in chapters:
        for result in chapter.results:
            for repeat in result.repeats:
                n_runs += 1
                switches = repeat.manifest.switches
                if switches.get("deterministic_algorithms"):
                    n_watched += 1
                    warns = bool(switches.get("deterministic_warn_only"))
                    n_warned += warns
                    if not warns:
                        strict_modes[result.spec.mode] = None
                name = chapter.names.of_repeat(repeat)
                for warning in about_determinism(repeat.manifest.warnings):
                    sightings[warning.op].append(_Sighting(name, warning))
                if result.spec.loose is not None:
                    sightings[result.spec.loose].append(_Sighting(name))
    return WarningsSection(
        n_runs=n_runs,
        n_strict=n_watched - n_warned,
        strict_modes=list(strict_modes),
        n_warned=n_warned,
        alerts=[_alert(name, seen, n_runs) for name, seen in sightings.items()],
        outcomes=_outcomes(chapters),
    )


def _alert(name: str, sightings: Sequence[_Sighting], n_runs: int) -> Alert:
    warnings = [sighting.warning for sighting in sightings if sighting.warning is not None]
    n_calls: Counter[str] = Counter()
    for warning in warnings:
        where = ", ".join(filter(None, [warning.module, warning.source]))
        n_calls[where or "not observed"] += warning.calls
    most_first = [where for where, _ in n_calls.most_common()]
    phases = dict.fromkeys(warning.phase or "not observed" for warning in warnings)
    runs = dict.fromkeys(sighting.run for sighting in sightings)
    return Alert(
        name=name,
        known=warnings[0] if warnings else None,
        where=which(most_first, 0, "place", most=_MOST_PLACES),
        phases=", ".join(phases),
        count=n_calls.total(),
        runs=which(list(runs), n_runs, "repeat"),
    )


def _outcomes(chapters: Sequence[Chapter]) -> list[ModeOutcome]:
    by_mode: dict[str, list[Verdict]] = defaultdict(list)
    for chapter in chapters:
        for result in chapter.results:
            overall = result.judgement.overall
            if overall is not None and overall != Verdict.VACUOUS:
                by_mode[result.spec.mode_in_words].append(overall)
    modes = sorted(by_mode, key=lambda mode: sort_key("mode", mode))
    return [ModeOutcome(mode, combine(by_mode[mode]), by_mode[mode]) for mode in modes]
