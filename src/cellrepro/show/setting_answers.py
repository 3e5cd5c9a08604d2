"""What the command line says of settings: which matters, and which made two results differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.words import amount, grouped, ppm_text, setting_in_words, share_text, some

if TYPE_CHECKING:
    from cellrepro.audits.segmentation import SegmentationAudit
    from cellrepro.changes.explain import Explanation, Side
    from cellrepro.changes.search import Fit
    from cellrepro.changes.sensitivity import Sensitivity
    from cellrepro.changes.tiles import TileDependence
    from cellrepro.same.straight_cuts import Cut
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
        f"{told or 'the usual settings'}. Below, each setting by itself: the cells that have no "
        "counterpart (IoU 0.5), of those of both sides, the usual and the other one; "
        f"{_over(found)}; and what became of the cells, in the words of `compare`:"
    ]
    lines += [
        f"  {one.n_changed} of {one.n_cells} ({share_text(one.changed)}{_interval(one.interval)})  "
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


def _over(found: Sensitivity) -> str:
    """What the intervals are of."""
    by_image = any(one.interval_over == "images" for one in found.variants)
    if by_image:
        return "their 95 % interval over images (bootstrap)"
    return "their 95 % interval over cells (binomial, since images are fewer than three)"


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"; {share_text(interval[0])} to {share_text(interval[1])}"


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)


def _scores(usual: float | None, score: float | None) -> str:
    return "" if usual is None or score is None else f"; AP@0.5 {score:.3f} (usual {usual:.3f})"


def explanation(found: Explanation) -> Answer:
    """What differs, what each side records, the causes, what remains, and how to make each."""
    lines = [f"{letter}: {side.name} ({side.kind})" for letter, side in _sides(found)]
    lines += _parts(found)
    if found.result.n_differing:
        n = found.result.n_objects_a + found.result.n_objects_b
        lines.append(
            f"{found.result.n_unmatched} of {amount(n, 'cell')} of both sides have no counterpart "
            f"in the other ({share_text(found.result.changed)}), {ppm_text(found.result.ppm)} "
            "differ"
        )
        lines += _records(found)
        lines += _causes(found)
    elif found.part is None and not found.vacuous:
        lines.append("the two outline the same objects: there is nothing to explain")
    if found.vacuous:
        lines += _vacuous(found)
    for letter, commands in found.commands.items():
        if commands is not None:
            made = "again" if found.replayed is not None else "as recorded, which was not tried"
            lines += [
                f"{letter.upper()} {made}: {commands.shell}",
                f"         {commands.python}",
                f"         {commands.lab}",
            ]
    return _document(found), lines


def _document(found: Explanation) -> dict[str, Any]:
    causes = [
        {
            "name": one.name,
            "a": one.a,
            "b": one.b,
            "changed": one.gap[0] / max(1, one.n_cells),
            "cells": one.gap[0],
            "of_cells": one.n_cells,
        }
        for one in (found.replayed.causes if found.replayed else ())
    ]
    part = found.part
    if part is not None and found.replayed is None:  # masks that were cut, not made of a crop
        crop = (part.rows, part.columns)
        n_missing = part.n_outside + part.n_cut
        causes.append(
            {
                "name": "image.crop",
                "a": crop if part.of == "a" else None,
                "b": crop if part.of == "b" else None,
                "changed": n_missing / max(1, part.n_cells),
                "cells": n_missing,
                "of_cells": part.n_cells,
            }
        )
    return {
        "a": _of_side(found.a),
        "b": _of_side(found.b),
        "verdict": "vacuous" if found.vacuous else _verdict(found),
        "changed": found.result.changed,
        "ppm": found.result.ppm,
        "part": None if part is None else vars(part),
        "settings": [{"name": n, "a": a, "b": b} for n, a, b in found.settings],
        "causes": causes,
        "unexplained": found.unexplained,
        "reproduced": {} if found.replayed is None else _reproduced(found),
        "not_replayed": found.why_not_replayed or None,
        "commands": {
            side: None if one is None else vars(one) for side, one in found.commands.items()
        },
    }


def _verdict(found: Explanation) -> str:
    return "different" if found.differs else str(found.result.verdict)


def _parts(found: Explanation) -> list[str]:
    """Where one side shows a part of the image."""
    part = found.part
    if part is None:
        return []
    of = part.of.upper()
    whole = "B" if part.of == "a" else "A"
    lines = [
        f"{of} shows {share_text(part.share)} of the image: rows {part.rows[0]} to "
        f"{part.rows[1]} and columns {part.columns[0]} to {part.columns[1]} of {whole}. Of "
        f"{whole}'s {amount(part.n_cells, 'cell')} {part.n_outside} lie outside of it, and "
        f"{part.n_cut} are cut by its border, so that these differ for that alone"
    ]
    n = found.result.n_objects_a
    if found.result.n_differing:
        lines.append("what follows is about the part that both show:")
    elif n:
        lines.append(
            f"in the part that both show, {amount(n, 'cell')} or pieces of cells, every pixel is "
            f"the same: {of} is cut out of {whole}'s masks, and nothing else differs"
        )
    return lines


def _records(found: Explanation) -> list[str]:
    """What the two record, and of what they say nothing."""
    lines = [
        f"recorded: {name} {_value(a)} and {_value(b)}"
        for name, a, b in found.settings
        if a != b and "?" not in (a, b)
    ]
    for letter, _ in _sides(found):
        unknown = [row[0] for row in found.settings if row[1 + (letter == "B")] == "?"]
        if unknown:
            lines.append(f"nobody recorded of {letter}: {some(unknown, 6)}")
    return lines


def _causes(found: Explanation) -> list[str]:
    if found.replayed is None:
        return [found.why_not_replayed]
    lines = [_not_made(letter, fit) for letter, fit in _fits(found)]
    lines += [
        f"cause: {one.name}, {_value(one.a)} in A and {_value(one.b)} in B"
        f"{_searched(found, one.name)}; made alone in A's settings, this changes {one.gap[0]} of "
        f"{amount(one.n_cells, 'cell')} (those of A, and of A with it)"
        for one in found.replayed.causes
    ]
    if not found.vacuous:
        lines.append(_remains(found))
    return [line for line in lines if line]


def _fits(found: Explanation) -> list[tuple[str, Fit]]:
    assert found.replayed is not None
    return [("A", found.replayed.a), ("B", found.replayed.b)]


def _not_made(letter: str, fit: Fit) -> str:
    """How near a search came that found no way to make a side again; empty where it did."""
    if fit.found in ("made", "vacuous"):
        return ""
    changed = {name: value for name, value in fit.condition.items() if fit.start.get(name) != value}
    tried = f"{amount(fit.n_tried, 'setting')} tried"
    if fit.stopped:
        tried += ", when time was up (--minutes gives it more)"
    nearest = ", ".join(f"{name} {_value(value)}" for name, value in changed.items())
    if fit.gap[0] == fit.n_cells:
        return (
            f"how {letter} was made was not found: none of {tried} makes one of its "
            f"{amount(fit.n_target, 'cell')}, not even with another outline"
        )
    what = f"the nearest of {tried} is {nearest or 'what is recorded, or else usual'}; it"
    if fit.found == "in part":
        text = f"{letter} was found in part: {what}"
    else:
        text = f"how {letter} was made was not found: {what}"
    return (
        f"{text} makes {fit.n_exact} of {letter}'s {amount(fit.n_target, 'cell')} pixel for pixel, "
        f"and leaves {fit.gap[0]} of {amount(fit.n_cells, 'cell')}, {letter}'s and its own, "
        f"without a counterpart ({amount(fit.gap[1], 'pixel')} differ)"
    )


def _vacuous(found: Explanation) -> list[str]:
    if not found.a.n_cells and not found.b.n_cells:
        return ["vacuous: neither side has a cell, so there is nothing to explain"]
    lines = []
    for letter, fit in _fits(found):
        if fit.found != "vacuous":
            continue
        with_ = some([f"{name} {_value(value)}" for name, value in fit.empty_with], 8)
        lines.append(
            f"vacuous: {letter} has no cell. "
            + (
                f"Nothing is found with any of {with_}: this is no explanation, since masks "
                "without a cell do not tell one from the other"
                if fit.empty_with
                else f"None of {amount(fit.n_tried, 'setting')} tried finds nothing, either"
            )
        )
    return lines


def _sides(found: Explanation) -> list[tuple[str, Side]]:
    return [("A", found.a), ("B", found.b)]


def _of_side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "kind": side.kind, "recorded": side.recorded}


def _reproduced(found: Explanation) -> dict[str, Any]:
    return {
        letter.lower(): {
            "found": str(fit.found),
            "cells_left": fit.gap[0],
            "pixels_left": fit.gap[1],
            "of_cells": fit.n_cells,
            "exact": fit.n_exact,
            "tried": fit.n_tried,
            "stopped": fit.stopped,
            "nearest": fit.condition,
            "empty_with": [{"name": name, "value": value} for name, value in fit.empty_with],
        }
        for letter, fit in _fits(found)
    }


def _searched(found: Explanation, name: str) -> str:
    """That a value was found by trying, and is not what somebody recorded."""
    missing = [letter for letter, side in _sides(found) if name not in side.known]
    return f" (of {' and '.join(missing)} found by trying)" if missing else ""


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _remains(found: Explanation) -> str:
    """What no change explains, of what, and what may be behind it."""
    replayed = found.replayed
    assert replayed is not None
    n_left, n_pixels = replayed.left
    if not found.unexplained:
        rest = f", but for {amount(n_pixels, 'pixel')} of B" if n_pixels else ""
        return f"unexplained: nothing{rest}"
    text = (
        f"unexplained: {n_left} of {amount(replayed.n_cells, 'cell')} (those of B, and of A "
        f"{'with these changes' if replayed.causes else 'as it was made again'})"
    )
    if replayed.a.gap[0] and replayed.a.found != "made":
        text += (
            f", and of A itself {replayed.a.gap[0]} of {amount(replayed.a.n_cells, 'cell')} (A's, "
            "and those made again)"
        )
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
