"""How a difference grows, epoch by epoch: weights, and the masks had training ended there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, overload

import numpy as np
from cyclopts import Parameter

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.scores import average_precision
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.divergence.masks_by_epoch import LabelImages, read_masks_file, segmented_by_epoch
from cellrepro.spec import defaults
from cellrepro.store import checkpoints
from cellrepro.store.checkpoint_choice import stored_checkpoints
from cellrepro.store.checkpoints import CHECKPOINTS, Checkpoint
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.terminal import FileName, Quiet
from cellrepro.words import percent_text, share_text
from samebits.errors import BadInput, whole
from samebits.results import Result, Row, derived, table_lines


@dataclass(frozen=True)
class Moment:
    """How far two runs are apart after some epochs; what was not segmented or scored is None."""

    epoch: int
    """Epochs done."""
    n_differing: int
    """Parameters whose bits differ."""
    n_parameters: int
    """Parameters of each network."""
    relative_l2: float
    """Distance of the weights, relative to their length."""
    ppm: float | None = None
    """Differing pixels per million of the masks."""
    lost: int | None = None
    """Objects of A without a match in B at IoU 0.5."""
    gained: int | None = None
    """Objects of B without a match in A."""
    objects: tuple[int, int] | None = None
    """Objects in A and in B."""
    changed: float | None = None
    """Share of both sides' objects without a match."""
    ap50_a: float | None = None
    """Mean AP at IoU 0.5 against the ground truth."""
    ap50_b: float | None = None
    """Mean AP at IoU 0.5 against the ground truth."""

    @derived
    def distance(self) -> float:
        """The same as ``relative_l2``."""
        return self.relative_l2

    @property
    def ap50(self) -> tuple[float, float] | None:
        """Scores of A and of B; None unless both are known."""
        if self.ap50_a is None or self.ap50_b is None:
            return None
        return self.ap50_a, self.ap50_b


EXPLAINED = (
    "distance: of the weights, relative to their length; pixels and cells: of the masks had "
    "training ended there"
)


@dataclass(frozen=True, repr=False)
class Growth(Result, Sequence[Moment]):
    """How the difference of two runs grew: a sequence of moments, by epoch."""

    a: str
    """``KEY/MACHINE/REPEAT``."""
    b: str
    """The same of the other run."""
    moments: tuple[Moment, ...]
    """The earliest first."""

    @overload
    def __getitem__(self, index: int) -> Moment: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Moment, ...]: ...

    def __getitem__(self, index: int | slice) -> Moment | tuple[Moment, ...]:
        return self.moments[index]

    def __len__(self) -> int:
        return len(self.moments)

    def sentence(self) -> str:
        """Say how far apart the weights, and the cells where masks were made, are at the end."""
        last = self[-1]
        sentence = (
            f"after epoch {last.epoch} the weights are {last.relative_l2:.2g} of their size apart"
        )
        with_masks = [moment for moment in self if moment.changed is not None]
        if with_masks:
            latest = with_masks[-1]
            share = share_text(latest.changed or 0.0)
            sentence += f"; after epoch {latest.epoch} {share} of the cells have no match"
        return sentence

    def rows(self) -> list[Row]:
        """Give a row for each epoch."""
        return [
            {
                "epoch": moment.epoch,
                "parameters that differ": moment.n_differing,
                "distance": f"{moment.relative_l2:.2g}",
                "pixels": "" if moment.ppm is None else percent_text(moment.ppm / 1e6),
                "cells without a match": ""
                if moment.changed is None
                else percent_text(moment.changed),
                "AP@0.5 of A, of B": _scores_text(moment),
            }
            for moment in self
        ]

    def lines(self) -> list[str]:
        """Give the sentence over a line for each checkpoint."""
        table = table_lines(self.rows(), indent=0, most=len(self))
        return [f"A: {self.a}", f"B: {self.b}", self.sentence(), *table, EXPLAINED]


def _scores_text(moment: Moment) -> str:
    return "" if moment.ap50 is None else "{:.3f}, {:.3f}".format(*moment.ap50)


