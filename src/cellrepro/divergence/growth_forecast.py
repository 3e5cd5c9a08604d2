"""How far a training on another computer would grow apart from the one here, by a few draws.

A *draw* is the same training with every rounded result of PyTorch one unit in the last place away
(`samebits.perturbed`): one seed, one order of the same images.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellrepro.comparison.weight_comparison import compare_networks
from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import Network
from cellrepro.divergence.growth import EXPLAINED, has_checkpoints, spread_over
from cellrepro.divergence.masks_by_epoch import LabelImages, read_masks_file
from cellrepro.divergence.trained_again import (
    USUAL,
    DrawnTrainings,
    ScratchFolder,
    draw_name,
    trained_in_draws,
)
from cellrepro.errors import CellreproError
from cellrepro.explanation.forecast import (
    NOT_CLAIMED,
    OTHER_ROUNDING,
    ImageForecast,
    checked_draws,
    followed,
)
from cellrepro.model.epoch_schedule import trains_nothing
from cellrepro.progress import print_note
from cellrepro.run.plan import Plan
from cellrepro.run.planned_child import in_planned_child
from cellrepro.spec import defaults
from cellrepro.spec.spec import Spec
from cellrepro.store import checkpoints
from cellrepro.store.checkpoint_choice import stored_checkpoints
from cellrepro.store.stored_run import Repeat
from cellrepro.words import minutes, share_text, span
from samebits.errors import BadInput, NotPossibleHere
from samebits.results import Result, Row, derived, table_lines
from samebits.words import amount, grouped

_COST_OF_A_DRAW = 2.5
"""Of a training with other rounding, beside the usual one: `tiny` on a processor, 1.6 to 3.2."""
_WHERE_AND_HOW = {"data", "profile", "profile_settings", "mode", "loose", "ledger", "key_from"}
"""Fields of a spec that do not say what is trained, or have a digest beside them that does."""


@dataclass(frozen=True)
class BandOfDraws:
    """Where the draws lie."""

    low: float
    """In the draw in which it is lowest."""
    high: float
    """In the draw in which it is highest."""

    @classmethod
    def of(cls, by_draw: Sequence[float]) -> BandOfDraws:
        """The band of some draws."""
        return cls(min(by_draw), max(by_draw))


@dataclass(frozen=True)
class ForecastMoment:
    """How far other computers will be from this one after some epochs."""

    epoch: int
    """Epochs done."""
    n_cells: int
    """Cells on this computer, over all images, had training ended there."""
    distance_by_draw: tuple[float, ...]
    """Distance of the weights of each draw, relative to the length of those of this computer."""
    pixels_by_draw: tuple[int, ...]
    """How many pixels of the masks differ in each draw."""
    cells_by_draw: tuple[int, ...]
    """How many cells differ in each draw."""

    @derived
    def distance(self) -> BandOfDraws:
        """The band of the distance of the weights."""
        return BandOfDraws.of(self.distance_by_draw)

    @derived
    def pixels(self) -> BandOfDraws:
        """The band of the pixels that differ."""
        return BandOfDraws.of(self.pixels_by_draw)

    @derived
    def cells(self) -> BandOfDraws:
        """The band of the cells that differ."""
        return BandOfDraws.of(self.cells_by_draw)


@dataclass(frozen=True)
class RealTraining:
    """The same training in the store under another profile, mode or machine, with other bits."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    profile: str
    """Its numeric environment."""
    mode: str
    """Its mode."""
    distances: tuple[tuple[int, float], ...]
    """Epochs done, and distance of its weights from those of this computer: where it kept
    checkpoints, and at the end."""
    pixels: int
    """How many pixels of its masks differ at the end."""
    cells: int
    """How many cells differ at the end."""


