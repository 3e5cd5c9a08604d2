"""What a forecast draws, beside what other machines really give for the same images.

First the passes are made and kept in a folder, each once, also in environments with other versions
of PyTorch; then they are held against each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from cellrepro import Store
from cellrepro.comparison.distinct_results import distinct_results
from cellrepro.comparison.label_pair import read_pair
from cellrepro.comparison.mask_comparison import counts_of
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.object_groups import group_objects
from cellrepro.comparison.object_matching import overlap, partners
from cellrepro.images.folder import LabelledImage
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.profiles.profiles import load
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from evidence_tables.table import Row, StoreOfRuns, Table

MACHINES = Table(
    "forecast_machines", known_by=("images", "network", "precision", "machine", "torch", "draw")
)
COVERAGE = Table(
    "forecast_coverage", known_by=("images", "network", "precision", "machine", "torch", "draws")
)
COST = Table("forecast_cost", known_by=("images", "network"))

SCRIPTS = Path(__file__).resolve().parents[1]
USUAL = "usual"
USUAL_PROFILE = "cpu"
NO_DRAW = "none"
ANOTHER_DRAW = "another draw"
NEAR = 1.0
"""Pixels are held against each other whose logit is so near the threshold, 0, as usually made."""
N_DRAWS = (1, 2, 3, 5, 7, 10, 15, 20)

Several = Annotated[Sequence[str], Parameter(consume_multiple=True)]


# -- making passes -------------------------------------------------------------------------------


def forecast_passes(
    store: StoreOfRuns,
    folder: Path,
    *,
    model: str,
    passes: Path,
    profiles: Several = (USUAL_PROFILE,),
    precision: str = "float32",
    draws: int = 0,
) -> None:
    """Segment the images of a folder on these profiles, and keep what the network gave.

    On the profile cpu also in so many draws.
    """
    import torch

    request = request_of(folder, model, store)
    network = request.spec.model.split("/")[0]
    for name in profiles:
        profile = load(name).model_copy(update={"dtype": precision})
        place = passes / folder.name / network / precision / f"{name}@{torch.__version__}"
        place.mkdir(parents=True, exist_ok=True)
        in_child(
            partial(keep_passes, request=request, place=place, draws=draws * (name == "cpu")),
            replace(request.setup, profile=profile),
            label=f"{folder.name}, {precision}, {name}",
            steps=2 + draws * (name == "cpu"),
            variables={"PYTHONPATH": str(SCRIPTS)},
        )


def request_of(folder: Path, model: str, store: Store) -> Request:
    """To segment the images of a folder with Cellpose's own settings."""
    options = SegmentationOptions(data=folder, model=model, store=store.root)
    return plan_segmentation(options).request


def keep_passes(child: Child, *, request: Request, place: Path, draws: int) -> None:
    """Runs in a child process: write a file for each pass that has none."""
    with child.opened(request.model) as (network, _):
        from cellpose import dynamics

        from cellrepro.model.evaluator import evaluator
        from cellrepro.model.patching import replaced
        from samebits import perturbed

        evaluate = evaluator(network)
        images = read_images(request).to_segment
        settings = request.spec.settings.arguments()
        flow_error = dynamics.flow_error
        judged = []

        def recorded(masks, flows, device=None):  # type: ignore[no-untyped-def]
            errors, flows_of_masks = flow_error(masks, flows, device=device)
            judged.append((masks.copy(), errors))
            return errors, flows_of_masks

        for draw in (None, *range(draws)):
            file = place / f"{USUAL if draw is None else draw}.npz"
            if file.exists():
                continue
            arrays = {}
            begun = time.process_time()
            with (
                replaced(dynamics, "flow_error", recorded),
                nullcontext() if draw is None else perturbed(draw),
            ):
                for image in images:
                    judged.clear()
                    output = evaluate(image.image, stack=image.stack, **settings)
                    candidates, errors = judged[0] if judged else (np.zeros((1, 1)), np.zeros(0))
                    arrays |= {
                        f"{image.name}:probability": output.probability.astype(np.float32),
                        f"{image.name}:flows": output.flows.astype(np.float32),
                        f"{image.name}:masks": output.masks.astype(np.int32),
                        f"{image.name}:candidates": candidates,
                        f"{image.name}:errors": errors,
                    }
            np.savez(file, seconds=time.process_time() - begun, **arrays)
            child.tell("done", file.stem)


