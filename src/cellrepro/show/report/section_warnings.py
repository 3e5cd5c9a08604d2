"""The report on PyTorch's warnings: which operations cannot repeat, and what came of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.compare.names import place_of, sort_key
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.report.page import which
from cellrepro.show.report.summary import NO_VERDICT, Chapter, Judged
from cellrepro.store.store import Repeat
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.torch_warnings import about_determinism

_MOST_PLACES = 3

Of = tuple[Chapter, Judged, Repeat]


@dataclass(frozen=True)
class Effect:
    """How the repeats of the specs came out that were set alike, in one mode."""

    mode: str
    verdict: str
    n_repeated: int  # specs whose repeats found or trained something
    n_differ: int
    ppm: float  # of the pixels, at most


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
    """What PyTorch warned of: operations that cannot repeat, with what they did."""

    n_runs: int
    n_strict: int
    n_warned: int
    alerts: list[Alert]


def warnings_view(chapters: Sequence[Chapter]) -> WarningsView:
    """Over all chapters."""
    every = [(c, one, repeat) for c in chapters for one in c.every for repeat in one.repeats]
    seen: dict[str, list[tuple[Of, NondeterministicOperation | None]]] = defaultdict(list)
    for of in every:
        for warning in about_determinism(of[2].manifest.warnings):
            seen[warning.op].append((of, warning))
        if of[1].spec.loose is not None:
            seen[of[1].spec.loose].append((of, None))
    alerts = [_alert(name, found, len(every)) for name, found in seen.items()]
    switches = [repeat.manifest.switches for _, _, repeat in every]
    watched = [found for found in switches if found.get("deterministic_algorithms")]
    n_warned = sum(bool(found.get("deterministic_warn_only")) for found in watched)
    return WarningsView(
        n_runs=len(every),
        n_strict=len(watched) - n_warned,
        n_warned=n_warned,
        alerts=alerts,
    )


def _alert(
    name: str, seen: Sequence[tuple[Of, NondeterministicOperation | None]], n_runs: int
) -> Alert:
    warnings = [warning for _, warning in seen if warning is not None]
    places: Counter[str] = Counter()
    for warning in warnings:
        source = _short_path(warning.source) if warning.source else ""
        places[", ".join(filter(None, [warning.module, source])) or "not observed"] += warning.calls
    shown = [place for place, _ in places.most_common()]
    labels = {repeat.name: chapter.names.label(repeat) for (chapter, _, repeat), _ in seen}
    return Alert(
        name=name,
        known=warnings[0] if warnings else None,
        where=which(shown, 0, "place", most=_MOST_PLACES),
        phases=", ".join(dict.fromkeys(one.phase or "not observed" for one in warnings)),
        count=places.total(),
        runs=which(list(labels.values()), n_runs, "run"),
        effects=_effects([of for of, _ in seen]),
    )


def _effects(seen: Sequence[Of]) -> list[Effect]:
    """By mode: how the repeats of the specs came out that were set as these, the mode excepted."""
    settings = {(c.title, c.names.without(one.place, "mode")): c for c, one, _ in seen}
    by_mode: dict[str, list[tuple[Verdict, float]]] = defaultdict(list)
    for (_, setting), chapter in settings.items():
        repeats = chapter.spread.axis("repeats")
        largest: dict[str, float] = defaultdict(float)
        for pair in repeats.pairs if repeats else []:
            largest[place_of(pair.a)] = max(largest[place_of(pair.a)], pair.ppm)
        for one in chapter.every:
            if chapter.names.without(one.place, "mode") == setting:
                overall, told = one.judgement.overall, by_mode[one.spec.held]
                if overall is not None and overall != Verdict.VACUOUS:
                    told.append((overall, largest[one.place]))
    effects = []
    for mode, found in sorted(by_mode.items(), key=lambda item: sort_key("mode", item[0])):
        verdict = str(combine(one for one, _ in found)) if found else NO_VERDICT
        n_differ = sum(one == Verdict.DIFFERENT for one, _ in found)
        most = max((ppm for _, ppm in found), default=0.0)
        effects.append(Effect(mode, verdict, len(found), n_differ, most))
    return effects


def _short_path(file: str) -> str:
    """A library's file as its users name it, whatever the machine."""
    path = file.replace("\\", "/")
    inside = path.rpartition("site-packages/")[2]
    return inside if inside != path else "/".join(Path(path).parts[-2:])