@dataclass(frozen=True, repr=False)
class GrowthForecast(Result):
    """How far a training elsewhere will grow apart from the one here, as draws foretell it."""

    run: str
    """``KEY/MACHINE/REPEAT`` of the training."""
    draws: int
    """How often it was trained beside the usual training, with other rounding."""
    first_epoch: int | None
    """The first epoch after which weights differ; null where they stay equal."""
    moments: tuple[ForecastMoment, ...]
    """By epoch, the earliest first; the last is the end of the training."""
    images: tuple[ImageForecast, ...]
    """What becomes of the cells of each image that it segments at the end."""
    real: tuple[RealTraining, ...] = ()
    """The same training elsewhere, as far as the store has it: does it lie in the band?"""
    html: Path | None = None
    """The page, where one was asked for."""

    @property
    def end(self) -> ForecastMoment:
        """The end of the training."""
        return self.moments[-1]

    @derived
    def n_cells(self) -> int:
        """Cells on this computer at the end, over all images."""
        return self.end.n_cells

    @derived
    def vacuous(self) -> bool:
        """Whether no cell was found at the end, here or in a draw, so that none could differ."""
        return not self.n_cells and not self.end.cells.high

    def sentence(self) -> str:
        """Say when the weights part, and how many cells differ at the end."""
        draws = amount(self.draws, "draw")
        if self.first_epoch is None:
            return f"{OTHER_ROUNDING} left all weights equal, bit for bit, in {draws}"
        parts = f"{OTHER_ROUNDING} parts the weights in epoch {self.first_epoch}"
        after = f"after {amount(self.end.epoch, 'epoch')}"
        if self.vacuous:
            apart = _distance_text(self.end.distance)
            over = amount(len(self.images), "image")
            return (
                f"{parts}; {after} they were {apart} of their size apart in {draws}; no cell was "
                f"found in {over}"
            )
        return f"{parts}; {after} {self.cells_that_differ()}, in {draws}"

    def cells_that_differ(self) -> str:
        """Say how many differ at the end: "1 to 3 of your 88 cells in 3 images differed"."""
        how_many = _count_text(self.end.cells) if self.end.cells.high else "none"
        over = amount(len(self.images), "image")
        return f"{how_many} of your {amount(self.n_cells, 'cell')} in {over} differed"

    def rows(self) -> list[Row]:
        """Give the bands, a row for each epoch."""
        return [
            {
                "epoch": moment.epoch,
                "distance": _distance_text(moment.distance),
                "pixels": _count_text(moment.pixels),
                "cells": f"{_count_text(moment.cells)} of {moment.n_cells}",
            }
            for moment in self.moments
        ]

    def lines(self) -> list[str]:
        """Give the sentence over a row for each epoch, and what the draws can tell."""
        lines = [self.sentence(), *table_lines(self.rows(), most=len(self.moments)), EXPLAINED]
        lines += self.remarks()
        if self.html is not None:
            lines.append(f"page: {self.html}")
        return lines

    def remarks(self) -> Iterator[str]:
        """Say what the draws can tell, and what is known of other computers."""
        outside = share_text(2 / (self.draws + 1))
        yield (
            f"from the lowest to the highest of {amount(self.draws, 'draw')}: {outside} of other "
            "computers lie outside by chance alone, fewer with more --draws"
        )
        for real in self.real:
            _, distance = real.distances[-1]
            yield (
                f"in the store, {real.name} (profile {real.profile}, mode {real.mode}): distance "
                f"{distance:.2g}, pixels {grouped(real.pixels)}, cells {grouped(real.cells)}"
            )
        yield NOT_CLAIMED


def _distance_text(band: BandOfDraws) -> str:
    return span(f"{band.low:.2g}", f"{band.high:.2g}")


def _count_text(band: BandOfDraws) -> str:
    return span(grouped(band.low), grouped(band.high))


def growth_forecast_of(
    plan: Plan, recorded: Repeat, *, draws: int, quiet: bool = False
) -> GrowthForecast:
    """Train as planned and in a few draws, and follow how they grow apart."""
    n_draws = checked_draws(draws)
    spec = plan.spec
    _refuse_nothing_to_forecast(spec, recorded.name)
    epochs = spread_over(range(1, spec.epochs + 1), defaults.MASKS_ON_THE_WAY)
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as folder:
        scratch = ScratchFolder(Path(folder))
        _refuse_short_disk(scratch, recorded, len(epochs))
        drawn = in_planned_child(
            plan,
            partial(
                trained_in_draws,
                request=plan.request,
                n_draws=n_draws,
                epochs=epochs,
                scratch=scratch,
            ),
            announced=partial(_announced, plan, recorded, n_draws, len(epochs)),
            label="forecast",
            steps=(1 + n_draws) * spec.epochs,
            quiet=quiet,
        )
        return _foretold(plan, recorded, epochs, drawn, scratch)


def _refuse_nothing_to_forecast(spec: Spec, name: str) -> None:
    if spec.mode == "portable":
        raise BadInput(
            f"{name} was trained in mode portable, in which every computer gives the same bits: "
            "there is nothing to forecast; name a training in another mode"
        )
    if spec.seed is None:
        raise BadInput(
            f"nothing of {name} was seeded (mode off), so that two trainings differ by what they "
            "draw, not by rounding alone; name one in mode fast, warn or strict"
        )
    if spec.ranks > 1:
        raise BadInput(
            f"{name} was trained by {spec.ranks} processes, and a draw is one; name a training "
            "with --ranks 1"
        )
    why_nothing = trains_nothing(spec.epochs, spec.learning_rate)
    if why_nothing:
        raise BadInput(f"there is nothing to forecast of {name}: {why_nothing}")


def _refuse_short_disk(scratch: ScratchFolder, recorded: Repeat, n_epochs: int) -> None:
    """Refuse where the weights of two trainings do not fit on the disk."""
    needed = 2 * n_epochs * 4 * recorded.manifest.model.n_parameters
    free = shutil.disk_usage(scratch.path).free
    if free < needed:
        raise NotPossibleHere(
            f"{scratch.path.parent} has {free / 1e9:.1f} GB left, and the weights on the way take "
            f"{needed / 1e9:.1f} for a while; make room, or name another folder with TMPDIR"
        )