def forecast_cost(store: StoreOfRuns, folder: Path, *, model: str, rounds: int = 5) -> None:
    """Time of a draw beside that of a segmentation as usual, of the images of a folder."""
    request = request_of(folder, model, store)
    seconds = in_child(
        partial(timed, request=request, rounds=rounds),
        replace(request.setup, profile=load(USUAL_PROFILE)),
        label="time",
        variables={"PYTHONPATH": str(SCRIPTS)},
    )
    ratios = seconds[:, 1] / seconds[:, 0]
    COST.keep(
        {
            "images": folder.name,
            "network": request.spec.model.split("/")[0],
            "plain": np.median(seconds[:, 0]),
            "draw": np.median(seconds[:, 1]),
            "ratio": np.median(ratios),
            "lowest": ratios.min(),
            "highest": ratios.max(),
            "rounds": rounds,
        }
    )


def timed(child: Child, *, request: Request, rounds: int) -> NDArray[np.float64]:
    """Runs in a child process: in each round the processor's time as usual and of a draw."""
    with child.opened(request.model) as (network, _):
        from cellrepro.model.evaluator import evaluator
        from samebits import perturbed

        evaluate = evaluator(network)
        images = read_images(request).to_segment
        settings = request.spec.settings.arguments()

        def seconds_of(image: LabelledImage) -> float:
            begun = time.process_time()
            evaluate(image.image, stack=image.stack, **settings)
            return time.process_time() - begun

        seconds_of(images[0])  # the first pass prepares what later ones find
        seconds = np.zeros((rounds, 2))
        for of_round in seconds:
            for image in images:
                of_round[0] += seconds_of(image)
                with perturbed(0):
                    of_round[1] += seconds_of(image)
        return seconds


# -- holding them against each other -------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """One segmentation of all images of a folder."""

    file: Path

    @property
    def profile(self) -> str:
        """On which it was made."""
        return self.file.parent.name.partition("@")[0]

    @property
    def torch(self) -> str:
        """The version of PyTorch."""
        return self.file.parent.name.partition("@")[2].partition("+")[0]

    @property
    def precision(self) -> str:
        """In which it was made."""
        return self.file.parents[1].name

    @cached_property
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """What it gave, by image and kind."""
        with np.load(self.file) as kept:
            return dict(kept)

    @property
    def images(self) -> list[str]:
        """The names of the images."""
        return [name.removesuffix(":masks") for name in self.arrays if name.endswith(":masks")]

    @property
    def seconds(self) -> float:
        """Time of the processor."""
        return float(self.arrays["seconds"])

    @property
    def n_cells(self) -> int:
        """Cells of all images."""
        return sum(len(np.unique(self.of(image, "masks"))) - 1 for image in self.images)

    def of(self, image: str, kind: str) -> NDArray[np.generic]:
        """What it gave for an image: probability, flows, masks, candidates or their errors."""
        return self.arrays[f"{image}:{kind}"]


Numbers = Callable[[Pass, Pass, str], "NDArray[np.float64] | None"]
"""What a threshold is held to: of a pass, beside the usual one, of an image; none if not there."""


def forecast(passes: Path) -> None:
    """Hold all machines of a folder of passes, and their bands, against the usual results."""
    for usual in sorted(passes.glob(f"*/*/*/{USUAL_PROFILE}@*/{USUAL}.npz")):
        images, network = usual.relative_to(passes).parts[:2]
        held = Held(Pass(usual), images=images, network=network)
        if held.draws and held.machines:
            MACHINES.keep(*held.machine_rows())
            COVERAGE.keep(*held.coverage_rows())


