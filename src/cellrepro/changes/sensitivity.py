"""Which setting matters on these images: each varied by itself, and what becomes of the cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.segmentation_settings import NAMES, Settings
from cellrepro.errors import BadInput
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.same.image_differences import ImageDifference, difference_of
from cellrepro.same.metrics import average_precision, compare_masks
from cellrepro.same.within_spread import FEWEST_IMAGES, draws

VALUES: Mapping[str, tuple[Any, ...]] = {
    "flow_threshold": (0.0, 0.2, 0.8),
    "cellprob_threshold": (-2.0, -1.0, 1.0, 2.0),
    "niter": (50, 1000),
    "min_size": (-1, 60),
    "max_size_fraction": (0.1, 1.0),
    "diameter": (15.0, 20.0, 45.0, 60.0),
    "augment": (True,),
    "tile_overlap": (0.05, 0.3, 0.5),
    "batch_size": (1, 32),
    "normalize.percentile": ((0.0, 100.0), (3.0, 97.0), (1.0, 99.9)),
    "normalize.sharpen": (4.0,),
    "normalize.smooth_radius": (2.0,),
    "normalize.tile_norm_blocksize": (100,),
    "normalize.normalize": (False,),
}
"""What each setting is varied to, unless others are given."""

_Z = 1.959963984540054  # of a normal distribution, 95 % lie within as many standard deviations

RECONSTRUCTION = ("flow_threshold", "cellprob_threshold", "niter", "min_size", "max_size_fraction")
"""Settings that the network's output does not depend on; flow3D_smooth is one of stacks."""


@dataclass(frozen=True)
class Variant:
    """One setting at one value, beside the usual settings, over all images."""

    name: str
    value: Any
    changed: float  # share of both sides' cells without a counterpart at IoU 0.5
    n_changed: int  # these cells
    n_cells: int  # of both sides
    interval: tuple[float, float] | None  # 95 %; none where there is no cell
    interval_over: str  # "images" (bootstrap), or "cells" (binomial) where images are fewer than 3
    kinds: Mapping[str, int]  # what became of the cells: kept, moved, lost, gained, split, merged
    n_objects: int
    ppm: float  # differing pixels per million
    ap50: float | None  # mean over images with a truth
    image: str  # that changes most


@dataclass(frozen=True)
class Example:
    """The image that a setting changes most."""

    name: str
    value: Any
    image: str
    pixels: np.ndarray = field(repr=False)
    usual: np.ndarray = field(repr=False)  # masks, uint32 (Y, X)
    masks: np.ndarray = field(repr=False)
    share: float = 0.0  # of its cells that changed


@dataclass(frozen=True)
class Sensitivity:
    """What every setting does to the cells of some images, what changes most first."""

    model: str
    base: Settings  # beside which each is varied
    variants: tuple[Variant, ...]
    examples: Mapping[str, Example]  # by setting; of those that change cells
    n_images: int
    n_objects: int  # with the usual settings
    ap50: float | None
    n_passes: int  # of the network, over all images


