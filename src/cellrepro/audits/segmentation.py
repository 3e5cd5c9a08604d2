"""Audit of a segmentation: which operations flip, and whether a tile's bits depend on the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.audits.audit_of_run import AuditOfRun, AuditOptions, checked_options
from cellrepro.audits.batch_results import BATCH_SIZES, BatchResult, batches_compared
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.run.planning import plan_segmentation
from cellrepro.spec import defaults
from samebits import NondeterministicOperation, replaying
from samebits.mode_names import Mode
from samebits.results import Row, derived, in_json
from samebits.words import amount, grouped

if TYPE_CHECKING:
    from samebits import BatchDependent, BatchInvariance


_UNPACKED = (
    "audited without the packed tensors of oneDNN (mkldnn), with which Cellpose 3 computes on a "
    "processor: their operations cannot be executed again one by one"
)


@dataclass(frozen=True, repr=False)
class SegmentationAudit(AuditOfRun):
    """The answer of an audit of a segmentation."""

    batch: BatchInvariance | None = None
    """The operations that give a tile different bits in a batch than alone; None where a function
    segments in the place of Cellpose's network."""
    batches: tuple[BatchResult, ...] = ()
    """One image segmented at several batch sizes, the smallest first."""
    image: str | None = None
    """The image that was segmented at each batch size."""
    n_tiles: int = 0
    """Tiles of that image."""
    remark: str = ""
    """How the audited computation differs from Cellpose's own; empty if it does not."""

    @derived
    def depends_on_batch(self) -> bool:
        """Whether the batch size changes the result."""
        changes_tiles = self.batch is not None and bool(self.batch.ops)
        return changes_tiles or any(result.n_differing for result in self.batches)

    @derived
    def uncompiled(self) -> tuple[str, ...]:
        """Say what ``torch.compile`` made: only its uncompiled form was audited."""
        return self.operations.uncompiled

    @property
    def differs(self) -> bool:
        """Whether an operation flips, the batch matters, or nothing was replayed."""
        return bool(self.ops) or self.depends_on_batch or not self.n_replays

    @in_json
    def sentence(self) -> str:
        """Say what flips, over how much, and what could have been missed."""
        return self.operations.sentence()

    def rows(self) -> Sequence[Row]:
        """Give one row for each batch size."""
        return [
            {
                "batch size": result.batch_size,
                "values that differ": result.n_differing,
                "largest difference": f"{result.max_abs:.2g}",
                "pixels that differ": result.n_pixels,
                "cells without a match": (
                    f"{grouped(result.n_changed)} of {grouped(result.n_cells)}"
                ),
            }
            for result in self.batches
        ]

    def lines(self) -> list[str]:
        """Give what flips, then what depends on the batch, and what that does to the cells."""
        flipping = [f"{_place_in_code(operation)}: {operation.seen}" for operation in self.ops]
        remark = [self.remark] if self.remark else []
        return [*flipping, self.sentence(), *remark, *self._batch_lines()]

    def _batch_lines(self) -> Iterator[str]:
        if self.batch is None:
            return
        yield f"batches of tiles: {self.batch.sentence()}"
        for operation in self.batch.ops:
            calls = amount(operation.calls, "call")
            yield f"    {_place_in_code(operation)}: in {calls}, by up to {operation.max_abs:.2g}"
        for result in self.batches[1:]:
            cells = amount(result.n_cells, "cell")
            yield (
                f"{self.image}, {amount(self.n_tiles, 'tile')}, batch size {result.batch_size} "
                f"compared with 1: {grouped(result.n_differing)} values of the network's output "
                f"differ, {grouped(result.n_changed)} of {cells} without a match"
            )


def _place_in_code(operation: NondeterministicOperation | BatchDependent) -> str:
    module = operation.module or "no module"
    return f"{operation.op} of {module}, {operation.source or 'no line of Python'}"


def audit_segmentation(
    data: str | Path,
    *,
    mode: Mode = "fast",
    steps: int = replaying.AUDITED_STEPS,
    replays: int = replaying.REPLAYS,
    suspects: int = replaying.SUSPECT_REPLAYS,
    threads: int | None = None,
    model: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    profile: str = defaults.PROFILE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> SegmentationAudit:
    """Replay every operation of segmenting some images, and compare batches of their tiles.

    Parameters
    ----------
    data : str or Path
        Folder of images.
    mode : {"off", "fast", "warn", "strict", "portable"}
        ``fast`` shows what flips and what depends on the batch, ``strict`` that nothing does.
    steps : int
        Images to audit. Batches are those of the first.
    replays : int
        How often each operation is executed again.
    suspects : int
        How often, if more, those that have a substitute or are documented to race.
    threads : int, optional
        CPU threads of PyTorch meanwhile; by default the profile's.
    model : str, optional
        The network, as for `cellrepro.segment`.
    seed : int, optional
        For Python, NumPy, PyTorch; by default 0, and none in mode ``off``.
    settings : mapping of str to value, optional
        Arguments of ``CellposeModel.eval`` by name, as ``diameter=60``.
    profile : str
        The numeric environment: a name, or a ``.yaml`` file.
    store : str or Path
        Where runs are stored, for a model that is named by its key; nothing is written.
    quiet : bool
        Show no progress.

    Returns
    -------
    SegmentationAudit
        Its ``str`` says what flips, over how much; in a notebook it shows a table of the batches.

    Raises
    ------
    BadInput
        If the folder or a setting cannot be used, a number is too small, or the mode is unknown.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If the process ends without finishing.
    """
    options = checked_options(steps=steps, replays=replays, suspects=suspects, threads=threads)
    segmentation = SegmentationOptions.among(locals())
    plan = plan_segmentation(segmentation)
    n_images = min(options.steps, plan.n_images)
    return in_planned_child(
        plan,
        partial(audit_images, request=plan.request, options=options),
        label="audit",
        steps=n_images + len(BATCH_SIZES),
        quiet=quiet,
    )


def audit_images(child: Child, *, request: Request, options: AuditOptions) -> SegmentationAudit:
    """Audit some images in the child, then the batches of the first."""
    from cellrepro.model.evaluator import evaluator
    from cellrepro.model.network import build
    from cellrepro.model.packed_tensors import in_plain_layout, packs_tensors

    with ExitStack() as stack:
        device = stack.enter_context(child.prepared())
        dtype = child.setup.profile.dtype
        network = build(request.model, seed=request.spec.seed, device=device, dtype=dtype)
        remark = _UNPACKED if packs_tensors(network) else ""
        stack.enter_context(in_plain_layout(network))
        evaluate = evaluator(network)
        arguments = request.spec.settings.arguments()
        images = read_images(request).to_segment[: options.steps]
        child.setup.seed_all()
        images_to_come = iter(images)

        def step() -> None:
            image = next(images_to_come)
            evaluate(image.image, stack=image.stack, **arguments)
            child.tell("done", f"{image.name} audited")

        operations = options.audited(step, steps=len(images), model=network)
        compared = batches_compared(child, network, evaluate, images[0], arguments)
    return SegmentationAudit(
        spec=request.spec,
        operations=operations,
        remark=remark,
        batch=compared.batch,
        batches=compared.batches,
        image=images[0].name,
        n_tiles=compared.n_tiles,
    )
