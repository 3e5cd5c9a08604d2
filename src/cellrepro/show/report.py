"""The cross-device report: one page over everything a store holds, for people.

The page shows what `cellrepro.show.findings` has to say about the store, with figures; only the
weights are compared here, as far as they differ.
"""

from __future__ import annotations

import base64
import errno
import itertools
import math
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.runs import Judgement
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import Similarity, WeightsComparison, compare_weights, similarity
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.record.manifest import Manifest
from cellrepro.record.store import Repeat, Store
from cellrepro.show import plots
from cellrepro.show.findings import (
    AXES,
    PARAMETERS,
    Axis,
    Chapter,
    Failure,
    Findings,
    Pair,
    find,
    said,
    sort_key,
)
from cellrepro.show.words import amount, grouped, ppm_text

NO_VERDICT = "no verdict"
"""Stands where a verdict would, for a spec that was carried out once."""

GLOSSARY = (
    ("spec", "what was asked for: data, model, seed, epochs, profile, mode"),
    ("repeat", "the same spec carried out again, in a process of its own"),
    ("profile", "device, threads and instruction set that a run was given"),
    ("fast", "the mode that fixes nothing but the seeds"),
    ("warn", "the mode that asks for deterministic operations and warns where there is none"),
    ("strict", "the mode that allows deterministic operations only"),
    ("bit-identical", "equal to the last binary digit; written “identical” in the tables"),
    ("same-objects", "the same outlines under other object numbers"),
    ("different", "at least one pixel or one parameter differs"),
    ("vacuous", "nothing was trained or found, so equality would prove nothing"),
    ("ppm", "parts per million: differing pixels among a million pixels"),
    ("AP@0.5", "average precision: objects found right, divided by all objects, found or true; "
     "right means that found and true overlap by half of their union or more"),
    ("lost, gained", "objects of the first masks without a match in the second, and the reverse; "
     "a match overlaps by half of the union or more"),
    ("L2 distance", "length of the difference between all weights of two networks"),
    ("digest", "a fingerprint of a file; equal digests mean equal content"),
)  # fmt: skip
"""Every word of the page that a biologist may not know, in one line each."""

_SINGULAR = {"repeats": "repeat", "profile": "profile", "mode": "mode"}
_EQUAL = (Verdict.IDENTICAL, Verdict.SAME_OBJECTS)
_MOST_NETWORKS = 24
_MOST_WORK = 1.5e9  # parameters compared for the similarity of all pairs: seconds, not hours
_MOST_WITH_TWO_DIGITS = 8
_MOST_OVERLAID = 4
_MOST_CURVES = 6
_MOST_LENGTHS = 2
_MOST_TENSORS = 12
_MOST_LINES = 80  # of a figure with a line per spec or repeat


@dataclass(frozen=True)
class Report:
    """The page that was written, and what it says in plain types.

    Attributes
    ----------
    html : Path
        The page.
    runs : list of dict
        Per spec ``key``, ``spec``, ``repeats`` (indices), ``verdict`` (None for one repeat),
        ``weights`` and ``masks`` (their verdicts), ``reasons``, ``images`` and ``ap50`` (mean
        average precision at IoU 0.5, or None).
    groups : list of dict
        Bit-equal results: ``{"weights": digest, "members": ["KEY/REPEAT", ...]}``, then the same
        with ``masks`` (one digest over all images, as numbered by Cellpose) and ``n_objects``.
    sentence : str
        The headline.
    """

    html: Path
    runs: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    sentence: str


def write_report(store: Store | str | Path, *, html: str | Path | None = None) -> Report:
    """Write the report over everything in a store as one self-contained HTML file.

    Parameters
    ----------
    store : Store, str or Path
        Only read, but for the report's own folder.
    html : str or Path, optional
        Where to write; ``report/index.html`` in the store by default. It appears whole or not
        at all.

    Returns
    -------
    Report

    Raises
    ------
    BadInput
        If the store holds no finished run, one of its files is missing or damaged, or the page
        cannot be written.
    NotPossibleHere
        If the disk is full.
    """
    store = store if isinstance(store, Store) else Store(store)
    found = find(store)
    target = Path(html) if html is not None else store.root / "report" / "index.html"
    _write_whole(target, _page(found))
    return Report(target, found.runs, found.groups, found.sentence)


