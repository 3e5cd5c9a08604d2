"""Audit of a segmentation: which operations flip, and whether a tile's bits depend on the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.spec import Spec
from cellrepro.audits.training import audit_options
from cellrepro.determinism.modes import Mode
from cellrepro.errors import whole
from cellrepro.images.folder import LabelledImage
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions, WrapOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.wrapped_function import plan_function
from cellrepro.same.metrics import compare_masks
from cellrepro.trace.batch_invariance import BatchInvariance
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation

if TYPE_CHECKING:
    from cellrepro.trace.operation_audit import Audit

BATCH_SIZES = (1, 3, 8, 16)
"""At which an image is segmented; the first is what the others are compared with."""

_MOST_TILES = 8  # in the batch whose operations are compared


@dataclass(frozen=True)
class BatchResult:
    """An image segmented with one batch size, beside tile by tile."""

    batch_size: int
    n_differing: int  # of the values of flows and cell probability
    max_abs: float
    n_pixels: int  # of masks that differ
    n_changed: int  # cells of both sides without a counterpart at IoU 0.5
    n_cells: int  # of both sides


@dataclass(frozen=True)
class SegmentationAudit:
    """What the audit of a segmentation found; the counts: `trace.operation_audit.Audit`."""

    spec: Spec
    ops: tuple[NondeterministicOperation, ...]  # whose bits flip, most flips first
    n_steps: int  # images
    n_replays: int
    threads: int
    kinds: dict[str, int]
    replays: dict[str, int]
    sentence: str
    batch: BatchInvariance | None = None  # these and the next are of Cellpose's network alone
    batches: tuple[BatchResult, ...] = ()
    image: str | None = None  # that was segmented at each batch size
    n_tiles: int = 0  # it has

    @property
    def depends_on_batch(self) -> bool:
        """Whether anything came out otherwise in another batch."""
        return bool(self.batch and self.batch.ops) or any(one.n_differing for one in self.batches)


def audit_segmentation(
    data: str | Path,
    *,
    mode: Mode = "fast",
    steps: int | None = None,
    replays: int | None = None,
    suspects: int | None = None,
    threads: int | None = None,
    model: str = defaults.MODEL,
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
    mode : str
        ``fast`` shows what flips and what depends on the batch, ``strict`` that nothing does.
    steps : int, optional
        Images to audit; default 3. Batches are those of the first.
    replays, suspects, threads : int, optional
        As for `cellrepro.audit`.
    model, seed, settings, profile, store, quiet
        As for `cellrepro.segment`.
    """
    options = audit_options(replays=replays, suspects=suspects, threads=threads)
    n_images = whole("steps", 3 if steps is None else steps, least=1)
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
    n_images = min(n_images, plan.n_images)
    return in_child(
        partial(audited, request=plan.request, n_images=n_images, options=options),
        plan.request.setup,
        label="audit",
        steps=n_images + len(BATCH_SIZES) + 2,
        quiet=quiet,
    )


def audited(
    child: Child, *, request: Request, n_images: int, options: dict[str, int]
) -> SegmentationAudit:
    """Inside the child: audit some images, then the batches of the first."""
    from cellrepro.model.inference import evaluator
    from cellrepro.model.network import build
    from cellrepro.trace.batch_invariance import batch_invariance
    from cellrepro.trace.operation_audit import audit

    with child.prepared() as device:
        dtype = child.setup.profile.dtype
        network = build(request.model, seed=request.spec.seed, device=device, dtype=dtype)
        evaluate, given = evaluator(network), request.spec.settings.arguments()
        images = segmented_part(read_images(request))[:n_images]
        child.setup.seed_all()
        left = iter(images)

        def step() -> None:
            image = next(left)
            evaluate(image.image, stack=image.stack, **given)
            child.tell("done", f"{image.name} audited")

        found = audit(step, steps=len(images), model=network, **options)
        first = images[0]
        results = []
        for size in BATCH_SIZES:
            results.append(evaluate(first.image, stack=first.stack, **given | {"batch_size": size}))
            child.tell("done", f"batch size {size}")
        tiles = _tiles(network, evaluate, first, given)
        many = _at_least_two(tiles)[:_MOST_TILES]
        invariance = batch_invariance(evaluate.model.net, many, model=network)
    beside = tuple(_beside(results, size, i) for i, size in enumerate(BATCH_SIZES))
    return _told(request, found, invariance, beside, first.name, len(tiles))


def _told(request: Request, found: Audit, *of_batches: Any) -> SegmentationAudit:
    names = ("ops", "n_steps", "n_replays", "threads", "kinds", "replays")
    told: list[Any] = [*(getattr(found, name) for name in names), found.sentence(), *of_batches]
    return SegmentationAudit(request.spec, *told)


def audit_function(
    function: str,
    data: str | Path,
    *,
    steps: int | None = None,
    replays: int | None = None,
    suspects: int | None = None,
    threads: int | None = None,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> SegmentationAudit:
    """Replay every operation of PyTorch in a function that segments; see `cellrepro.wrap_python`.

    One that calls none has nothing to replay, and that is said. Steps are images.
    """
    options = audit_options(replays=replays, suspects=suspects, threads=threads)
    n_images = whole("steps", 3 if steps is None else steps, least=1)
    segmenter = WrapOptions(data=data, mode=mode, seed=seed, profile=profile, store=store)
    plan = plan_function(segmenter, function)
    n_images = min(n_images, plan.n_images)
    return in_child(
        partial(function_audited, request=plan.request, n_images=n_images, options=options),
        plan.request.setup,
        label="audit",
        steps=n_images,
        quiet=quiet,
    )


def function_audited(
    child: Child, *, request: Request, n_images: int, options: dict[str, Any]
) -> SegmentationAudit:
    """Inside the child: audit a function on some images."""
    from cellrepro.trace.operation_audit import audit

    with child.prepared(), child.loosened():
        images = segmented_part(read_images(request))[:n_images]
        left = request.results(None, images, Path())

        def step() -> None:
            child.tell("done", f"{next(left).name} audited")

        return _told(request, audit(step, steps=len(images), **options))


def _tiles(network: Any, evaluate: Any, image: LabelledImage, given: dict[str, Any]) -> Any:
    """What the network is given for an image, all tiles together."""
    import torch

    seen: list[Any] = []
    hook = network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    try:
        evaluate(image.image, stack=image.stack, **given | {"batch_size": BATCH_SIZES[-1]})
    finally:
        hook.remove()
    return torch.cat(seen)


def _at_least_two(tiles: Any) -> Any:
    """Of an image with few tiles some more of the same, moved, so that no two are alike."""
    import torch

    moved = [torch.roll(tiles, by, dims=-1) for by in (16, 48, 80)] if len(tiles) < 4 else []
    return torch.cat([tiles, *moved])


def _beside(results: Sequence[list[np.ndarray]], size: int, i: int) -> BatchResult:
    (masks, *outputs), (own, *found) = results[0], results[i]
    pairs = list(zip(outputs, found, strict=True))
    result = compare_masks(masks, own)
    return BatchResult(
        size,
        sum(int(np.count_nonzero(a != b)) for a, b in pairs),
        max(float(np.abs(a - b).max()) for a, b in pairs),
        result.n_differing,
        result.n_unmatched,
        result.n_objects_a + result.n_objects_b,
    )
