"""Arguments of ``CellposeModel.eval`` that some images allow and others do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cellrepro.model.cellpose_generation import FLOW_STEPS, NETWORK_DIAMETER
from samebits.errors import BadInput
from samebits.words import amount

_MOST_PIXELS = 2**31 - 1
"""Pixels in a resized plane: OpenCV counts them in 32 bits."""


def refuse_impossible(
    shape: tuple[int, ...],
    options: Mapping[str, Any],
    *,
    stack: bool = False,
    name: str = "",
    n_channels: int | None = None,
) -> None:
    """Refuse what ends in another library's error in Cellpose 4.2.1.1, or in an empty result."""
    who = name or "the image"
    planes = shape[0] if stack else 1
    height, width = shape[stack : stack + 2]
    _refuse_diameter(who, (planes, height, width), options)
    n_scaled = n_channels or (shape[-1] if len(shape) == 3 + stack else 1)
    lowhigh = (options.get("normalize") or {}).get("lowhigh")
    if lowhigh is not None and isinstance(lowhigh[0], tuple) and len(lowhigh) != n_scaled:
        raise BadInput(
            f"normalize.lowhigh has {amount(len(lowhigh), 'pair')}, and of {who} the network is "
            f"given {amount(n_scaled, 'channel')}: give one pair for all of them, or one for each"
        )


def _refuse_diameter(who: str, size: tuple[int, int, int], options: Mapping[str, Any]) -> None:
    """Refuse a diameter by which an image cannot be resized."""
    planes, height, width = size
    diameter = options.get("diameter")
    if diameter is None:
        return
    scale = NETWORK_DIAMETER / diameter
    resized = f"{who}, {height} x {width} pixels, is resized by {NETWORK_DIAMETER} / diameter"
    shortest = min(height, width)
    if int(shortest * scale) < 1:
        raise BadInput(
            f"diameter is {diameter:g}: {resized}, and nothing of it would be left; give "
            f"{NETWORK_DIAMETER * shortest} or less, the diameter of a cell in pixels"
        )
    depth_scale = scale * (options.get("anisotropy") or 1)
    if options.get("do_3D") and int(planes * depth_scale) < 1:
        raise BadInput(
            f"diameter is {diameter:g}: of the {planes} planes of {who}, which are resized by "
            f"{NETWORK_DIAMETER} / diameter x anisotropy, none would be left; give a smaller "
            "diameter, or a larger anisotropy"
        )
    if height * scale * width * scale > _MOST_PIXELS:
        least = NETWORK_DIAMETER * (height * width / _MOST_PIXELS) ** 0.5
        raise BadInput(
            f"diameter is {diameter:g}: {resized} to more pixels than OpenCV can count; give "
            f"{least:.2g} or more"
        )
    steps_follow_diameter = options.get("niter") is None and options.get("resample", True)
    if steps_follow_diameter and int(FLOW_STEPS / scale) < 1:
        raise BadInput(
            f"diameter is {diameter:g}: Cellpose would follow the flows for {FLOW_STEPS} x "
            f"diameter / {NETWORK_DIAMETER}, less than one step, and find nothing; give "
            f"{NETWORK_DIAMETER / FLOW_STEPS} or more, or niter"
        )