# -- the page ------------------------------------------------------------------------------


def _page(found: Findings) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cellrepro import __version__

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    chapters = found.chapters
    repeats = [(chapter, repeat) for chapter in chapters for repeat in chapter.repeats]
    return environment.get_template("report.html.j2").render(
        sentence=found.sentence,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        n_repeats=len(repeats),
        glossary=GLOSSARY,
        signs=plots.VERDICT_SIGNS,
        colours=plots.VERDICT_COLOURS,
        chapters=[_chapter_view(chapter, alone=len(chapters) == 1) for chapter in chapters],
        failures=_failure_rows(chapters, found.failures),
        warnings=_warning_rows(repeats),
        environment=_environment_view(repeats),
    )


def _chapter_view(chapter: Chapter, *, alone: bool) -> dict[str, Any]:
    return {
        "title": "" if alone else chapter.title,
        "data": chapter.data,
        "data_digest": chapter.data_digest,
        "n_images": chapter.n_images,
        "part": chapter.repeats[0].manifest.data.segmented,
        "same": _said_of_all(chapter),
        "matrix": _matrix(chapter),
        "reasons": _reason_rows(chapter),
        "usual": ", ".join(said(name, value) for name, value in chapter.names.usual.items()),
        "beside_seeds": _beside_seeds(chapter),
        "axes": [_axis_view(chapter, axis) for axis in chapter.axes],
        "n_runs": len(chapter.runs),
        "truth": _truth_view(chapter),
        "weights": _weights_view(chapter),
        "time": _time_view(chapter),
    }


def _said_of_all(chapter: Chapter) -> str:
    """What every spec has in common, in one line."""
    names = chapter.names
    facts = next(iter(names.facts.values()))
    fields = [f for f in PARAMETERS if f not in names.varying and f != "ledger"]
    if chapter.task == "segment":
        fields = [f for f in fields if f in ("model", "seed", "profile", "mode")]
    labels = {"profile": "profile ", "mode": "mode "}
    return ", ".join(labels.get(name, "") + said(name, facts[name]) for name in fields)


def _matrix(chapter: Chapter) -> dict[str, Any]:
    """Rows, columns and cells of the verdicts over repeats."""
    names = chapter.names
    keys = sorted(names.facts, key=names.order)
    columns = sorted(
        {names.column(key) for key in keys},
        key=lambda column: (sort_key("profile", column[0]), sort_key("mode", column[1])),
    )
    cells: dict[tuple[str, tuple[str, str]], list[dict[str, str]]] = defaultdict(list)
    judged = {run.key: judgement for run, judgement in chapter.runs}
    for key in keys:
        place = names.row(key), names.column(key)
        cells[place].append(_cell(key, judged.get(key), chapter.failures))
    profiles = [
        (name, len(list(group))) for name, group in itertools.groupby(c[0] for c in columns)
    ]
    rows = list(dict.fromkeys(names.row(key) for key in keys))
    return {
        "profiles": profiles,
        "columns": columns,
        "rows": [(row, [cells.get((row, column), []) for column in columns]) for row in rows],
    }


def _cell(key: str, judgement: Judgement | None, failures: Sequence[Failure]) -> dict[str, str]:
    n_failed = sum(failure.key == key for failure in failures)
    failed = f"{amount(n_failed, 'repeat')} failed" if n_failed else ""
    if judgement is None:
        return {"key": key, "verdict": "failed", "over": failed, "detail": ""}
    return {
        "key": key,
        "verdict": str(judgement.overall or NO_VERDICT),
        "over": amount(judgement.n_repeats, "repeat")
        + f", {amount(judgement.n_images, 'image')}"
        + (f"; {failed}" if failed else ""),
        "detail": ""
        if judgement.overall in (None, Verdict.IDENTICAL) or judgement.weights is None
        else f"weights {judgement.weights}, masks {judgement.masks}",
    }


