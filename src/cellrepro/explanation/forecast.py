"""What other computers would give: images segmented with rounding drawn anew, their cells followed.

A *draw* is a segmentation in which every rounded result of PyTorch is one unit in the last place
away (`samebits.perturbed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.distinct_results import distinct_results
from cellrepro.comparison.label_pair import read_pair
from cellrepro.comparison.mask_comparison import counts_of
from cellrepro.comparison.object_changes import ObjectChange, ObjectKind
from cellrepro.comparison.object_groups import group_objects
from cellrepro.comparison.object_matching import Integers
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.store.store import Store
from cellrepro.words import place_text, share_text, span
from samebits.errors import BadInput, whole_number
from samebits.results import Result, Row, derived
from samebits.words import amount, grouped, joined, with_verb

NOT_CLAIMED = (
    "this is what rounding does; other versions of Cellpose or PyTorch, and bfloat16, change more"
)
OTHER_ROUNDING = "other rounding, as other computers have,"
"""What draws try, as the subject of a sentence: they promise nothing of a computer."""
_MOST_DRAWS = 1000


@dataclass(frozen=True)
class Band:
    """How many differ on other computers, from the fewest to the most."""

    low: int
    """In the draw with the fewest."""
    high: int
    """With all that differ in any draw."""

    def __str__(self) -> str:
        return span(grouped(self.low), grouped(self.high))


@dataclass(frozen=True)
class ForecastCell:
    """A cell that other computers may give otherwise."""

    label: int | None
    """Its number in the masks of this computer; none for a cell that only draws have."""
    position: tuple[float, ...]
    """Centroid, pixels: (y, x), of a stack (z, y, x)."""
    kinds: tuple[str, ...]
    """What becomes of it, in the words of ``compare``: moved, lost, gained, split, merged."""
    n_draws: int
    """Draws in which it differs."""


@dataclass(frozen=True)
class ImageForecast:
    """One image, and what becomes of its cells on other computers."""

    name: str
    """The image."""
    n_cells: int
    """Cells on this computer."""
    cells: tuple[ForecastCell, ...]
    """Those that differ in a draw, those that differ in most draws first."""
    cells_by_draw: tuple[int, ...]
    """How many cells differ in each draw."""
    pixels_by_draw: tuple[int, ...]
    """How many pixels differ in each draw."""

    @derived
    def changed(self) -> Band:
        """How many of its cells differ."""
        return Band(min(self.cells_by_draw), len(self.cells))


@dataclass(frozen=True)
class ForecastExample:
    """The image whose cells differ most, and the draw in which most of them do."""

    image: str
    pixels: NDArray[np.generic]
    usual: Integers
    """The masks of this computer."""
    masks: Integers
    """Those of the draw."""
    draw: int
    """Which, from 1."""


@dataclass(frozen=True, repr=False)
class Forecast(Result):
    """Which cells other computers will give otherwise, as a few draws foretell it."""

    draws: int
    """How often each image was segmented beside the usual result, with other rounding."""
    images: tuple[ImageForecast, ...]
    """One for each image."""
    example: ForecastExample | None = field(default=None, repr=False)
    """Of the image whose cells differ most."""
    html: Path | None = None
    """The page, where one was asked for."""

    @derived
    def n_cells(self) -> int:
        """Cells on this computer, over all images."""
        return sum(image.n_cells for image in self.images)

    @derived
    def changed(self) -> Band:
        """How many cells differ, over all images."""
        by_draw = map(sum, zip(*(image.cells_by_draw for image in self.images), strict=True))
        return Band(min(by_draw), sum(len(image.cells) for image in self.images))

    @derived
    def pixels(self) -> Band:
        """How many pixels differ, over all images, in the draw with the fewest and the one with
        the most."""
        by_draw = [*map(sum, zip(*(image.pixels_by_draw for image in self.images), strict=True))]
        return Band(min(by_draw), max(by_draw))

    @derived
    def vacuous(self) -> bool:
        """Whether no cell was found, on this computer or in a draw, so that none could differ."""
        return not self.n_cells and not self.changed.high

    def sentence(self) -> str:
        """Say how many cells other computers will give otherwise."""
        over = amount(len(self.images), "image")
        if self.vacuous:
            return f"vacuous: no cell was found in {over}"
        n_new = sum(cell.label is None for image in self.images for cell in image.cells)
        new = f" and {n_new} that only draws have" if n_new else ""
        cells = f"of your {amount(self.n_cells, 'cell')}{new} in {over}"
        how_many = self.changed if self.changed.high else "none"
        return f"{OTHER_ROUNDING} changed {how_many} {cells}, in {amount(self.draws, 'draw')}"

    def rows(self) -> list[Row]:
        """Give every cell that may differ."""
        return cell_rows(self.images, self.draws)

    def lines(self) -> list[str]:
        """Say how many cells differ and which, and what the draws can tell."""
        lines = [*super().lines()]
        if self.vacuous:
            return lines
        lines.append(f"pixels that differ in a draw: {self.pixels}")
        miss = with_verb(self.draws, "draw", "misses", "miss")
        missed = share_text(0.5**self.draws)
        lines.append(
            f"of the cells that differ on half of all other computers, {miss} {missed}; "
            "more --draws miss fewer"
        )
        lines.append(NOT_CLAIMED)
        if self.html is not None:
            lines.append(f"page: {self.html}")
        return lines


def cell_rows(images: Iterable[ImageForecast], n_draws: int) -> list[Row]:
    """Give a row for every cell that may differ."""
    return [
        {
            "image": image.name,
            "cell": "–" if cell.label is None else cell.label,
            "centre": place_text(cell.position),
            "becomes": joined([ObjectKind(kind).in_words for kind in cell.kinds]),
            "in draws": f"{cell.n_draws} of {n_draws}",
        }
        for image in images
        for cell in image.cells
    ]


def checked_draws(draws: int) -> int:
    """Check how many draws are asked for."""
    n_draws = whole_number(draws)
    if n_draws is None or not 1 <= n_draws <= _MOST_DRAWS:
        raise BadInput(f"draws is {draws!r}; expected a whole number from 1 to {_MOST_DRAWS}")
    return n_draws


def forecast_of(options: SegmentationOptions, *, draws: int, quiet: bool = False) -> Forecast:
    """Segment images as usual and in a few draws, and follow their cells."""
    n_draws = checked_draws(draws)
    if options.mode == "portable":
        raise BadInput(
            "mode is portable, in which every computer gives the same bits: there is nothing to "
            "forecast; name another mode"
        )
    plan = plan_segmentation(options)
    ways = f"as on this computer, and {amount(n_draws, 'draw')}"
    store = Store(options.store)
    return in_planned_child(
        plan,
        partial(foretold, request=plan.request, n_draws=n_draws),
        announced=partial(segmenting_announced, plan, store, n_each=1 + n_draws, ways=ways),
        label="forecast",
        steps=plan.n_images,
        counted="images done",
        quiet=quiet,
    )


# -- inside the child ------------------------------------------------------------------------


def foretold(child: Child, *, request: Request, n_draws: int) -> Forecast:
    """Runs in a child process: segment every image as usual and in every draw."""
    images = []
    most = (-1, -1)
    example = None
    with child.opened(request.model) as (network, _):
        from cellrepro.model.evaluator import evaluator
        from samebits import perturbed
        from samebits.generator_states import generators_kept

        evaluate = evaluator(network)
        settings = request.spec.settings.arguments()
        for image in read_images(request).to_segment:
            with generators_kept():
                usual = evaluate(image.image, stack=image.stack, **settings).masks
            drawn = []
            for draw in range(n_draws):
                with generators_kept(), perturbed(draw):
                    drawn.append(evaluate(image.image, stack=image.stack, **settings).masks)
            foreseen = followed(image.name, usual, drawn)
            images.append(foreseen)
            weights = [*zip(foreseen.cells_by_draw, foreseen.pixels_by_draw, strict=True)]
            if max(weights) > most:
                most = max(weights)
                draw = weights.index(most)
                example = ForecastExample(image.name, image.image, usual, drawn[draw], draw + 1)
            child.tell("done", image.name)
    return Forecast(n_draws, tuple(images), example)


def followed(name: str, usual: Integers, drawn: Sequence[Integers]) -> ImageForecast:
    """Follow the cells of one image through the masks of its draws."""
    results = distinct_results([usual, *drawn])
    groups = group_objects(results)
    labels = np.zeros(results[0].n_objects + 1, np.int64)  # of this computer, by group
    labels[results[0].image] = usual
    changes: dict[int, list[ObjectChange]] = {}  # by group
    n_draws_of: dict[int, int] = {}  # by group
    n_cells = [0] * (1 + len(drawn))
    n_pixels = [0] * (1 + len(drawn))
    for result, groups_of in zip(results[1:], groups.by_result[1:], strict=True):
        counts = counts_of(read_pair(results[0].image, result.image))
        differing = set()
        for change in counts.objects:
            if change.kind != ObjectKind.KEPT:
                for group in change.labels_a or groups_of[[*change.labels_b]].tolist():
                    changes.setdefault(group, []).append(change)
                    differing.add(group)
        for group in differing:
            n_draws_of[group] = n_draws_of.get(group, 0) + len(result.runs)
        for run in result.runs:
            n_cells[run] = len(differing)
            n_pixels[run] = counts.n_differing
    cells = [
        ForecastCell(
            label=int(labels[group]) if group < len(labels) else None,
            position=of_cell[0].position,
            kinds=_kinds(of_cell),
            n_draws=n_draws_of[group],
        )
        for group, of_cell in changes.items()
    ]
    return ImageForecast(
        name=name,
        n_cells=results[0].n_objects,
        cells=tuple(sorted(cells, key=lambda cell: -cell.n_draws)),
        cells_by_draw=tuple(n_cells[1:]),
        pixels_by_draw=tuple(n_pixels[1:]),
    )


def _kinds(changes: Iterable[ObjectChange]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(change.kind) for change in changes))