def growth(
    a: str,
    b: str,
    /,
    *,
    n_masks: Annotated[int, Parameter(name="--masks")] = defaults.MASKS_ON_THE_WAY,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Growth:
    """Follow the difference of two runs through their checkpoints; masks as each run makes them.

    Parameters
    ----------
    a : str
        ``KEY`` or ``KEY/REPEAT`` of a run that was trained with kept checkpoints.
    b : str
        Another one of the same network over the same images; ``KEY KEY`` means the first two
        repeats of a run.
    n_masks : int
        At how many epochs, spread over the training, masks are made of both; 0 for none, 1 for
        the last epoch.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    Growth
        A moment for every epoch of which both have a checkpoint; scores as they were stored, if
        they were, and else where masks are made.

    Raises
    ------
    BadInput
        If the two are not of one network over the same images, have no checkpoint of the same
        epoch or one that has changed since, or are without the images of which masks are made; or
        if n_masks is negative.

    Examples
    --------
    How does the difference of two trainings grow?

    ``cellrepro growth KEY/0 OTHER_KEY/0``
    """
    whole("n_masks", n_masks, 0)
    opened_store = Store(store)
    repeats = opened_store.find_two(a, b)
    _refuse_incomparable(*repeats)
    checkpoints_a, checkpoints_b = (_checkpoints_by_epoch(repeat) for repeat in repeats)
    epochs = sorted(checkpoints_a.keys() & checkpoints_b.keys())
    if not epochs:
        raise BadInput(
            f"{a} and {b} have no checkpoint of the same epoch; train both with "
            "--keep-checkpoints and the same --checkpoint-every"
        )
    for epoch in epochs:
        checkpoints.refuse_changed(checkpoints_a[epoch])
        checkpoints.refuse_changed(checkpoints_b[epoch])
    moments = [
        _moment(epoch, (checkpoints_a[epoch], checkpoints_b[epoch]), repeats) for epoch in epochs
    ]
    chosen = spread_over(epochs, n_masks)
    if chosen:
        truths, masks_by_epoch = segmented_by_epoch(
            opened_store, repeats, (checkpoints_a, checkpoints_b), chosen, quiet=quiet
        )
        moments = [
            with_masks(moment, truths, *map(read_masks_file, masks_by_epoch[moment.epoch]))
            if moment.epoch in masks_by_epoch
            else moment
            for moment in moments
        ]
    repeat_a, repeat_b = repeats
    return Growth(a=repeat_a.name, b=repeat_b.name, moments=tuple(moments))


def _checkpoints_by_epoch(repeat: Repeat) -> dict[int, Checkpoint]:
    return {checkpoint.epoch: checkpoint for checkpoint in stored_checkpoints(repeat)}


def spread_over(epochs: Sequence[int], n: int) -> list[int]:
    """Choose ``n`` epochs evenly, the first and the last among them; of one, the last.

    >>> spread_over([2, 4, 6, 8, 10], 3), spread_over([2, 4, 6, 8, 10], 1)
    ([2, 6, 10], [10])
    """
    if n == 1:
        return [epochs[-1]]
    positions = np.linspace(0, len(epochs) - 1, min(n, len(epochs)))
    return [epochs[round(position)] for position in positions]


def _moment(epoch: int, kept: tuple[Checkpoint, Checkpoint], repeats: Sequence[Repeat]) -> Moment:
    """Compare the weights after one epoch; scores are those that both stored, if they did."""
    files = [checkpoint.folder / checkpoints.STATE for checkpoint in kept]
    weights = compare_weights(*files, prefix=checkpoints.NETWORK)
    score_a, score_b = (repeat.manifest.ap50_by_epoch.get(epoch) for repeat in repeats)
    are_stored = score_a is not None and score_b is not None
    return Moment(
        epoch=epoch,
        n_differing=weights.n_differing,
        n_parameters=weights.n_parameters,
        relative_l2=weights.relative_l2,
        ap50_a=score_a if are_stored else None,
        ap50_b=score_b if are_stored else None,
    )


def has_checkpoints(repeat: Repeat) -> bool:
    """Whether a stored repeat kept its checkpoints."""
    return bool(checkpoints.folders(repeat.folder / CHECKPOINTS))


def _refuse_incomparable(a: Repeat, b: Repeat) -> None:
    """Raise unless two runs trained one architecture and segmented the same images."""
    names = f"{a.name} and {b.name}"
    same_network = a.manifest.model.architecture == b.manifest.model.architecture
    if not same_network or a.spec.data_digest != b.spec.data_digest:
        raise BadInput(f"{names} are not of one network over the same images; name two that are")
    without = [repeat.name for repeat in (a, b) if not has_checkpoints(repeat)]
    if without:
        raise BadInput(
            f"{' and '.join(without)} kept no checkpoints; train anew with --keep-checkpoints, and "
            "into another --store, as a stored repeat is not run again"
        )


def with_masks(
    moment: Moment, truths: Sequence[np.ndarray | None], a: LabelImages, b: LabelImages
) -> Moment:
    """Add how far the masks of two runs are apart, and scores where none are stored."""
    totals = totals_over(
        compare_masks(masks_a, masks_b) for masks_a, masks_b in zip(a, b, strict=True)
    )
    n_objects = totals.n_objects
    score_a, score_b = moment.ap50 or _mean_scores(truths, a, b) or (None, None)
    return replace(
        moment,
        ppm=totals.ppm,
        lost=totals.n_objects_a - totals.n_matched,
        gained=totals.n_objects_b - totals.n_matched,
        objects=(totals.n_objects_a, totals.n_objects_b),
        changed=1 - 2 * totals.n_matched / n_objects if n_objects else None,
        ap50_a=score_a,
        ap50_b=score_b,
    )


def _mean_scores(
    truths: Sequence[np.ndarray | None], a: LabelImages, b: LabelImages
) -> tuple[float, float] | None:
    """AP at IoU 0.5 of A and of B, mean over the images with true objects; None without any."""
    scores = [
        [average_precision(truth, masks_a)[0], average_precision(truth, masks_b)[0]]
        for truth, masks_a, masks_b in zip(truths, a, b, strict=True)
        if truth is not None and truth.any()
    ]
    if not scores:
        return None
    score_a, score_b = np.mean(scores, axis=0).tolist()
    return score_a, score_b