def _reason_rows(chapter: Chapter) -> list[dict[str, str]]:
    """Why a run is vacuous, or why it has no verdict."""
    found: dict[str, list[str]] = defaultdict(list)
    for run, judgement in chapter.runs:
        for reason in judgement.reasons:
            found[reason].append(chapter.names.short(run.key))
    return [
        {"reason": reason, "runs": _which(members, len(chapter.runs), "run")}
        for reason, members in found.items()
    ]


def _which(members: Sequence[str], total: int, noun: str) -> str:
    if len(members) == total > 1:
        return f"all {total} {noun}s"
    shown = "; ".join(members[:6])
    return shown + (f"; and {len(members) - 6} more" if len(members) > 6 else "")


def _failure_rows(chapters: Sequence[Chapter], failures: Sequence[Failure]) -> list[dict[str, Any]]:
    names = {failure.key: c.names.short(failure.key) for c in chapters for failure in c.failures}
    rows = []
    for failure in failures:
        name = names.get(failure.key)
        if name is None and failure.spec is not None:
            spec = failure.spec
            name = f"{spec.task} {spec.data}, {spec.profile}, {spec.held}, seed {spec.seed}"
        rows.append(
            {
                "key": failure.key,
                "repeat": failure.repeat,
                "name": name or "",
                "reason": failure.reason,
            }
        )
    return rows


# Differences along an axis


def _beside_seeds(chapter: Chapter) -> str:
    """Whether what profiles, modes and repeats do matters, beside what seeds do.

    Only pairs with objects on both sides count: a network that finds nothing is no yardstick.
    """
    largest = {}
    for axis in chapter.axes:
        told = [
            pair.ppm
            for pair in axis.pairs
            if pair.a.manifest.n_objects and pair.b.manifest.n_objects
        ]
        if told and axis.name in AXES:
            largest[axis.name] = max(told)
    seeds = largest.pop("seed", None)
    if seeds is None or not largest:
        return ""
    others = ", ".join(
        f"another {_SINGULAR[name]} {ppm_text(ppm)}" for name, ppm in largest.items()
    )
    return f"Another seed changes up to {ppm_text(seeds)} of the pixels; {others}."


def _axis_view(chapter: Chapter, axis: Axis) -> dict[str, Any]:
    return {
        "title": axis.title,
        "summary": _axis_summary(axis),
        "left_out": axis.n_left_out,
        "rows": [] if axis.name == "repeats" else _axis_rows(axis),
        "pairs": axis.pairs,
        "picture": _worst_picture(chapter, axis),
        "ppm_text": ppm_text,
    }


def _axis_summary(axis: Axis) -> str:
    n, n_told = len(axis.pairs), len(axis.told)
    each = "each " if n > 1 else ""
    parts = [f"{amount(n, 'comparison')}, {each}over {amount(axis.pairs[0].n_images, 'image')}"]
    with_weights = [pair for pair in axis.pairs if pair.weights_equal is not None]
    if with_weights:
        n_equal = sum(bool(pair.weights_equal) for pair in with_weights)
        parts.append(f"the weights are bit-identical in {n_equal} of {len(with_weights)}")
    if n_told:
        text = f"the masks show the same objects in {n_told - len(axis.differing)} of {n_told}"
        if axis.differing:
            lost = max(pair.n_lost for pair in axis.pairs)
            gained = max(pair.n_gained for pair in axis.pairs)
            objects = f"with up to {amount(lost, 'object')} lost and {gained} gained"
            text += (
                f"; up to {ppm_text(axis.largest_ppm)} of the pixels differ, "
                f"{objects if lost or gained else 'but no object is lost or gained'}"
            )
        parts.append(text)
    if n_told < n:
        parts.append(f"{n - n_told} found no objects on either side and prove nothing")
    return "; ".join(parts) + "."


