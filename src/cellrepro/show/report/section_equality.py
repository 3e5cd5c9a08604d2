"""The report on runs as wholes: which are equal, which failed, and where each of them lies."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.compare.names import said, sort_key
from cellrepro.compare.verdicts import Judgement, Verdict
from cellrepro.show.report.findings import Chapter, Failure, across_machines, where
from cellrepro.show.report.page import Links, letters, table_file, which
from cellrepro.store.digests import value_digest
from cellrepro.store.manifest import Manifest
from cellrepro.store.spec import PARAMETERS
from cellrepro.store.store import Repeat, Run
from cellrepro.text import amount

NO_VERDICT = "no verdict"
"""Stands where a verdict would, for a spec that was carried out once."""

GROUP_COLOURS = ("#A9D8F5", "#F5CF85", "#E9C3D9", "#F5EE9E", "#8DB9D9", "#E5B28F", "#CFCFCF")
"""Tints of Okabe's and Ito's colours on which black text is readable; no red beside a green."""

_STRIPES = 2  # times that the colours are used: plain, then striped
_MOST_OPEN = 24  # runs; a longer list is folded


@dataclass(frozen=True)
class Results:
    """Which repeats of a chapter came to the same result, and what each result is called.

    Attributes
    ----------
    masks : dict of str to str
        Letter of the masks by ``KEY/MACHINE/REPEAT``: equal for equal outlines in every image.
    networks : dict of str to int
        Number of the weights by ``KEY/MACHINE/REPEAT``: equal for equal bits; none of what
        trained nothing.
    style : dict of str to str
        CSS class by letter; results that stand alone have none.
    numbered_otherwise : list of str
        Letters under which the outlines are equal, but not the numbers of the cells.
    """

    masks: dict[str, str]
    networks: dict[str, int]
    style: dict[str, str]
    numbered_otherwise: list[str]

    def of(self, repeat: Repeat) -> str:
        """What a repeat came to: ``A 1``; a dash for what is no result."""
        number = self.networks.get(repeat.name)
        letter = self.masks.get(repeat.name, "–")
        return letter + (f" {number}" if number is not None else "")


def results(chapter: Chapter) -> Results:
    """The equal results of a chapter, in the order of its tables."""
    outlines: dict[str, list[Repeat]] = defaultdict(list)
    weights: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        outlines[_outlines_digest(repeat.manifest)].append(repeat)
        if repeat.manifest.weights is not None:
            weights[repeat.manifest.weights.digest].append(repeat)
    named = {letters(i): members for i, members in enumerate(outlines.values())}
    shared = [letter for letter in named if len(named[letter]) > 1]
    shared.sort(key=lambda letter: -len(named[letter]))
    n_styles = _STRIPES * len(GROUP_COLOURS)
    return Results(
        masks={repeat.name: letter for letter, group in named.items() for repeat in group},
        networks={
            repeat.name: number
            for number, group in enumerate(weights.values(), start=1)
            for repeat in group
        },
        style={letter: f"g-{i}" for i, letter in enumerate(shared[:n_styles])},
        numbered_otherwise=[
            letter
            for letter, group in named.items()
            if len({repeat.manifest.masks_digest for repeat in group}) > 1
        ],
    )


def _outlines_digest(manifest: Manifest) -> str:
    return value_digest({name: mask.canonical_digest for name, mask in manifest.masks.items()})


def group_styles() -> list[tuple[str, str, bool]]:
    """CSS class, colour and whether striped, of every group that has a colour."""
    pairs = itertools.product((False, True)[:_STRIPES], GROUP_COLOURS)
    return [(f"g-{i}", colour, striped) for i, (striped, colour) in enumerate(pairs)]


# -- the matrix ----------------------------------------------------------------------------


def equality_view(chapter: Chapter, same: Results) -> dict[str, Any]:
    """The matrix of equal results by seed, profile and mode, and what is to be said of it."""
    n_masks, n_networks = len(set(same.masks.values())), len(set(same.networks.values()))
    return {
        "title": chapter.title,
        "data": chapter.data,
        "n_images": chapter.n_images,
        "part": chapter.repeats[0].manifest.data.segmented,
        "same": _said_of_all(chapter),
        "summary": _summary(chapter, n_masks, n_networks),
        "trained": bool(same.networks),
        "numbered_otherwise": same.numbered_otherwise,
        "matrix": _matrix(chapter, same),
        "across": [
            {"text": text, "specs": which(specs, n_across, "spec")}
            for across in [across_machines(chapter)]
            for n_across in [sum(map(len, across.values()))]
            for text, specs in across.items()
        ],
        "starts": [_start_row(chapter, run) for run in chapter.starts],
        "reasons": _reason_rows(chapter),
        "usual": ", ".join(said(name, value) for name, value in chapter.names.usual.items()),
        "download": table_file(f"equal-results-{chapter.data}", _run_file(chapter, same)),
    }


def _start_row(chapter: Chapter, run: Run) -> dict[str, str]:
    """A network that others were trained from, and how it was made."""
    facts = chapter.names.facts[where(run)]
    asked = ("model", "seed", "epochs", "images_per_epoch", "learning_rate", "profile", "mode")
    digests = {repeat.manifest.weights.digest for repeat in run.repeats if repeat.manifest.weights}
    n = len({one.key for one, _ in chapter.runs if one.spec.model_digest in digests})
    return {
        "name": chapter.names.short(where(run)),
        "run": run.repeats[0].name,
        "made": ", ".join(said(name, facts[name]) for name in asked),
        "used": amount(n, "spec"),
    }


def _summary(chapter: Chapter, n_masks: int, n_networks: int) -> str:
    n = len(chapter.repeats)
    what = f"{amount(n, 'run')} of {amount(chapter.n_specs, 'spec')} came to "
    if n_networks:
        what += f"{amount(n_networks, 'different network')} and "
    return f"{what}{amount(n_masks, 'different result')} in cells."


def _said_of_all(chapter: Chapter) -> str:
    """What every spec has in common, in one line."""
    names = chapter.names
    facts = names.facts[names.shown[0]]
    fields = [f for f in (*PARAMETERS, "machine") if f not in names.varying and f != "ledger"]
    if chapter.task == "segment":
        fields = [f for f in fields if f in ("model", "seed", "profile", "mode", "machine")]
    labels = {name: f"{name} " for name in ("profile", "mode", "machine")}
    return ", ".join(labels.get(name, "") + said(name, facts[name]) for name in fields)


def _matrix(chapter: Chapter, same: Results) -> dict[str, Any]:
    names = chapter.names
    places = sorted(names.shown, key=names.order)
    columns = sorted(
        {names.column(each) for each in places},
        key=lambda column: (sort_key("profile", column[0]), sort_key("mode", column[1])),
    )
    cells: dict[tuple[str, tuple[str, str]], list[dict[str, Any]]] = defaultdict(list)
    judged = {where(run): (run, judgement) for run, judgement in chapter.runs}
    for each in places:
        run, judgement = judged.get(each, (None, None))
        repeats = run.repeats if run is not None else ()
        cell = _cell(each, repeats, judgement, chapter.failures, same)
        cells[names.row(each), names.column(each)].append(cell)
    profiles = [
        (name, len(list(group))) for name, group in itertools.groupby(c[0] for c in columns)
    ]
    rows = list(dict.fromkeys(names.row(each) for each in places))
    return {
        "profiles": profiles,
        "columns": columns,
        "rows": [(row, [cells.get((row, column), []) for column in columns]) for row in rows],
    }


def _cell(
    place: str,
    repeats: Sequence[Repeat],
    judgement: Judgement | None,
    failures: Sequence[Failure],
    same: Results,
) -> dict[str, Any]:
    n_failed = sum(failure.place == place for failure in failures)
    failed = f"{amount(n_failed, 'repeat')} failed" if n_failed else ""
    if judgement is None:
        return {"place": place, "verdict": "failed", "over": failed, "detail": "", "groups": []}
    groups: dict[str, str] = {}
    for repeat in repeats:
        groups.setdefault(same.of(repeat), same.style.get(same.masks[repeat.name], ""))
    return {
        "place": place,
        "verdict": str(judgement.overall or NO_VERDICT),
        "over": amount(judgement.n_repeats, "repeat") + (f"; {failed}" if failed else ""),
        "detail": ""
        if judgement.overall in (None, Verdict.IDENTICAL) or judgement.weights is None
        else judgement.detail(),
        "groups": list(groups.items()),
    }


def _reason_rows(chapter: Chapter) -> list[dict[str, str]]:
    """Why a run is vacuous, or why it has no verdict."""
    found: dict[str, list[str]] = defaultdict(list)
    for run, judgement in chapter.runs:
        for reason in judgement.reasons:
            found[reason].append(chapter.names.short(where(run)))
    return [
        {"reason": reason, "runs": which(members, len(chapter.runs), "spec")}
        for reason, members in found.items()
    ]


# -- every run -----------------------------------------------------------------------------


def run_rows(
    chapters: Sequence[Chapter], same: Mapping[int, Results], links: Links
) -> list[dict[str, Any]]:
    """Every spec of the store with its repeats: what it came to and where it lies."""
    rows = []
    for i, chapter in enumerate(chapters):
        for run, judgement in chapter.every:
            rows.append(
                {
                    "key": run.key,
                    "name": (f"{chapter.data}: " if len(chapters) > 1 else "")
                    + chapter.names.short(where(run)),
                    "verdict": str(judgement.overall or NO_VERDICT),
                    "repeats": [
                        {
                            "index": repeat.index,
                            "name": repeat.name,
                            "result": same[i].of(repeat),
                            "started": repeat.manifest.started[:16].replace("T", " "),
                            "n_objects": repeat.manifest.n_objects,
                            "ap50": repeat.manifest.ap50,
                            "links": links.of(repeat),
                        }
                        for repeat in run.repeats
                    ],
                }
            )
    return rows


def _run_file(chapter: Chapter, same: Results) -> list[dict[str, Any]]:
    facts = chapter.names.facts
    return [
        {
            "run": repeat.name,
            **{name: facts[where(run)][name] for name in ("machine", "version", *PARAMETERS)},
            "masks": same.masks[repeat.name],
            "network": same.networks.get(repeat.name, ""),
            "verdict": judgement.overall or NO_VERDICT,
            "cells": repeat.manifest.n_objects,
            "weights": repeat.manifest.weights.digest if repeat.manifest.weights else "",
        }
        for run, judgement in chapter.runs
        for repeat in run.repeats
    ]


def unfolded(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the list of runs is short enough to stand open."""
    return sum(len(row["repeats"]) for row in rows) <= _MOST_OPEN


def failure_rows(chapters: Sequence[Chapter], failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """Repeats that ended without a result, and why."""
    names = {one.place: c.names.short(one.place) for c in chapters for one in c.failures}
    rows = []
    for failure in failures:
        name = names.get(failure.place)
        if name is None and failure.spec is not None:
            spec = failure.spec
            name = f"{spec.task} {spec.data}, {spec.profile}, {spec.held}, seed {spec.seed}"
        rows.append(
            {
                "key": failure.key,
                "machine": failure.machine,
                "repeat": failure.repeat,
                "name": name or "",
                "reason": failure.reason,
            }
        )
    return rows
