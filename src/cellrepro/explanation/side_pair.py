"""Two results of one image beside each other: read, laid on each other, and compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.systematic_change import SystematicChange, turns_between
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.commands import Commands
from cellrepro.explanation.commands_of_record import commands_of_record
from cellrepro.explanation.condition_commands import LabSetup
from cellrepro.explanation.conditions import IMAGE_CROP
from cellrepro.explanation.crops import (
    Part,
    cut_out,
    edge_note,
    in_common,
    is_in_place,
    part_shown,
    with_crop,
)
from cellrepro.explanation.cut_evidence import cut_evidence
from cellrepro.explanation.fit import Fit
from cellrepro.explanation.hand_edits import EditedSide, EffectOfHand, effect_of_hand
from cellrepro.explanation.label_notes import label_notes
from cellrepro.explanation.one_size import Scaled, at_one_size
from cellrepro.explanation.recorded_cause import IMAGE, POSITION, FileEvidence, why_from_files
from cellrepro.explanation.recorded_settings import IMAGE_SHAPE
from cellrepro.explanation.run_record import run_commands
from cellrepro.explanation.search_values import TRIED
from cellrepro.explanation.settings_of_both import SettingOfBoth, side_by_side
from cellrepro.explanation.sides import Side, read_side
from cellrepro.explanation.why import Cause, Why
from cellrepro.images.size_factor import times_text
from cellrepro.store.store import Store
from samebits.errors import BadInput


class MasksInCommon(NamedTuple):
    """The comparison of what both sides show, and how the masks were read."""

    result: MaskComparison
    notes: tuple[str, ...]
    number_rule: str
    """How the numbers of one follow from those of the other; empty where they do not."""
    systematic: SystematicChange | None
    """The one change of all cells."""
    unrelated: str
    """What speaks for masks of two images; else empty."""


@dataclass(frozen=True)
class SidePair:
    """Two results of one image."""

    a: Side
    b: Side
    scaled: Scaled | None = None
    """Both at one size, where the two are of two sizes."""

    @classmethod
    def read(
        cls, a: str, b: str, *, image: str | None, store: Store, with_network: bool = True
    ) -> SidePair:
        """Read both; ``image`` is the name that their image has in a stored run."""
        side_a = read_side(a, image=image, store=store, with_network=with_network)
        side_b = read_side(b, image=image, store=store, with_network=with_network)
        return cls(side_a.drawn_like(side_b), side_b.drawn_like(side_a))

    def with_logs(self, log_a: str | Path | None, log_b: str | Path | None) -> SidePair:
        """Add what the logs of Cellpose record of each."""
        return SidePair(self.a.with_log(log_a), self.b.with_log(log_b))

    def each(self, change: Callable[[Side], Side]) -> SidePair:
        """Give both with the same change."""
        return SidePair(change(self.a), change(self.b))

    def with_crops(self, shape: tuple[int, ...]) -> SidePair:
        """Add where the crop of either lies in an image of this shape, if it shows a part of it."""
        return SidePair(with_crop(self.a, self.b, shape), with_crop(self.b, self.a, shape))

    def with_crops_made(self, a: Fit, b: Fit) -> SidePair:
        """Move the crop of a side to where it was made again; its masks show only about where."""
        return SidePair(_with_crop_made(self.a, a), _with_crop_made(self.b, b))

    def laid_on_each_other(self) -> SidePair:
        """Give both, if they differ in shape with the crop of one, or with the larger reduced."""
        shape_a = self.a.masks.shape
        shape_b = self.b.masks.shape
        if shape_a == shape_b:
            return self
        why_no_crop = self.of_other_shapes()
        cropped = None
        if self.are_planes:
            try:
                cropped = self.with_crops(max(shape_a, shape_b, key=np.prod))
            except BadInput as error:
                why_no_crop = error
        if cropped is not None and cropped.is_in_place:
            return cropped
        scaled = at_one_size(self.a.masks, self.b.masks)
        if scaled is not None and scaled.is_of_one_image(compare_masks(*scaled.masks)):
            return replace(self, scaled=scaled)
        if cropped is not None:
            return cropped
        if not self.are_planes:
            raise why_no_crop
        raise BadInput(
            f"{self.a.name} has masks of shape {shape_a}, and {self.b.name} of {shape_b}: no cell "
            "is compared"
        ) from why_no_crop

    @property
    def are_planes(self) -> bool:
        """Whether both are planes, and neither is a stack."""
        return self.a.masks.ndim == 2 and self.b.masks.ndim == 2

    @property
    def settings(self) -> tuple[SettingOfBoth, ...]:
        """Every setting, and what else the two record, what differs first."""
        return side_by_side(
            {**self.a.recorded, **self.a.known}, {**self.b.recorded, **self.b.known}
        )

    @property
    def may_have_untrue_record(self) -> bool:
        """Whether one of two results with cells records another value of a setting than the other.

        Runs of a store record what they were made with.
        """
        is_of_file = self.a.run is None or self.b.run is None
        if not (is_of_file and self.a.n_cells):
            return False
        return any(each.differs and each.name in TRIED for each in self.settings)

    @property
    def is_in_place(self) -> bool:
        """Whether the cells of both match where they are laid on each other."""
        masks_a = in_common(self.a, self.b)
        masks_b = in_common(self.b, self.a)
        return is_in_place(compare_masks(masks_a, masks_b))

    @property
    def part(self) -> Part | None:
        """Where one of the two shows a part of the image alone."""
        return part_shown(self.a, self.b)

    def compared(self) -> MasksInCommon:
        """Compare the masks where both show the image."""
        masks_a = in_common(self.a, self.b)
        masks_b = in_common(self.b, self.a)
        if self.scaled is not None:
            masks_a, masks_b = self.scaled.masks
        result = compare_masks(masks_a, masks_b)
        shown = MasksInCommon(result, *label_notes(masks_a, masks_b, result))
        if self.part is not None and cut_out(self.a, self.b, result) is None:
            note = edge_note(self.a, self.b, result)
            return shown._replace(notes=(*([note] if note else []), *shown.notes))
        if self.scaled is None:
            return shown
        may_be_scaled = [
            letter for letter, side in (("A", self.a), ("B", self.b)) if _may_be_scaled(side)
        ]
        of_sizes = self.scaled.notes(result, may_be_scaled=may_be_scaled)
        return shown._replace(notes=(*of_sizes, *shown.notes))

    def by_hand(self) -> EffectOfHand:
        """Find the cells that differ because of what was done by hand."""
        return effect_of_hand(
            EditedSide("A", self.a.masks, self.a.edits), EditedSide("B", self.b.masks, self.b.edits)
        )

    def why_from_files(self, shown: MasksInCommon | None) -> Why | None:
        """Say what probably makes the two differ, which were compared unless sizes forbid it."""
        doubt = self._doubt_of_one_image(shown)
        if doubt:
            return Why(None, nothing_tells=doubt)
        evidence = FileEvidence(Verdict.DIFFERENT, is_empty=not (self.a.n_cells and self.b.n_cells))
        if shown is not None:
            evidence = FileEvidence.of_masks(
                shown.result,
                number_rule=shown.number_rule,
                systematic=shown.systematic,
                unrelated=shown.unrelated,
            )
        cuts = None
        if shown is not None and self.a.masks.shape == self.b.masks.shape:
            files = (self.a.name, self.b.name)
            cuts = cut_evidence(self.a.masks, self.b.masks, shown.result, files=files)
        evidence = replace(
            evidence,
            cuts=cuts,
            settings=self.settings,
            generations=(self.a.record.generation, self.b.record.generation),
            by_hand=self.by_hand(),
            n_edits=(len(self.a.edits), len(self.b.edits)),
        )
        why = why_from_files(evidence, find_out="")
        cause = self._cause_of_sizes(shown)
        if cause is None:
            return self._with_crop_as_cause(why)
        recorded = () if why is None or why.cause is None else (why.cause, *why.others)
        if any(each.name == IMAGE for each in recorded):  # which no size explains
            return why
        others = [
            each
            for each in recorded
            if each.name != cause.name and not each.confirmed and not self._is_of_sizes(each)
        ]
        return Why(cause, () if cause.confirmed else tuple(others))

    def _is_of_sizes(self, cause: Cause) -> bool:
        """Whether diameters differ as the sizes do, so that they make no difference."""
        if self.scaled is None or cause.name != "diameter":
            return False
        return self.scaled.corresponds(cause.a, cause.b)

    def _with_crop_as_cause(self, why: Why | None) -> Why | None:
        """Take as likely that a part was segmented by itself, where nothing else tells."""
        if self.part is None or why is None or why.cause is not None:
            return why
        words = (
            f"{self.part.cropped} shows a part of {self.part.whole}, and was probably segmented by "
            "itself: there Cellpose sees other surroundings, and scales brightness otherwise"
        )
        return replace(why, cause=Cause(IMAGE_CROP, words=words))

    def _cause_of_sizes(self, shown: MasksInCommon | None) -> Cause | None:
        """What the two sizes tell; None of equal ones, and of a crop that was segmented."""
        if self.scaled is not None and shown is not None:
            words = self.scaled.text(shown.result)
            return Cause(IMAGE_SHAPE, confirmed=not shown.result.n_differing, words=words)
        if self.part is not None and shown is not None:
            return cut_out(self.a, self.b, shown.result)
        if shown is None:
            for turn in turns_between(self.a.masks > 0, self.b.masks > 0):
                return Cause(POSITION, words=f"B is A {turn}")
        return None

    def _doubt_of_one_image(self, shown: MasksInCommon | None) -> str:
        """Say that nothing shows two sizes to be of one image; empty where something does."""
        a = self.a.masks
        b = self.b.masks
        if shown is None:
            is_of_one = not self.are_planes or any(turns_between(a > 0, b > 0))
            if is_of_one or not (a.any() and b.any()):
                return ""
            times = times_text("A", a.shape, "B", b.shape)
            of_sizes = f" ({times})" if times else ""
            return (
                f"the two differ in size{of_sizes}, and hardly a cell of one is found in the "
                "other: they may be of two images, or one is of a part that was segmented by "
                "itself; a part that was enlarged or reduced, too, is not looked for"
            )
        if self.part is None or is_in_place(shown.result):
            return ""
        return (
            f"no part of {self.part.whole} has the cells of {self.part.cropped}: they may be of "
            "two images, or the part was enlarged or reduced, which is not looked for"
        )

    def recorded_commands(self, store: Store, *, image: str | None) -> dict[str, Commands | None]:
        """Write how to make each again, as far as its files record that."""
        return {
            "a": _recorded_commands(self.a, LabSetup(side="a"), store, image),
            "b": _recorded_commands(self.b, LabSetup(side="b"), store, image),
        }

    def of_other_shapes(self) -> BadInput:
        """Make the error for two results that cannot be laid on each other."""
        return BadInput(
            f"{self.a.name} has masks of shape {self.a.masks.shape}, {self.b.name} of "
            f"{self.b.masks.shape}; expected two planes (Y, X), or two stacks (Z, Y, X) of one "
            "shape"
        )


def _with_crop_made(side: Side, fit: Fit) -> Side:
    return side.in_crop(fit.believed[IMAGE_CROP]) if IMAGE_CROP in fit.believed else side


def _may_be_scaled(side: Side) -> bool:
    """Whether its record allows a Cellpose that makes masks of another size than their image."""
    is_one = side.version is None or side.version.startswith(("4.0", "4.1"))
    return is_one and side.known.get("resample") is not True


def _recorded_commands(
    side: Side, setup: LabSetup, store: Store, image: str | None
) -> Commands | None:
    if side.run is not None:
        return run_commands(side.run, image=image)
    is_stack = side.masks.ndim > 2
    return commands_of_record(side.record, store, image=image, is_stack=is_stack, setup=setup)