@dataclass(frozen=True)
class Differing:
    """What differs of one image from the usual result, in each of some results."""

    pixels: Sequence[NDArray[np.bool_]]
    """Pixels of another cell, or of none."""
    cells: Sequence[set[int]]
    """Cells that are not kept, by numbers that hold for all results."""

    @classmethod
    def of(cls, usual: NDArray[np.generic], others: Sequence[NDArray[np.generic]]) -> Differing:
        """Follow cells as `cellrepro forecast` does."""
        results = distinct_results([usual, *others])
        groups = group_objects(results)
        pixels = [np.zeros(usual.shape, bool) for _ in others]
        cells: list[set[int]] = [set() for _ in others]
        for result, groups_of in zip(results[1:], groups.by_result[1:], strict=True):
            counts = counts_of(read_pair(results[0].image, result.image))
            differing = {
                group
                for change in counts.objects
                if change.kind != ObjectKind.KEPT
                for group in change.labels_a or groups_of[[*change.labels_b]].tolist()
            }
            for run in result.runs:
                pixels[run - 1] = differing_pixels(results[0].image, result.image)
                cells[run - 1] = differing
        return cls(pixels, cells)

    def count(self, index: int) -> NDArray[np.int64]:
        """Pixels and cells that differ in one result."""
        return np.array([self.pixels[index].sum(), len(self.cells[index])])

    def count_also_in(self, index: int, others: Sequence[int]) -> NDArray[np.int64]:
        """Those of them that differ also in any of some others."""
        pixels = np.any([self.pixels[other] for other in others], axis=0)
        cells = set().union(*(self.cells[other] for other in others))
        return np.array([(self.pixels[index] & pixels).sum(), len(self.cells[index] & cells)])


def differing_pixels(
    usual: NDArray[np.unsignedinteger], other: NDArray[np.unsignedinteger]
) -> NDArray[np.bool_]:
    """Pixels that are of no counterpart of their cell."""
    table = overlap(usual, other)
    chosen = partners(table)
    counterparts = np.full(table.n_a + 1, -1)
    counterparts[0] = 0
    counterparts[table.labels_a[table.rows[chosen]]] = table.labels_b[table.columns[chosen]]
    return counterparts[usual] != other


