"""The command `segment`: one spec segmented several times, and is every mask the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cellrepro.run.masks_folder import refuse_masks, write_masks
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.repeats import carry_out
from cellrepro.spec import defaults
from cellrepro.spec.defaults import LedgerKind
from cellrepro.terminal import IN_PYTHON, FileName, Quiet
from cellrepro.terminal_values import EvalSettings
from samebits.mode_names import Mode


def segment(
    data: FileName,
    *,
    model: str | None = None,
    seed: int | None = None,
    settings: EvalSettings | None = None,
    batch_size: int | None = None,
    cellpose: str | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    ledger: LedgerKind = defaults.LEDGER,
    loose: Annotated[str | None, IN_PYTHON] = None,
    repeats: int = defaults.SEGMENTATIONS,
    masks_into: FileName | None = None,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Outcome:
    """Segment the same images ``repeats`` times, each in a process of its own, and compare.

    Parameters
    ----------
    data : str or Path
        Folder of images, or one image file; masks need not exist.
    model : str, optional
        A name of Cellpose, a weights file, or ``KEY/REPEAT`` of a stored training. By default the
        network that Cellpose itself takes, in the version that segments.
    seed : int, optional
        For Python, NumPy, PyTorch; by default 0, and none in mode ``off``.
    settings : mapping of str to value, optional
        Arguments of ``CellposeModel.eval`` by name, as ``diameter=60``.
    batch_size : int, optional
        How many tiles of an image the network sees at once; may be given among the settings, too.
    cellpose : str, optional
        A different version in an environment of its own, ``"4.0.9"``; see docs/grids.md.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    ledger : {"off", "steps", "ops"}
        What is written down of the computation, for `diverge`.
    loose : str, optional
        The one operation that mode ``strict`` leaves as it is.
    repeats : int
        How often; 2 are needed for a verdict.
    masks_into : str or Path, optional
        A new folder for NAME_masks.tif, and NAME_masks.json: how they were made.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Outcome
        Its ``str`` is the verdict in a sentence; in a notebook it shows a table of the repeats,
        too.

    Raises
    ------
    BadInput
        If the folder cannot be read, or an option or setting cannot be used or would be ignored.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If a process ends without finishing.

    Examples
    --------
    Segment a folder three times; is every mask the same?

    ``cellrepro segment my_images --repeats 3``

    Segment once with your settings, and write the masks

    ``cellrepro segment my_images --repeats 1 --set diameter=60 --masks-into masks``
    """
    options = SegmentationOptions.among(locals())
    if masks_into is not None:
        refuse_masks(Path(masks_into), Path(data))
    outcome = carry_out(plan_segmentation(options), repeats=repeats, quiet=quiet)
    if masks_into is None:
        return outcome
    write_masks(outcome.repeats[0], Path(masks_into), data=Path(data))
    return replace(outcome, masks_into=Path(masks_into))