def _axis_rows(axis: Axis) -> list[dict[str, Any]]:
    """One row per pair of values, over all surroundings in which both occur."""
    by_names: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in axis.pairs:
        by_names[pair.name_a, pair.name_b].append(pair)
    rows = []
    for (name_a, name_b), pairs in by_names.items():
        told = [pair for pair in pairs if pair.verdict != Verdict.VACUOUS]
        weighed = [pair.weights_equal for pair in pairs if pair.weights_equal is not None]
        scores = [abs(a - b) for a, b in map(_scores_of, pairs) if a is not None and b is not None]
        rows.append(
            {
                "a": name_a,
                "b": name_b,
                "n": len(pairs),
                "verdict": str(combine(pair.verdict for pair in told)),
                "weights": f"{sum(weighed)} of {len(weighed)}" if weighed else "–",
                "masks": f"{sum(p.verdict in _EQUAL for p in told)} of {len(told)}"
                if told
                else "–",
                "ppm": ppm_text(max(pair.ppm for pair in pairs)) if told else "–",
                "lost": max(pair.n_lost for pair in pairs) if told else "–",
                "gained": max(pair.n_gained for pair in pairs) if told else "–",
                "score": _score_text(max(scores)) if scores else "–",
            }
        )
    return rows


def _score_text(difference: float) -> str:
    return "0" if difference == 0 else f"{difference:.2g}"


def _scores_of(pair: Pair) -> tuple[float | None, float | None]:
    return pair.a.manifest.ap50, pair.b.manifest.ap50


def _worst_picture(chapter: Chapter, axis: Axis) -> dict[str, str] | None:
    if axis.name not in AXES or not axis.differing:
        return None
    pair = axis.worst
    image, ppm = pair.worst
    picture = plots.difference(
        chapter.store.image(chapter.data_digest, image),
        pair.a.masks(image),
        pair.b.masks(image),
        name_a=pair.name_a,
        name_b=pair.name_b,
    )
    where = f" ({pair.context})" if pair.context else ""
    return _figure(
        picture,
        alt=f"Masks of {image}: {pair.name_a}, {pair.name_b}, and a map of where they differ",
        caption=f"The image on which {axis.title} differ most: {image}, {pair.name_a} against "
        f"{pair.name_b}{where}. {ppm_text(ppm)} of its pixels differ. Chosen from "
        f"{amount(len(axis.pairs), 'comparison')} over {amount(pair.n_images, 'image')} each. "
        "Where few pixels differ, they are drawn larger than they are.",
    )


# Ground truth