class Held:
    """A usual result, what other machines gave, and the draws."""

    def __init__(self, usual: Pass, *, images: str, network: str) -> None:
        self.usual = usual
        self.images = images
        self.network = network
        draws = [file for file in usual.file.parent.iterdir() if file != usual.file]
        self.draws = [Pass(file) for file in sorted(draws, key=lambda file: int(file.stem))]
        others = map(Pass, sorted(usual.file.parents[2].glob(f"*/*/{USUAL}.npz")))
        self.machines = [other for other in others if is_compared(other, usual)]
        everything = [*self.machines, *self.draws]
        self.differing = [
            Differing.of(usual.of(image, "masks"), [one.of(image, "masks") for one in everything])
            for image in usual.images
        ]

    def machine_rows(self) -> Iterator[Row]:
        """How far each machine and each draw is from the usual result."""
        yield self._row_of(self.usual, [0, 0], NO_DRAW)
        for index, one in enumerate([*self.machines, *self.draws]):
            draw = one.file.stem if index >= len(self.machines) else NO_DRAW
            yield self._row_of(one, sum(image.count(index) for image in self.differing), draw)

    def _row_of(self, one: Pass, n_differing: Sequence[int], draw: str) -> Row:
        change = {kind: self._change(one, kind) for kind in ("flows", "probability")}
        return {
            **self._known(one),
            "draw": draw,
            "rms_flows": rms(change["flows"]),
            "rms_probability": rms(change["probability"]),
            "rms_near": rms(self._change_near_threshold(one)),
            "largest": max(np.abs(values).max() for values in change.values()),
            "pixels": n_differing[0],
            "cells": n_differing[1],
            "n_images": len(one.images),
            "n_pixels": sum(one.of(image, "masks").size for image in one.images),
            "n_cells": one.n_cells,
            "seconds": one.seconds,
        }

    def coverage_rows(self) -> Iterator[Row]:
        """What of the differences of each machine lies in the band of so many draws.

        The last draw is held to the others, too, as a machine that rounds as a draw does.
        """
        for index, machine in enumerate(self.machines):
            if self._change(machine, "probability").any():
                yield from self._rows_of_coverage(self._known(machine), machine, index, N_DRAWS)
        last = self.draws[-1]
        named = {**self._known(last), "machine": ANOTHER_DRAW}
        fewer = [n for n in N_DRAWS if n < len(self.draws)]
        yield from self._rows_of_coverage(named, last, len(self.machines + self.draws) - 1, fewer)

    def _rows_of_coverage(
        self, known: Row, machine: Pass, index: int, n_draws: Sequence[int]
    ) -> Iterator[Row]:
        for n in [n for n in n_draws if n <= len(self.draws)]:
            of_draws = range(len(self.machines), len(self.machines) + n)
            pixels, cells = sum(image.count(index) for image in self.differing)
            also = sum(image.count_also_in(index, of_draws) for image in self.differing)
            yield {
                **known,
                "draws": n,
                "pixel_thresholds": self._thresholds(machine, n, near_logits),
                "cell_thresholds": self._thresholds(machine, n, flow_errors),
                "pixels": pixels,
                "pixels_foretold": also[0],
                "cells": cells,
                "cells_foretold": also[1],
            }

    def _known(self, one: Pass) -> Row:
        is_other_type = one.precision != self.usual.precision
        return {
            "images": self.images,
            "network": self.network,
            "precision": self.usual.precision,
            "machine": f"{one.profile}-{one.precision}" if is_other_type else one.profile,
            "torch": one.torch,
        }

    def _change(self, one: Pass, kind: str) -> NDArray[np.float64]:
        """All numbers of one kind, minus the usual ones."""
        changes = [
            one.of(image, kind).astype(float) - self.usual.of(image, kind)
            for image in self.usual.images
        ]
        return np.concatenate([change.ravel() for change in changes])

    def _change_near_threshold(self, one: Pass) -> NDArray[np.float64]:
        """The change of the logits that are near the threshold."""
        logits = [
            [near_logits(each, self.usual, image) for image in one.images]
            for each in (one, self.usual)
        ]
        return np.concatenate(logits[0]) - np.concatenate(logits[1])

    def _thresholds(self, machine: Pass, n_draws: int, numbers: Numbers) -> float | None:
        """Of all thresholds between a machine's numbers and the usual ones those in the band."""
        inside = 0.0
        whole = 0.0
        for image in machine.images:
            usual, other, *drawn = (
                numbers(one, self.usual, image)
                for one in (self.usual, machine, *self.draws[:n_draws])
            )
            if usual is None or other is None:
                continue
            band = np.stack([usual, *(values for values in drawn if values is not None)])
            inside += np.abs(np.clip(other, band.min(0), band.max(0)) - usual).sum()
            whole += np.abs(other - usual).sum()
        return inside / whole if whole else None


def rms(values: NDArray[np.float64]) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(values**2)))


def near_logits(one: Pass, usual: Pass, image: str) -> NDArray[np.float64]:
    """The logits of pixels that are near the threshold."""
    is_near = np.abs(usual.of(image, "probability")) < NEAR
    return one.of(image, "probability")[is_near].astype(float)


def flow_errors(one: Pass, usual: Pass, image: str) -> NDArray[np.float64] | None:
    """The flow errors of all candidates for a cell, where these are the usual candidates."""
    if not np.array_equal(one.of(image, "candidates"), usual.of(image, "candidates")):
        return None
    return one.of(image, "errors").astype(float)


def is_compared(other: Pass, usual: Pass) -> bool:
    """Whether it is of the same type, or the counterexample: the usual profile in bfloat16."""
    if other.file == usual.file:
        return False
    is_usual_profile = (other.profile, other.torch) == (usual.profile, usual.torch)
    return other.precision == usual.precision or (
        is_usual_profile and (other.precision, usual.precision) == ("bfloat16", "float32")
    )
