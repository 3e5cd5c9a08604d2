"""Audit of a function that segments in the place of Cellpose."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cellrepro.audits.audit_of_run import AuditOptions, checked_options
from cellrepro.audits.segmentation import SegmentationAudit
from cellrepro.process.child import Child
from cellrepro.run.function_segmenter import plan_function
from cellrepro.run.inputs import read_images
from cellrepro.run.options import WrapOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.spec import defaults
from samebits import replaying
from samebits.mode_names import Mode


def audit_function(
    function: str,
    data: str | Path,
    *,
    steps: int = replaying.AUDITED_STEPS,
    replays: int = replaying.REPLAYS,
    suspects: int = replaying.SUSPECT_REPLAYS,
    threads: int | None = None,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> SegmentationAudit:
    """Replay every operation of PyTorch in a function that segments.

    One that calls none has nothing to replay, and that is said.

    Parameters
    ----------
    function : str
        ``MODULE:FUNCTION``, as for `cellrepro.wrap_python`.
    data : str or Path
        Folder of images.
    steps : int
        Images to audit.
    replays : int
        How often each operation is executed again.
    suspects : int
        How often, if more, those that have a substitute or are documented to race.
    threads : int, optional
        CPU threads of PyTorch meanwhile; by default the profile's.
    mode : {"off", "fast", "warn", "strict", "portable"}
        In force around the function.
    seed : int, optional
        For Python, NumPy, PyTorch; by default 0, and none in mode ``off``.
    profile : str
        The numeric environment: a name, or a ``.yaml`` file.
    store : str or Path
        As for `cellrepro.wrap_python`; nothing is written.
    quiet : bool
        Show no progress.

    Returns
    -------
    SegmentationAudit
        Without batches, which are of Cellpose's network alone.

    Raises
    ------
    BadInput
        If the folder or the function cannot be used, or a number is too small.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If the function raises, or the process ends without finishing.
    """
    options = checked_options(steps=steps, replays=replays, suspects=suspects, threads=threads)
    segmenter = WrapOptions(data=data, mode=mode, seed=seed, profile=profile, store=store)
    plan = plan_function(segmenter, function)
    return in_planned_child(
        plan,
        partial(audit_calls, request=plan.request, options=options),
        label="audit",
        steps=min(options.steps, plan.n_images),
        quiet=quiet,
    )


def audit_calls(child: Child, *, request: Request, options: AuditOptions) -> SegmentationAudit:
    """Audit a function on some images, in the child."""

    with child.prepared(), child.loosened():
        images = read_images(request).to_segment[: options.steps]
        results = request.results(None, images, Path())

        def step() -> None:
            child.tell("done", f"{next(results).name} audited")

        operations = options.audited(step, steps=len(images))
    return SegmentationAudit(spec=request.spec, operations=operations)