def _announced(plan: Plan, recorded: Repeat, n_draws: int, n_epochs: int) -> str:
    """Say what will be computed, and about how long it takes."""
    what = (
        f"{recorded.name} is trained again, and {n_draws} times with other rounding: "
        f"{amount(1 + n_draws, 'training')} of {amount(plan.spec.epochs, 'epoch')}, with masks of "
        f"{amount(plan.n_images, 'image')} after {n_epochs} of them; nothing is kept on the disk"
    )
    seconds = recorded.manifest.seconds
    of_one = seconds.get("train", 0.0) + n_epochs * seconds.get("segment", 0.0)
    if not of_one:
        return what
    of_all = of_one * (1 + _COST_OF_A_DRAW * n_draws)
    return f"{what}; about {minutes(of_all)}, as one took {minutes(of_one)} when it was stored"


# -- what they left, compared --------------------------------------------------------------------


def _foretold(
    plan: Plan,
    recorded: Repeat,
    epochs: Sequence[int],
    drawn: DrawnTrainings,
    scratch: ScratchFolder,
) -> GrowthForecast:
    moments = []
    images: tuple[ImageForecast, ...] = ()
    n_draws = len(drawn.distances)
    for index, epoch in enumerate(epochs):
        usual = _masks(scratch, USUAL, epoch)
        of_draws = [_masks(scratch, draw_name(draw), epoch) for draw in range(n_draws)]
        images = tuple(map(followed, drawn.images, usual, zip(*of_draws, strict=True)))
        moments.append(
            ForecastMoment(
                epoch=epoch,
                n_cells=sum(image.n_cells for image in images),
                distance_by_draw=tuple(distances[index] for distances in drawn.distances),
                pixels_by_draw=_sums(image.pixels_by_draw for image in images),
                cells_by_draw=_sums(image.cells_by_draw for image in images),
            )
        )
    return GrowthForecast(
        run=recorded.name,
        draws=n_draws,
        first_epoch=drawn.first_epoch,
        moments=tuple(moments),
        images=images,
        real=tuple(_real_trainings(plan, epochs, drawn.images, scratch)),
    )


def _masks(scratch: ScratchFolder, training: str, epoch: int) -> LabelImages:
    return read_masks_file(scratch.masks(training, epoch).read_bytes())


def _sums(by_image: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The sums over all images, by draw."""
    return tuple(map(sum, zip(*by_image, strict=True)))


def _real_trainings(
    plan: Plan, epochs: Sequence[int], images: Sequence[str], scratch: ScratchFolder
) -> Iterator[RealTraining]:
    """Hold the usual training to the same one elsewhere; those with the same bits tell nothing."""
    usual_masks = _masks(scratch, USUAL, epochs[-1])
    for repeat in _same_trainings(plan):
        try:
            distances = [*_distances(repeat, epochs, scratch)]
            pairs = zip(images, usual_masks, map(repeat.masks, images), strict=True)
            held = [followed(name, usual, [masks]) for name, usual, masks in pairs]
        except CellreproError as error:  # what took so long to compute is still said
            print_note(f"passed over: {error}")
            continue
        if not distances or distances[-1] == (epochs[-1], 0):
            continue
        yield RealTraining(
            name=repeat.name,
            profile=repeat.spec.profile,
            mode=repeat.spec.mode,
            distances=tuple(distances),
            pixels=sum(image.pixels_by_draw[0] for image in held),
            cells=sum(image.cells_by_draw[0] for image in held),
        )


def _same_trainings(plan: Plan) -> Iterator[Repeat]:
    """Repeats in the store of what is trained, wherever and in whichever mode but portable."""
    spec = plan.spec
    for run in plan.store.readable_runs(data_digest=spec.data_digest):
        other = run.spec
        is_alike = _what_is_trained(other) == _what_is_trained(spec)
        if is_alike and other.mode != "portable" and other.precision == spec.precision:
            yield from run.repeats


def _what_is_trained(spec: Spec) -> dict[str, object]:
    named_by_digest = {"model"} if spec.model_digest is not None else set()
    return spec.model_dump(mode="json", exclude=_WHERE_AND_HOW | named_by_digest)


def _distances(
    repeat: Repeat, epochs: Sequence[int], scratch: ScratchFolder
) -> Iterator[tuple[int, float]]:
    """By epoch, how far kept checkpoints, and the trained weights, are from the usual ones."""
    weights = repeat.weights
    if weights is None:
        return  # they were left out when it was handed on
    for checkpoint in stored_checkpoints(repeat) if has_checkpoints(repeat) else ():
        if checkpoint.epoch in epochs[:-1]:
            checkpoints.refuse_changed(checkpoint)
            held = open_weights(checkpoint.folder / checkpoints.STATE)
            network = {
                name.removeprefix(checkpoints.NETWORK): tensor
                for name, tensor in held.items()
                if name.startswith(checkpoints.NETWORK)
            }
            yield checkpoint.epoch, _distance(scratch, checkpoint.epoch, network)
    yield epochs[-1], _distance(scratch, epochs[-1], open_weights(weights))


def _distance(scratch: ScratchFolder, epoch: int, other: Network) -> float:
    usual = open_weights(scratch.weights(USUAL, epoch))
    return compare_networks(usual, other).relative_l2
