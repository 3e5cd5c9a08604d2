"""The report on PyTorch's warnings: which operations cannot repeat, and what came of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from cellrepro.same.names import sort_key
from cellrepro.same.verdicts import Verdict, combine
from cellrepro.show.report.page import View, which
from cellrepro.show.report.summary import Chapter
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.torch_warnings import about_determinism

_MOST_PLACES = 3

Seen = tuple[str, NondeterministicOperation | None]  # the name of a run, and what it was warned of


def warnings_view(chapters: Sequence[Chapter]) -> View:
    """Operations that PyTorch says it cannot repeat, or that were left loose, in all chapters."""
    every = [(c, one, repeat) for c in chapters for one in c.every for repeat in one.repeats]
    seen: dict[str, list[Seen]] = defaultdict(list)
    for chapter, one, repeat in every:
        label = chapter.names.of_repeat(repeat)
        for warning in about_determinism(repeat.manifest.warnings):
            seen[warning.op].append((label, warning))
        if one.spec.loose is not None:
            seen[one.spec.loose].append((label, None))
    switches = [repeat.manifest.switches for _, _, repeat in every]
    watched = [found for found in switches if found.get("deterministic_algorithms")]
    n_warned = sum(bool(found.get("deterministic_warn_only")) for found in watched)
    return View(
        n_runs=len(every),
        n_strict=len(watched) - n_warned,
        n_warned=n_warned,
        alerts=[_alert(name, found, len(every)) for name, found in seen.items()],
        effects=_effects(chapters),
    )


def _alert(name: str, seen: Sequence[Seen], n_runs: int) -> View:
    """One operation that cannot repeat, wherever it was seen; not known if it was left loose."""
    warnings = [warning for _, warning in seen if warning is not None]
    places: Counter[str] = Counter()
    for warning in warnings:
        place = ", ".join(filter(None, [warning.module, warning.source]))
        places[place or "not observed"] += warning.calls
    shown = [place for place, _ in places.most_common()]
    return View(
        name=name,
        known=warnings[0] if warnings else None,
        where=which(shown, 0, "place", most=_MOST_PLACES),
        phases=", ".join(dict.fromkeys(one.phase or "not observed" for one in warnings)),
        count=places.total(),
        runs=which(list(dict.fromkeys(label for label, _ in seen)), n_runs, "run"),
    )


def _effects(chapters: Sequence[Chapter]) -> list[View]:
    """By mode: how the repeats of its specs came out, where they found or trained something."""
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for one in (one for chapter in chapters for one in chapter.every):
        overall = one.judgement.overall
        if overall is not None and overall != Verdict.VACUOUS:
            verdicts[one.spec.mode_in_words].append(overall)
    return [
        View(mode=mode, verdict=combine(found), verdicts=found)
        for mode, found in sorted(verdicts.items(), key=lambda item: sort_key("mode", item[0]))
    ]