def _truth_view(chapter: Chapter) -> dict[str, Any] | None:
    scored = [
        (run, repeat) for run, _ in chapter.runs for repeat in run.repeats
        if repeat.manifest.ap50 is not None
    ]  # fmt: skip
    if not scored:
        return None
    names = chapter.names
    with_mode = "mode" in names.varying
    rows = [
        (
            names.row(run.key) + (f", {names.facts[run.key]['mode']}" if with_mode else ""),
            names.facts[run.key]["profile"],
            float(repeat.manifest.ap50 or 0.0),
        )
        for run, repeat in scored
    ]
    lines = list(dict.fromkeys(row[0] for row in rows))[:_MOST_LINES]
    n_images = sum(r.ap50 is not None for r in scored[0][1].manifest.masks.values())
    per_image = [
        (record.ap50, name, repeat)
        for _, repeat in scored
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    best = max(per_image, key=lambda entry: entry[0])
    worst = min(per_image, key=lambda entry: entry[0])
    over = f"of {amount(len(per_image), 'result')} (images times repeats)"
    chosen = [(f"The best by AP@0.5 {over}", best), (f"The worst by AP@0.5 {over}", worst)]
    if best[0] == worst[0]:
        chosen = [(f"All scores are equal; the first {over}", best)]
    return {
        "scores": _figure(
            plots.scores([row for row in rows if row[0] in lines]),
            alt="Average precision of every repeat, a point each",
            caption=f"AP@0.5 of {amount(len(rows), 'repeat')} of "
            f"{amount(len(chapter.runs), 'spec')}, each the mean over "
            f"{amount(n_images, 'image')} with ground truth.",
        ),
        "pictures": [
            _truth_picture(chapter, what, name, repeat) for what, (_, name, repeat) in chosen
        ],
    }


def _truth_picture(chapter: Chapter, what: str, name: str, repeat: Repeat) -> dict[str, str]:
    repeat.masks(name)  # says what to do if the file is gone
    return _figure(
        plots.masks_beside_truth(chapter.store, repeat, names=[name]),
        alt=f"{name}: the image, the ground truth and the objects found",
        caption=f"{what}: {name}, by {chapter.label(repeat)}.",
    )


# Weights


def _weights_view(chapter: Chapter) -> dict[str, Any] | None:
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.weights is not None and repeat.weights is not None:
            groups[repeat.manifest.weights.digest].append(repeat)
    if not groups:
        return None
    n_missing = sum(r.manifest.weights is not None and r.weights is None for r in chapter.repeats)
    n_parameters = max(members[0].manifest.model.n_parameters for members in groups.values())
    numbers = {digest: number for number, digest in enumerate(groups, start=1)}
    names = {digest: _network_name(chapter, numbers[digest], groups[digest]) for digest in groups}
    chosen = _chosen_networks(groups, n_parameters)
    first = [groups[digest][0] for digest in chosen]
    view: dict[str, Any] = {
        "n": len(groups),
        "n_repeats": sum(len(members) for members in groups.values()),
        "n_missing": n_missing,
        "n_parameters": grouped(n_parameters),
        "n_shown": len(chosen),
        "groups": [
            {
                "number": numbers[digest],
                "digest": digest,
                "members": [chapter.label(member) for member in members],
            }
            for digest, members in groups.items()
        ],
        "curves": _curves(chapter),
        "matrices": [],
        "pair": None,
        "distributions": None,
    }
    overlaid = list(range(min(len(chosen), _MOST_OVERLAID)))
    if len(chosen) > 1:
        table = similarity([_weights(repeat) for repeat in first], digests=chosen)
        view["matrices"] = _matrices(
            table,
            [names[digest] for digest in chosen],
            [str(numbers[digest]) for digest in chosen],
        )
        far = _most_distant(table)
        if far is not None:
            labels = [names[chosen[i]] for i in far]
            view["pair"] = _pair_view(_weights(first[far[0]]), _weights(first[far[1]]), labels)
            overlaid = [*far, *(i for i in overlaid if i not in far)][: len(overlaid)]
    overlaid.sort()
    view["distributions"] = _figure(
        plots.weight_distributions({names[chosen[i]]: _weights(first[i]) for i in overlaid}),
        alt="Histograms of the weights by part of the network",
        caption=f"How the weights of {len(overlaid)} of {amount(len(groups), 'different network')} "
        "are spread, by part of the network. Lines on top of each other are equal.",
    )
    return view


def _weights(repeat: Repeat) -> Path:
    assert repeat.weights is not None  # only such repeats are in a group
    return repeat.weights


def _network_name(chapter: Chapter, number: int, members: Sequence[Repeat]) -> str:
    key = members[0].manifest.key
    own = next(run for run, _ in chapter.runs if run.key == key)
    alone = len({r.manifest.weights.digest for r in own.repeats if r.manifest.weights}) == 1
    name = chapter.names.short(key) if alone else chapter.label(members[0])
    n_others = len({member.manifest.key for member in members}) - 1
    return f"{number}: {name}" + (f" (and {amount(n_others, 'other spec')})" if n_others else "")


def _chosen_networks(groups: Mapping[str, Sequence[Repeat]], n_parameters: int) -> list[str]:
    """As many different networks as can be compared in seconds; one of each spec first."""
    most = _MOST_NETWORKS
    while most > 2 and most * (most - 1) / 2 * n_parameters > _MOST_WORK:
        most -= 1
    order: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for digest, members in groups.items():
        order[digest] = seen[members[0].manifest.key]
        seen[members[0].manifest.key] += 1
    kept = set(sorted(groups, key=lambda digest: order[digest])[:most])
    return [digest for digest in groups if digest in kept]


def _matrices(
    table: Similarity, labels: Sequence[str], columns: Sequence[str]
) -> list[dict[str, str]]:
    fmt = ".1e" if len(labels) <= _MOST_WITH_TWO_DIGITS else ".0e"
    over = f"{amount(len(labels), 'different network')}, every one against every other"
    kinds = (
        ("L2 distance", table.l2, "0 is equal."),
        (
            "1 − cosine similarity",
            np.where(np.isnan(table.cosine), np.nan, np.maximum(1 - table.cosine, 0)),
            "0 is the same direction; below 1e-15 it is rounding.",
        ),
        ("largest difference of one parameter", table.max_abs, "0 is equal."),
    )
    return [
        _figure(
            plots.similarity(matrix, labels, title=title, log=True, fmt=fmt, columns=columns),
            alt=f"Table of the {title} between networks",
            caption=f"{title[0].upper()}{title[1:]} of {over}. {note} Dark is close.",
        )
        for title, matrix, note in kinds
    ]


def _most_distant(table: Similarity) -> tuple[int, int] | None:
    distances = np.triu(np.nan_to_num(table.l2, nan=-1.0), 1)
    if distances.max() <= 0:
        return None
    a, b = np.unravel_index(int(distances.argmax()), distances.shape)
    return int(a), int(b)


def _pair_view(a: Path, b: Path, labels: Sequence[str]) -> dict[str, Any]:
    result = compare_weights(a, b)
    differing = sorted(
        (row for row in result.per_tensor if row.n_differing),
        key=lambda row: -math.inf if math.isnan(row.relative_l2) else -row.relative_l2,
    )
    return {
        "a": labels[0],
        "b": labels[1],
        "text": _pair_text(result),
        "rows": differing[:_MOST_TENSORS],
        "n_differing": len(differing),
        "picture": _figure(
            plots.parameter_differences(result, n=_MOST_TENSORS),
            alt="Bars: the tensors of two networks that differ most",
            caption=f"The two most distant networks, {labels[0]} and {labels[1]}: the tensors that "
            f"differ most, of {amount(result.n_tensors, 'tensor')}.",
        ),
    }


def _pair_text(result: WeightsComparison) -> str:
    return (
        f"{grouped(result.n_differing)} of {grouped(result.n_parameters)} parameters "
        f"differ ({result.n_differing / result.n_parameters:.1%}); L2 distance {result.l2:.3g} "
        f"(relative {result.relative_l2:.3g}), cosine {result.cosine:.9f}, largest difference "
        f"{result.max_abs:.3g} in {result.max_abs_name}."
    )


def _curves(chapter: Chapter) -> list[dict[str, str]]:
    """Training losses, trainings of equal length together."""
    by_length: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.training is not None:
            by_length[len(repeat.manifest.training.train_losses)].append(repeat)
    most_first = sorted(by_length, key=lambda length: -len(by_length[length]))
    return [_curve(chapter, by_length[length]) for length in most_first[:_MOST_LENGTHS]]


def _curve(chapter: Chapter, trained: Sequence[Repeat]) -> dict[str, str]:
    """As many repeats as make no more curves than can be told apart."""
    seen: set[str] = set()
    kept = []
    for repeat in trained:
        assert repeat.manifest.training is not None
        course = repeat.manifest.training.model_dump_json()
        if course in seen or len(seen) < _MOST_CURVES:
            seen.add(course)
            kept.append(repeat)
    left_out = len(trained) - len(kept)
    return _figure(
        plots.training_curves(kept, labels=[chapter.label(repeat) for repeat in kept]),
        alt="Training loss and learning rate of every epoch",
        caption=f"Loss and learning rate per epoch of {amount(len(kept), 'repeat')}. Repeats that "
        "agree to the last digit share one line."
        + (f" {amount(left_out, 'repeat')} with further curves left out." if left_out else ""),
    )


# Time


def _time_view(chapter: Chapter) -> dict[str, Any]:
    rows = []
    for run, _ in chapter.runs:
        phases = dict.fromkeys(phase for r in run.repeats for phase in r.manifest.seconds)
        mean = {
            phase: sum(r.manifest.seconds.get(phase, 0.0) for r in run.repeats) / len(run.repeats)
            for phase in phases
        }
        rows.append((chapter.names.short(run.key), mean))
    n = len(chapter.repeats)
    pictures = [
        _figure(
            plots.times(rows[:_MOST_LINES]),
            alt="Seconds of every phase, a bar per spec",
            caption=f"Seconds per phase of {_first(len(rows), 'spec')}, the mean over its repeats "
            f"({amount(n, 'repeat')} in all). Runs that shared a machine slow each other down.",
        )
    ]
    if chapter.task == "segment":
        drawn = chapter.repeats[:_MOST_LINES]
        labels = [chapter.label(repeat) for repeat in drawn]
        pictures.append(
            _figure(
                plots.inference_times(drawn, labels=labels),
                alt="Seconds that each image took, a line of points per repeat",
                caption=f"Seconds to segment each of {amount(chapter.n_images, 'image')}, in "
                f"{_first(n, 'repeat')}.",
            )
        )
    return {"pictures": pictures}


def _first(n: int, noun: str) -> str:
    """How many of n lines are drawn."""
    return amount(n, noun) if n <= _MOST_LINES else f"the first {_MOST_LINES} of {n} {noun}s"


# Warnings and environment


def _warning_rows(repeats: Sequence[tuple[Chapter, Repeat]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for chapter, repeat in repeats:
        for record in repeat.manifest.warnings:
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
            "runs": _which(list(row["runs"].values()), len(repeats), "repeat"),
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


def _environment_view(repeats: Sequence[tuple[Chapter, Repeat]]) -> dict[str, Any]:
    """What differs between the surroundings of the repeats, side by side, and what does not."""
    surroundings = [_surroundings(repeat.manifest) for _, repeat in repeats]
    fields = list(dict.fromkeys(name for one in surroundings for name in one))
    values = {name: [one.get(name, "–") for one in surroundings] for name in fields}
    differing = [name for name in fields if len(set(values[name])) > 1]
    members: dict[tuple[str, ...], list[tuple[Chapter, Repeat]]] = defaultdict(list)
    for i, entry in enumerate(repeats):
        members[tuple(values[name][i] for name in differing)].append(entry)
    columns = [
        {
            "name": "; ".join(
                dict.fromkeys(_setting(repeat, chapter) for chapter, repeat in group)
            ),
            "n": len(group),
        }
        for group in members.values()
    ]
    return {
        "n": len(members),
        "columns": columns,
        "differing": [
            {"name": name, "values": [column[i] for column in members]}
            for i, name in enumerate(differing)
        ],
        "equal": [
            {"name": name, "value": values[name][0]} for name in fields if name not in differing
        ],
    }


def _setting(repeat: Repeat, chapter: Chapter) -> str:
    return ", ".join(chapter.names.column(repeat.manifest.key))


def _surroundings(manifest: Manifest) -> dict[str, str]:
    host = dict(manifest.host)
    memory = host.pop("memory", None)
    if isinstance(memory, int):
        host["memory"] = f"{memory / 2**30:.1f} GiB"
    host["gpus"] = ", ".join(_gpu_text(gpu) for gpu in host.pop("gpus", ())) or "none"
    flat: dict[str, Any] = {
        "device": manifest.device,
        "threads": manifest.threads,
        "instruction set in use": manifest.cpu_capability,
        "numeric class": (manifest.numeric_class or {}).get("name"),
        **{f"host: {name}": value for name, value in host.items()},
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


# -- files ---------------------------------------------------------------------------------


def _figure(picture: plots.Picture, *, alt: str, caption: str) -> dict[str, str]:
    with warnings.catch_warnings():
        # A file name in a script that the font lacks shows as boxes; the caption spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        content = base64.b64encode(picture.png(dpi=110)).decode("ascii")
    return {
        "source": f"data:image/png;base64,{content}",
        "alt": alt,
        "caption": caption,
        "width": str(round(picture.get_figwidth() * 100)),
    }


def _write_whole(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".report-") as scratch:
            part = Path(scratch, "index.html")
            part.write_text(text, encoding="utf-8")
            part.replace(target)  # same file system, so whole or absent
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NotPossibleHere(
                f"no space left for the report {target}: {error}; free some"
            ) from error
        raise BadInput(
            f"the report {target} cannot be written: {error}; expected a file in a folder you may "
            "write to"
        ) from error
