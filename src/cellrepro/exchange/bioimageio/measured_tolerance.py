"""The tolerance of a package, the outputs that it was measured from, and what it could hide."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.exchange.bioimageio.measuring import MeasuredOutput
from cellrepro.exchange.bioimageio.tolerance import (
    SPECIFICATION_DEFAULT,
    HiddenObjects,
    Tolerance,
    hidden_objects,
    largest_difference,
    measured_tolerance,
    scale_of,
)
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.spec.segmentation_settings import Settings
from samebits.digests import array_digest
from samebits.results import derived


@dataclass(frozen=True)
class Place:
    """A machine under a profile, and how far its outputs lie from the test output."""

    largest_difference: float
    """Largest difference of an element, over the sum of the largest element and that element."""
    masks: Verdict
    """Verdict on the masks that Cellpose makes of the outputs."""
    outputs: tuple[MeasuredOutput, ...] = field(repr=False)

    @derived
    def machine(self) -> str:
        """Name of the machine."""
        return self.outputs[0].machine.name

    @derived
    def device(self) -> str:
        """Name of the processor or GPU."""
        return self.outputs[0].machine.device

    @derived
    def profile(self) -> str:
        """Name of the profile."""
        return self.outputs[0].profile

    @derived
    def threads(self) -> int:
        """Threads of PyTorch on the processor."""
        return self.outputs[0].threads

    @derived
    def processes(self) -> int:
        """Outputs that were measured, each in a process of its own."""
        return len(self.outputs)

    @derived
    def distinct_outputs(self) -> int:
        """Outputs, without those that have the bits of an earlier one."""
        return len({array_digest(measured.output) for measured in self.outputs})


@dataclass(frozen=True)
class MeasuredTolerance:
    """The tolerance of a package with its evidence."""

    tolerance: Tolerance
    factor: float
    """The safety factor on the largest measured difference."""
    difference: float
    """The largest difference of any two outputs."""
    factor_needed: float | None
    """The smallest factor that would also have held each place had it not been measured. None if
    there is only one place, or the others are equal."""
    expected: NDArray[np.float32]
    """The test output."""
    masks: NDArray[np.uint32]
    """The masks that Cellpose makes of it; 0 is background."""
    places: tuple[Place, ...]
    """The place of the test output is first."""
    hidden: HiddenObjects
    default_holds: bool
    """Whether all outputs keep the specification's default tolerance."""

    @property
    def n_outputs(self) -> int:
        """Number of measured outputs."""
        return sum(len(place.outputs) for place in self.places)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the masks of all outputs."""
        return combine([place.masks for place in self.places])


def judge_outputs(
    outputs: Sequence[MeasuredOutput],
    settings: Settings,
    *,
    factor: float,
    smallest_object: int | None,
) -> MeasuredTolerance:
    """Find the tolerance that holds all outputs, and what it could hide."""
    expected = outputs[0].output
    distinct = {array_digest(measured.output): measured.output for measured in outputs}
    tolerance = measured_tolerance(list(distinct.values()), expected, factor=factor)
    scale = scale_of(expected)
    masks = in_child(
        functools.partial(masks_of_all, outputs=distinct, settings=settings),
        Setup(profiles.load("cpu"), seed=0),
        label="making masks of the outputs of the network",
    )
    expected_masks = masks[array_digest(expected)]
    places = [
        Place(
            largest_difference=max(
                largest_difference([expected, item.output], scale=scale) for item in measured
            ),
            masks=combine(
                _verdict(expected_masks, masks[array_digest(item.output)]) for item in measured
            ),
            outputs=tuple(measured),
        )
        for measured in _by_place(outputs)
    ]
    return MeasuredTolerance(
        tolerance=tolerance,
        factor=factor,
        difference=largest_difference(list(distinct.values()), scale=scale),
        factor_needed=_factor_needed(places, scale),
        expected=expected,
        masks=expected_masks,
        places=tuple(places),
        hidden=hidden_objects(
            tolerance,
            expected,
            expected_masks,
            threshold=settings.cellprob_threshold,
            smallest_object=smallest_object,
        ),
        default_holds=all(
            SPECIFICATION_DEFAULT.is_kept(output, expected) for output in distinct.values()
        ),
    )


def masks_of_all(
    child: Child, *, outputs: Mapping[str, NDArray[np.float32]], settings: Settings
) -> dict[str, NDArray[np.uint32]]:
    """Runs in a child process: make masks of outputs."""
    from cellrepro.model.inference import masks_of_flows

    with child.prepared():
        return {name: masks_of_flows(output[0], settings) for name, output in outputs.items()}


def _verdict(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> Verdict:
    return compare_masks(a, b).verdict


def _by_place(outputs: Sequence[MeasuredOutput]) -> list[list[MeasuredOutput]]:
    """Group outputs by machine and profile, in the order of their first outputs."""
    by_place: dict[tuple[str, str], list[MeasuredOutput]] = {}
    for measured in outputs:
        place = measured.machine.name, measured.profile
        by_place.setdefault(place, []).append(measured)
    return list(by_place.values())


def _factor_needed(places: Sequence[Place], scale: float) -> float | None:
    needed = []
    for left_out in places:
        others = [place for place in places if place is not left_out]
        by_others = largest_difference(_distinct_outputs(others), scale=scale)
        by_all = largest_difference(_distinct_outputs(places), scale=scale)
        if by_others > 0:
            needed.append(by_all / by_others)
    return max(needed, default=None)


def _distinct_outputs(places: Sequence[Place]) -> list[NDArray[np.float32]]:
    outputs = [measured.output for place in places for measured in place.outputs]
    return list({array_digest(output): output for output in outputs}.values())