def sensitivity(
    data: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    model: str = defaults.MODEL,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: str = defaults.MODE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> Sensitivity:
    """Segment the images of a folder with each setting varied by itself, and compare the cells.

    Parameters
    ----------
    data : str or Path
        Folder of images; where there are masks, every variant is scored against them.
    settings : mapping, optional
        Beside which each is varied, ``{"diameter": 60}``; default Cellpose's own.
    vary : mapping, optional
        Values by setting, in the place of `VALUES`; settings that it does not name stay as they
        are.
    model, seed, profile, mode, store
        As for `cellrepro.segment`.
    quiet : bool
        Show no progress.

    Returns
    -------
    Sensitivity
        A setting that changes nothing is in it, too, with how many cells it did not change.
    """
    plan = plan_segmentation(
        SegmentationOptions(
            data=data,
            settings=settings,
            model=model,
            seed=seed,
            profile=profile,
            mode=mode,
            store=store,
        )
    )
    base = plan.spec.settings
    asked = _variants(base, vary)
    return in_child(
        partial(varied, request=plan.request, asked=asked),
        plan.request.setup,
        label="settings",
        steps=1 + plan.n_images,
        quiet=quiet,
    )


def _variants(base: Settings, vary: Mapping[str, Sequence[Any]] | None) -> list[tuple[str, Any]]:
    """Each setting with each value, those that share the usual pass of the network first."""
    unknown = [name for name in vary or () if name not in NAMES]
    for name in unknown:
        base.but(**{name: None})  # says what it is called
    found = []
    for name, values in (VALUES if vary is None else vary).items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise BadInput(f"vary.{name} is {values!r}; expected a list of values")
        for value in values:
            try:
                settings = base.but(**{name: value})
            except BadInput:
                if vary is not None:
                    raise
                continue  # it does nothing beside these settings
            one = (name, settings.flat[name])
            if settings != base and one not in found:  # 20 and 20.0 are one value
                found.append(one)
    return sorted(found, key=lambda one: one[0] not in RECONSTRUCTION)


def varied(child: Child, *, request: Request, asked: Sequence[tuple[str, Any]]) -> Sensitivity:
    """Inside the child: segment every image with every variant, and compare."""
    with child.prepared() as device:
        from cellrepro.determinism.seeds import generators_kept
        from cellrepro.model.inference import evaluator
        from cellrepro.model.network import build

        dtype = child.setup.profile.dtype
        network = build(request.model, seed=request.spec.seed, device=device, dtype=dtype)
        evaluate, base = evaluator(network, sharing=True), request.spec.settings
        images = segmented_part(read_images(request))
        found: dict[Any, dict[str, ImageDifference]] = {one: {} for one in asked}
        n_objects: Counter[Any] = Counter()
        scores: dict[Any, list[float]] = {None: [], **{one: [] for one in asked}}
        examples: dict[str, Example] = {}
        for image in images:
            with generators_kept():
                usual, *_ = evaluate(image.image, stack=image.stack, **base.arguments())
                for one in [None, *asked]:
                    settings = base if one is None else base.but(**dict([one]))
                    masks, *_ = evaluate(image.image, stack=image.stack, **settings.arguments())
                    n_objects[one] += int(np.count_nonzero(np.unique(masks)))
                    if image.masks is not None:
                        scores[one].append(float(average_precision(image.masks, masks)[0]))
                    if one is not None:
                        difference = difference_of(compare_masks(usual, masks))
                        found[one][image.name] = difference
                        example = Example(*one, image.name, image.image, usual, masks)
                        _keep_worst(examples, example, _share([difference]))
            child.tell("done", image.name)
    variants = [_variant(*one, found[one], n_objects[one], _mean(scores[one])) for one in asked]
    variants.sort(key=lambda one: (-one.changed, -one.ppm))
    return Sensitivity(
        request.spec.model,
        base,
        tuple(variants),
        {one.name: examples[one.name] for one in variants if examples[one.name].share},
        len(images),
        n_objects[None],
        _mean(scores[None]),
        evaluate.n_passes,
    )


def _keep_worst(examples: dict[str, Example], example: Example, share: float) -> None:
    other = examples.get(example.name)
    if other is None or share > other.share:
        examples[example.name] = replace(example, share=share)


def _share(differences: Iterable[ImageDifference]) -> float:
    """Of cells that changed; 0 where there are none."""
    parts = [one.part("changed") for one in differences]
    return sum(over for over, _ in parts) / max(1, sum(under for _, under in parts))


def _mean(scores: Sequence[float]) -> float | None:
    known = [score for score in scores if not math.isnan(score)]
    return float(np.mean(known)) if known else None


def _variant(
    name: str, value: Any, by_image: Mapping[str, ImageDifference], n_objects: int, ap50: Any
) -> Variant:
    differences = list(by_image.values())
    over, under = np.array([one.part("changed") for one in differences]).T
    interval, interval_over = _interval(over, under)
    kinds: Counter[str] = Counter()
    for one in differences:
        kinds.update(one.kinds)
    return Variant(
        name,
        value,
        _share(differences),
        int(over.sum()),
        int(under.sum()),
        interval,
        interval_over,
        kinds,
        n_objects,
        1e6 * sum(d.n_differing for d in differences) / sum(d.n_pixels for d in differences),
        ap50,
        max(by_image, key=lambda image: _share([by_image[image]])),
    )


def _interval(over: np.ndarray, under: np.ndarray) -> tuple[tuple[float, float] | None, str]:
    """The 95 % interval of a share, and over what it was taken.

    From three images on a percentile bootstrap over images, as in `cellrepro.same.seed_spread`;
    from fewer Wilson's for a binomial share (1927), as if each cell was drawn by itself. It counts
    half of both sides' cells, since a counterpart is two cells and one chance.
    """
    if np.count_nonzero(under) >= FEWEST_IMAGES:
        drawn = draws(len(under), 0)
        with np.errstate(invalid="ignore"):
            low, high = np.nanquantile((drawn @ over) / (drawn @ under), (0.025, 0.975))
        return (float(low), float(high)), "images"
    n = float(under.sum()) / 2
    if not n:
        return None, "cells"
    share = float(over.sum() / under.sum())
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low = max(0.0, middle - reach) if share else 0.0
    high = min(1.0, middle + reach) if share < 1 else 1.0
    return (low, high), "cells"
