"""What the command line says of settings: which matters, and which made two results differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.text import amount, grouped, ppm_text, setting_in_words, share_text, some

if TYPE_CHECKING:
    from cellrepro.compare.straight_cuts import Cut
    from cellrepro.lab.audit_segmentation import SegmentationAudit
    from cellrepro.lab.explain import Explanation, Side
    from cellrepro.lab.sensitivity import Sensitivity
    from cellrepro.lab.tiles import TileDependence
    from cellrepro.show.answers import Answer


def sensitivity(found: Sensitivity, files: Mapping[str, Path]) -> Answer:
    """A line for each setting and value, what changes most first; then those without effect."""
    document = {
        "model": found.model,
        "base": found.base.told,
        "settings": [{**vars(one), **one.kinds} for one in found.variants],
        "images": found.n_images,
        "objects": found.n_objects,
        "ap50": found.ap50,
        "network_passes": found.n_passes,
        "figures": dict(files),
    }
    told = ", ".join(itertools.starmap(_words, found.base.told.items()))
    lines = [
        f"{amount(found.n_objects, 'cell')} in {amount(found.n_images, 'image')} with "
        f"{told or 'the usual settings'}; each setting by itself changes of these:"
    ]
    lines += [
        f"  {share_text(one.changed):>7}{_interval(one.interval)}  "
        f"{_words(one.name, one.value)}: {_kinds(one.kinds)}{_scores(found.ap50, one.ap50)}"
        for one in found.variants
        if one.changed or one.ppm
    ]
    idle = [_words(one.name, one.value) for one in found.variants if not one.ppm]
    if idle:
        lines.append(
            f"no pixel of {amount(found.n_objects, 'cell')} changes with {some(idle, len(idle))}"
        )
    lines += [f"{name}: {path}" for name, path in files.items()]
    return document, lines


def _words(name: str, value: Any) -> str:
    return setting_in_words(f"settings.{name}", value)


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ({share_text(interval[0])} to {share_text(interval[1])})"


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)


def _scores(usual: float | None, score: float | None) -> str:
    return "" if usual is None or score is None else f"; AP@0.5 {score:.3f} (usual {usual:.3f})"


def explanation(found: Explanation) -> Answer:
    """What differs, what each side records, the causes, what remains, and how to make each."""
    causes = found.replayed.causes if found.replayed else ()
    shares = {one.name: one.gap[0] / max(1, one.n_cells) for one in causes}
    document = {
        "a": _of_side(found.a),
        "b": _of_side(found.b),
        "changed": found.result.changed,
        "ppm": found.result.ppm,
        "settings": [{"name": n, "a": a, "b": b} for n, a, b in found.settings],
        "causes": [
            {"name": c.name, "a": c.a, "b": c.b, "changed": shares[c.name], "cells": c.gap[0]}
            for c in causes
        ],
        "unexplained": found.unexplained,
        "reproduced": {} if found.replayed is None else _reproduced(found),
        "commands": {side: {"shell": c[0], "python": c[1]} for side, c in found.commands.items()},
    }
    lines = [f"{letter}: {side.name} ({side.kind})" for letter, side in _sides(found)]
    if not found.result.n_differing:
        return document, [*lines, "the two outline the same objects: there is nothing to explain"]
    n = found.result.n_objects_a + found.result.n_objects_b
    lines.append(
        f"{found.result.n_unmatched} of {amount(n, 'cell')} of both sides have no counterpart in "
        f"the other ({share_text(found.result.changed)}), {ppm_text(found.result.ppm)} differ"
    )
    lines += [
        f"recorded: {name} {_value(a)} and {_value(b)}"
        for name, a, b in found.settings
        if a != b and "?" not in (a, b)
    ]
    for letter, _ in _sides(found):
        unknown = [row[0] for row in found.settings if row[1 + (letter == "B")] == "?"]
        if unknown:
            lines.append(f"nobody recorded of {letter}: {some(unknown, 6)}")
    lines += [
        f"cause: {c.name}, {_value(c.a)} in A and {_value(c.b)} in B{_searched(found, c.name)}; by "
        f"itself it leaves {c.gap[0]} of {amount(c.n_cells, 'cell')} without a counterpart"
        for c in causes
    ]
    lines.append(_remains(found))
    for letter, (line, python) in found.commands.items():
        lines += [f"{letter.upper()} again: {line}", f"         {python}"]
    return document, lines


def _sides(found: Explanation) -> list[tuple[str, Side]]:
    return [("A", found.a), ("B", found.b)]


def _of_side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "kind": side.kind, "recorded": side.recorded}


def _reproduced(found: Explanation) -> dict[str, Any]:
    assert found.replayed is not None
    fits = {"a": found.replayed.a, "b": found.replayed.b}
    return {n: {"cells_left": f.gap[0], "pixels_left": f.gap[1]} for n, f in fits.items()}


def _searched(found: Explanation, name: str) -> str:
    """That a value was found by trying, and is not what somebody recorded."""
    missing = [letter for letter, side in _sides(found) if name not in side.known]
    return f" (of {' and '.join(missing)} found by trying)" if missing else ""


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _remains(found: Explanation) -> str:
    """What no change explains, of which side it is, and what may be behind it."""
    replayed = found.replayed
    assert replayed is not None
    odd = [n for n, fit in (("A", replayed.a), ("B", replayed.b)) if fit.gap[0]]
    if not replayed.left[0] and not odd:
        rest = f", but for {grouped(replayed.left[1])} pixels" if replayed.left[1] else ""
        return f"unexplained: nothing{rest}"
    text = (
        f"unexplained: {replayed.left[0]} of {amount(replayed.n_cells, 'cell')} "
        f"({share_text(found.unexplained)})"
    )
    if odd:
        text += f"; {' and '.join(odd)} could not be made again with anything that was tried"
    recorded = {*found.a.recorded, *found.b.recorded}
    others = {name for name, a, b in found.settings if a != b and name in recorded}
    others -= {"filename", "model_path"}
    if others:
        text += f". What differs and cannot be varied here: {', '.join(sorted(others))}"
    return text


def audit(found: SegmentationAudit) -> Answer:
    """What flips, then what depends on the batch, and what that does to the cells."""
    document = {name: value for name, value in vars(found).items() if name != "spec"}
    document |= {"mode": found.spec.mode, "profile": found.spec.profile}
    document["ops"] = [{**asdict(row), "seen": row.seen} for row in found.ops]
    document["depends_on_batch"] = found.depends_on_batch
    lines = [
        f"{row.op} of {row.module or 'no module'}, {row.source or 'no line of Python'}: {row.seen}"
        for row in found.ops
    ]
    lines.append(found.sentence)
    if found.batch is None:
        return document, lines
    lines.append(f"batches of tiles: {found.batch.sentence()}")
    lines += [
        f"    {one.op} of {one.module or 'no module'}, {one.source or 'no line of Python'}: in "
        f"{amount(one.calls, 'call')}, by up to {one.max_abs:.2g}"
        for one in found.batch.ops
    ]
    lines += [
        f"{found.image}, {amount(found.n_tiles, 'tile')}, batch size {one.batch_size} beside 1: "
        f"{grouped(one.n_differing)} values of the network's output differ, {one.n_changed} of "
        f"{amount(one.n_cells, 'cell')} without a counterpart"
        for one in found.batches[1:]
    ]
    return document, lines


def tiles(found: TileDependence) -> Answer:
    """Of each image the cells that depend on tiles, straight ends at their borders, and cuts."""
    images = [
        {**{n: v for n, v in vars(one).items() if n != "masks"}, "stands_out": one.seam.stands_out}
        for one in found.images
    ]
    document = {
        "images": images,
        "cause": found.cause,
        "variants": found.variants,
        "vacuous": found.vacuous,
    }
    lines = [f"beside the whole image: {', '.join(found.variants)}; intensities scaled alike"]
    for one in found.images:
        at = one.seam
        lines.append(
            f"{one.name}: {one.n_dependent} of {amount(one.n_cells, 'cell')} depend on where tiles "
            f"lie, and {one.n_gained} are gained; {one.n_by_normalisation} change where a crop is "
            "scaled by itself; straight "
            f"ends: {at.n_at} at {amount(at.n_lines, 'tile border')}, {at.n_elsewhere} at "
            f"{amount(at.n_other_lines, 'other line')} (chance {at.chance:.2g})"
        )
        lines += _cuts(one.cuts)
    if found.vacuous:
        lines.append("vacuous: no cell was found in any image, so none could depend on tiles")
    return document, [*lines, f"cause: {found.cause}"]


def cuts(name: str, found: Sequence[Cut], *, n_objects: int) -> Answer:
    """Straight cuts in one label image, of so many objects."""
    document = {"images": [{"name": name, "cuts": found}], "vacuous": not n_objects}
    if found:
        return document, [f"{name}:", *_cuts(found)]
    if not n_objects:
        return document, [f"{name}: vacuous: it holds no object, so none could be cut"]
    return document, [f"{name}: no row or column at which several cells end straight"]


def _cuts(found: Iterable[Cut]) -> list[str]:
    return [
        f"    straight cut at {one.axis} {one.at}: {amount(one.n_objects, 'straight end')} along "
        f"{amount(one.length, 'pixel')} (chance {one.chance:.2g})"
        for one in found
    ]
