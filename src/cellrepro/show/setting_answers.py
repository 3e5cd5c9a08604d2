"""What the command line says of settings: which matters, and which made two results differ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.text import amount, setting_in_words, share_text, some

if TYPE_CHECKING:
    from cellrepro.lab.sensitivity import Sensitivity
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
