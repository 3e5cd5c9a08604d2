"""Which setting matters: images segmented with each varied by itself, and their cells compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.comparison.changed_cells import resized_cells
from cellrepro.comparison.image_differences import difference_of
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.number_remarks import n_numbers
from cellrepro.comparison.object_changes import RESIZED_MEANS
from cellrepro.comparison.resampling import is_students_t
from cellrepro.comparison.scores import average_precision
from cellrepro.explanation.variations import (
    Example,
    Variant,
    Variation,
    VariedImage,
    mean_score,
    share_changed,
    variant_of,
)
from cellrepro.images.folder import LabelledImage
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec.segmentation_settings import AFTER_NETWORK, NAMES, Settings
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.words import share_text
from samebits.errors import BadInput
from samebits.results import Result, Row, table_lines
from samebits.words import amount, some

_BATCH_SIZE = "batch_size"
VALUES: Mapping[str, tuple[Any, ...]] = {
    "flow_threshold": (0.0, 0.2, 0.8),
    "cellprob_threshold": (-2.0, -1.0, 1.0, 2.0),
    "niter": (50, 1000),
    "min_size": (-1, 60),
    "max_size_fraction": (0.1, 1.0),
    "diameter": (15.0, 20.0, 45.0, 60.0),
    "augment": (True,),
    "tile_overlap": (0.05, 0.3, 0.5),
    _BATCH_SIZE: (1, 32),
    "normalize.percentile": ((0.0, 100.0), (3.0, 97.0), (1.0, 99.9)),
    "normalize.sharpen": (4.0,),
    "normalize.smooth_radius": (2.0,),
    "normalize.tile_norm_blocksize": (100,),
    "normalize.normalize": (False,),
}
"""Values to which each setting is varied, unless others are given."""

_MOST_BETTER = 3  # values with a better score that a sentence names


@dataclass(frozen=True, repr=False)
class Sensitivity(Result):
    """What every setting does to the cells of some images, what changes most first."""

    model: str
    """The network that segmented."""
    base: Mapping[str, object]
    """The settings beside which each is varied, where they are not the usual ones."""
    settings: tuple[Variant, ...]
    """Each setting at each value that it was given, what changes most cells first."""
    images: int
    """Number of images."""
    objects: int
    """Cells with the settings of ``base``."""
    ap50: float | None
    """Average precision at IoU 0.5 with the settings of ``base``, mean over images with a ground
    truth."""
    network_passes: int
    """How often the network was run, over all images."""
    examples: Mapping[str, Example] = field(repr=False)
    """The image that changes most, for each setting that changes cells."""
    figures: Mapping[str, Path] = field(default_factory=dict)
    """Pictures by setting."""

    def sentence(self) -> str:
        """Say which setting changes the largest share of cells, and how many values change none."""
        images = amount(self.images, "image")
        over = f"{amount(len(self.settings), 'value')} on {images}"
        if not any(variant.n_cells for variant in self.settings):
            return f"vacuous: no cell was found with any of {over}"
        strongest = self.settings[0]
        if not strongest.n_changed:
            return f"none of {over} leaves a cell without a match"
        return (
            f"of {amount(len(self.settings), 'value')} tried, {strongest.setting} changes most: "
            f"{share_text(strongest.changed)} of the cells of both results have no match, over "
            f"{images}"
        )

    @property
    def better_text(self) -> str:
        """Say with which values the cells agree better with the annotated ones; empty if none."""
        if self.ap50 is None:
            return ""
        scored = [(variant.ap50, variant) for variant in self.settings if variant.ap50 is not None]
        better = [each for each in scored if each[0] > self.ap50]
        if not better:
            return f"no value tried has a better score (AP@0.5 {self.ap50:.3f})"
        better.sort(key=lambda each: -each[0])
        listed = some([f"{variant.setting} ({ap50:.3f})" for ap50, variant in better], _MOST_BETTER)
        return (
            f"closer to the annotated cells (AP@0.5, usual {self.ap50:.3f}): {listed}; "
            f"{amount(self.images, 'image')} may be too few to rely on it"
        )

    def rows(self) -> list[Row]:
        """Give every value, those that change most cells first."""
        return [
            {
                "setting": variant.name,
                "value": variant.value,
                "cells without a match": share_text(variant.changed),
                "of cells": variant.n_cells,
                "cells": variant.n_objects,
                "AP50": "" if variant.ap50 is None else f"{variant.ap50:.3f}",
                "image that changes most": variant.image,
            }
            for variant in self.settings
        ]

    def lines(self) -> list[str]:
        """Say which setting changes most, what each does, and which change no pixel."""
        base = ", ".join(Variation(*item).setting for item in self.base.items())
        made = f"{amount(self.objects, 'cell')} with {base or 'the usual settings'}"
        scored = "" if self.ap50 is None else f", AP@0.5 {self.ap50:.3f}"
        lines = [f"{self.sentence()[:1].upper()}{self.sentence()[1:]}", f"{made}{scored}"]
        lines += filter(None, [self.better_text])
        shown = [variant for variant in self.settings if variant.changed or variant.ppm]
        with_interval = any(variant.telling_interval for variant in shown)
        rows = [variant.row(with_interval=with_interval) for variant in shown]
        lines += table_lines(rows, most=len(rows))
        if rows:
            lines.append(
                "  no match: cells of the usual result and of this one that the other lacks (IoU "
                f"of 0.5); {self.intervals_text}"
            )
        if any(variant.n_resized for variant in self.settings):
            lines.append(f"  of another size: {RESIZED_MEANS} than with the usual settings")
        if self.idle:
            lines.append(f"no pixel changes with {some(self.idle, len(self.idle))}")
        for name, path in self.figures.items():
            lines.append(f"picture of {name}: {path}")
        return lines

    @property
    def idle(self) -> list[str]:
        """Settings with a value that changes no pixel."""
        return [variant.setting for variant in self.settings if not variant.ppm]

    @property
    def intervals_text(self) -> str:
        """Say over what the intervals are, and which of them are not shown."""
        left_out = [one for one in self.settings if one.interval and not one.telling_interval]
        too_wide = "would span more than half of 0 to 100 %; more images make it narrower"
        if left_out and not any(one.telling_interval for one in self.settings):
            return f"no 95 % interval {self.interval_kind} is shown: each {too_wide}"
        of_some = f"; none is shown where it {too_wide}" if left_out else ""
        return f"95 % intervals {self.interval_kind}{of_some}"

    @property
    def interval_kind(self) -> str:
        """What the intervals are of, in words."""
        kinds = {variant.interval_over for variant in self.settings} - {None}
        over_images = f"over {amount(self.images, 'image')} (bootstrap)"
        if is_students_t(max(self.images, 2)):
            over_images = f"over {amount(self.images, 'image')} (Student's t: wide from so few)"
        if kinds == {"images"}:
            return over_images
        if "images" in kinds:
            return f"{over_images}, or over cells where fewer than three images have any"
        few = "images are fewer than three" if self.images < 3 else "few images have cells"
        return f"over cells (binomial, since {few})"


def sensitivity_of(
    options: SegmentationOptions,
    vary: Mapping[str, Sequence[Any]] | None = None,
    *,
    quiet: bool = False,
) -> Sensitivity:
    """Segment the images with each setting varied by itself, and compare the cells."""
    plan = plan_segmentation(options)
    variations = _variations(plan.spec, vary)
    store = Store(options.store)
    n_variations = len(variations)
    ways = f"with your settings, and with {amount(n_variations, 'other value')} of one of them"
    return in_planned_child(
        plan,
        partial(varied, request=plan.request, variations=variations),
        announced=partial(segmenting_announced, plan, store, n_each=1 + n_variations, ways=ways),
        label="settings",
        steps=plan.n_images,
        counted="images done",
        quiet=quiet,
    )


def _variations(spec: Spec, vary: Mapping[str, Sequence[Any]] | None) -> list[Variation]:
    """Every setting at every value, those that need no other pass of the network first."""
    base = spec.settings
    if spec.is_tile_by_tile and _BATCH_SIZE in (vary or ()):
        raise BadInput(
            f"{_BATCH_SIZE} changes nothing in mode {spec.mode}, in which the network sees one "
            "tile at a time; vary it with --mode fast"
        )
    for name in vary or ():
        if name not in NAMES:
            Variation(name, None).applied_to(base)  # raises, with the nearest name
    variations: list[Variation] = []
    for name, values in (VALUES if vary is None else vary).items():
        if spec.is_tile_by_tile and name == _BATCH_SIZE:  # equal masks would be no evidence
            continue
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise BadInput(
                f'vary.{name} is {values!r}; expected a list of values, as "diameter=[20,30,40]"'
            )
        for value in values:
            try:
                settings = Variation(name, value).applied_to(base)
            except BadInput:
                if vary is not None:
                    raise
                continue  # it does nothing beside these settings
            variation = Variation(name, settings.by_name()[name])
            if settings != base and variation not in variations:  # 20 and 20.0 are one value
                variations.append(variation)
    if not variations:
        given = ", ".join(f"{name}={list(values)}" for name, values in (vary or {}).items())
        raise BadInput(
            f"vary holds {given or 'nothing'}, which varies no setting; expected at least one "
            "value that differs from the one the images are segmented with, or no vary at all, for "
            f"the usual values of {len(VALUES)} settings"
        )
    return sorted(variations, key=lambda variation: variation.name not in AFTER_NETWORK)


# -- inside the child ------------------------------------------------------------------------


def varied(child: Child, *, request: Request, variations: Sequence[Variation]) -> Sensitivity:
    """Runs in a child process: segment every image with every variation, and compare."""
    base = request.spec.settings
    n_objects = 0
    usual_scores = []
    images_by_variation: list[list[VariedImage]] = [[] for _ in variations]
    worst: dict[str, Example] = {}
    with child.opened(request.model) as (network, _):
        from cellrepro.model.evaluator import evaluator
        from samebits.generator_states import generators_kept

        evaluate = evaluator(network, sharing=True)

        def segment(image: LabelledImage, settings: Settings) -> np.ndarray:
            return evaluate(image.image, stack=image.stack, **settings.arguments()).masks

        images = read_images(request).to_segment
        for image in images:
            with generators_kept():
                usual = segment(image, base)
                n_objects += n_numbers(usual)
                usual_scores.append(_score(image.masks, usual))
                for variation, so_far in zip(variations, images_by_variation, strict=True):
                    masks = segment(image, variation.applied_to(base))
                    one = _compared(image, usual, masks)
                    so_far.append(one)
                    share = share_changed([one.difference])
                    if variation.name not in worst or share > worst[variation.name].share:
                        worst[variation.name] = Example(
                            name=variation.name,
                            value=variation.value,
                            image=image.name,
                            pixels=image.image,
                            usual=usual,
                            masks=masks,
                            share=share,
                        )
            child.tell("done", image.name)
    variants = list(map(variant_of, variations, images_by_variation))
    variants.sort(key=lambda variant: (-variant.changed, -variant.ppm))
    names = dict.fromkeys(variant.name for variant in variants)
    return Sensitivity(
        model=request.spec.model,
        base=base.not_default(),
        settings=tuple(variants),
        images=len(images),
        objects=n_objects,
        ap50=mean_score(usual_scores),
        network_passes=evaluate.n_passes,
        examples={name: worst[name] for name in names if worst[name].share},
    )


def _compared(image: LabelledImage, usual: np.ndarray, masks: np.ndarray) -> VariedImage:
    result = compare_masks(usual, masks)
    return VariedImage(
        image=image.name,
        n_objects=n_numbers(masks),
        ap50=_score(image.masks, masks),
        difference=difference_of(result),
        n_resized=len(resized_cells(result.objects)),
    )


def _score(truth: np.ndarray | None, masks: np.ndarray) -> float | None:
    """Average precision at IoU 0.5 of one image; None where there is no truth."""
    return None if truth is None else float(average_precision(truth, masks)[0])
