"""Which setting matters: images segmented with each varied by itself, and their cells compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.comparison.image_differences import ImageDifference, difference_of
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.scores import average_precision
from cellrepro.comparison.within_spread import FEWEST_IMAGES, draws
from cellrepro.errors import BadInput
from cellrepro.explanation.sensitivity_result import Example, IntervalOver, Sensitivity, Variant
from cellrepro.images.folder import LabelledImage
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import print_note
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec.segmentation_settings import AFTER_NETWORK, NAMES, Settings
from cellrepro.store.store import Store

if TYPE_CHECKING:
    from cellrepro.model.evaluator import Evaluator

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
"""Values to which each setting is varied, unless others are given."""

_Z = 1.959963984540054  # standard deviations within which 95 % of a normal distribution lie


@dataclass(frozen=True)
class Variation:
    """One setting at one value, beside the base settings."""

    name: str
    value: Any

    def of(self, base: Settings) -> Settings:
        """Change this one of the base settings."""
        return base.replaced(**{self.name: self.value})


def sensitivity_of(
    options: SegmentationOptions,
    vary: Mapping[str, Sequence[Any]] | None = None,
    *,
    quiet: bool = False,
) -> Sensitivity:
    """Segment the images with each setting varied by itself, and compare the cells."""
    plan = plan_segmentation(options)
    variations = _variations(plan.spec.settings, vary)
    if not quiet:
        print_note(segmenting_announced(plan, Store(options.store), n_each=1 + len(variations)))
    return in_child(
        partial(varied, request=plan.request, variations=variations),
        plan.request.setup,
        label="settings",
        steps=1 + plan.n_images,
        quiet=quiet,
    )


def _variations(base: Settings, vary: Mapping[str, Sequence[Any]] | None) -> list[Variation]:
    """Every setting at every value, those that need no other pass of the network first."""
    for name in vary or ():
        if name not in NAMES:
            Variation(name, None).of(base)  # raises, with the nearest name
    variations: list[Variation] = []
    for name, values in (VALUES if vary is None else vary).items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise BadInput(f"vary.{name} is {values!r}; expected a list of values")
        for value in values:
            try:
                settings = Variation(name, value).of(base)
            except BadInput:
                if vary is not None:
                    raise
                continue  # it does nothing beside these settings
            variation = Variation(name, settings.by_name()[name])
            if settings != base and variation not in variations:  # 20 and 20.0 are one value
                variations.append(variation)
    return sorted(variations, key=lambda variation: variation.name not in AFTER_NETWORK)


# -- inside the child ------------------------------------------------------------------------


def varied(child: Child, *, request: Request, variations: Sequence[Variation]) -> Sensitivity:
    """Runs in a child process: segment every image with every variation, and compare."""
    with child.opened(request.model) as (network, _):
        from cellrepro.determinism.generator_states import generators_kept
        from cellrepro.model.evaluator import evaluator

        evaluate = evaluator(network, sharing=True)
        images = read_images(request).to_segment
        comparison = _VariedImages(evaluate, request.spec.settings, variations)
        for image in images:
            with generators_kept():
                comparison.add(image)
            child.tell("done", image.name)
    return comparison.sensitivity(
        model=request.spec.model, n_images=len(images), n_passes=evaluate.n_passes
    )


class _VariedImages:
    """Compares each image under the base settings with the same under every variation."""

    def __init__(
        self, evaluate: Evaluator, base: Settings, variations: Sequence[Variation]
    ) -> None:
        self._evaluate = evaluate
        self._base = base
        self._usual_tally = _Tally()
        self._tallies = [_VariationTally(variation) for variation in variations]
        self._examples: dict[str, Example] = {}

    def add(self, image: LabelledImage) -> None:
        """Segment an image with the base settings and every variation, and count its cells."""
        usual = self._segmented(image, self._base)
        self._usual_tally.add(usual, _score(image.masks, usual))
        for tally in self._tallies:
            masks = self._segmented(image, tally.variation.of(self._base))
            tally.add(masks, _score(image.masks, masks))
            difference = difference_of(compare_masks(usual, masks))
            tally.add_difference(image.name, difference)
            example = Example(
                name=tally.variation.name,
                value=tally.variation.value,
                image=image.name,
                pixels=image.image,
                usual=usual,
                masks=masks,
                share=_share_changed([difference]),
            )
            self._keep_if_worst(example)

    def _segmented(self, image: LabelledImage, settings: Settings) -> np.ndarray:
        output = self._evaluate(image.image, stack=image.stack, **settings.arguments())
        return output.masks

    def _keep_if_worst(self, example: Example) -> None:
        """Keep for each setting the image that it changes most, at any value."""
        worst = self._examples.get(example.name)
        if worst is None or example.share > worst.share:
            self._examples[example.name] = example

    def sensitivity(self, *, model: str, n_images: int, n_passes: int) -> Sensitivity:
        """Sum up over all images, the settings that change most first."""
        variants = [tally.variant() for tally in self._tallies]
        variants.sort(key=lambda variant: (-variant.changed, -variant.ppm))
        names = dict.fromkeys(variant.name for variant in variants)
        examples = {name: self._examples[name] for name in names}
        return Sensitivity(
            model=model,
            base=self._base.not_default(),
            settings=tuple(variants),
            images=n_images,
            objects=self._usual_tally.n_objects,
            ap50=self._usual_tally.ap50,
            network_passes=n_passes,
            examples={name: example for name, example in examples.items() if example.share},
        )


def _score(truth: np.ndarray | None, masks: np.ndarray) -> float | None:
    """Average precision at IoU 0.5 of one image; None where there is no truth."""
    return None if truth is None else float(average_precision(truth, masks)[0])


# -- counting --------------------------------------------------------------------------------


class _Tally:
    """Cells and scores under one set of settings, summed over images."""

    def __init__(self) -> None:
        self.n_objects = 0
        self._scores: list[float] = []

    def add(self, masks: np.ndarray, score: float | None) -> None:
        """Count the cells of one image; its score is None where there is no truth."""
        self.n_objects += int(np.count_nonzero(np.unique(masks)))
        if score is not None and not math.isnan(score):
            self._scores.append(score)

    @property
    def ap50(self) -> float | None:
        """Mean over the images with a truth."""
        return float(np.mean(self._scores)) if self._scores else None


class _VariationTally(_Tally):
    """The same for a variation, and its differences from the base settings."""

    def __init__(self, variation: Variation) -> None:
        super().__init__()
        self.variation = variation
        self._differences: dict[str, ImageDifference] = {}

    def add_difference(self, image: str, difference: ImageDifference) -> None:
        self._differences[image] = difference

    def variant(self) -> Variant:
        """Sum up over all images."""
        differences = list(self._differences.values())
        n_changed = np.array([difference.n_unmatched for difference in differences])
        n_cells = np.array([difference.n_objects for difference in differences])
        interval = _share_interval(n_changed, n_cells)
        kinds: Counter[str] = Counter()
        for difference in differences:
            kinds.update(difference.kinds)
        n_differing = sum(difference.n_differing for difference in differences)
        n_pixels = sum(difference.n_pixels for difference in differences)
        return Variant(
            name=self.variation.name,
            value=self.variation.value,
            changed=_share_changed(differences),
            n_changed=int(n_changed.sum()),
            n_cells=int(n_cells.sum()),
            interval=interval.limits,
            interval_over=interval.over,
            kinds=kinds,
            n_objects=self.n_objects,
            ppm=1e6 * n_differing / n_pixels,
            ap50=self.ap50,
            image=max(
                self._differences, key=lambda image: _share_changed([self._differences[image]])
            ),
        )


def _share_changed(differences: Iterable[ImageDifference]) -> float:
    """The share of cells without a counterpart; 0 where there is no cell."""
    over_images = list(differences)
    n_changed = sum(difference.n_unmatched for difference in over_images)
    n_cells = sum(difference.n_objects for difference in over_images)
    return n_changed / max(1, n_cells)


class _Interval(NamedTuple):
    """A 95 % interval of a share."""

    limits: tuple[float, float] | None
    """None where there is no cell."""
    over: IntervalOver


def _share_interval(n_changed: ArrayLike, n_cells: ArrayLike) -> _Interval:
    """The 95 % interval of the share of cells that changed.

    From three images on it is a percentile bootstrap over images, as in `seed_spread`; from fewer,
    Wilson's interval of a binomial share (1927), as if each cell were drawn by itself. That counts
    half of both sides' cells, since a cell and its counterpart are one trial.
    """
    changed = np.asarray(n_changed, float)
    cells = np.asarray(n_cells, float)
    if np.count_nonzero(cells) >= FEWEST_IMAGES:
        drawn = draws(len(cells), 0)
        with np.errstate(invalid="ignore"):
            low, high = np.nanquantile((drawn @ changed) / (drawn @ cells), (0.025, 0.975))
        return _Interval((float(low), float(high)), "images")
    n_trials = float(cells.sum()) / 2
    if not n_trials:
        return _Interval(None, "cells")
    return _Interval(_wilson(float(changed.sum() / cells.sum()), n_trials), "cells")


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share of n trials; exact at its ends."""
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low = max(0.0, middle - reach) if share else 0.0
    high = min(1.0, middle + reach) if share < 1 else 1.0
    return low, high
