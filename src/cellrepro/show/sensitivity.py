"""What each setting of a segmentation does to the cells: measured, with pictures on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cellrepro.explanation.sensitivity import Sensitivity, sensitivity_of
from cellrepro.run.options import SegmentationOptions
from cellrepro.spec import defaults
from cellrepro.store.whole_files import refuse_existing, whole_file
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings, Several
from samebits.mode_names import Mode


def refuse_figures(folder: Path) -> None:
    """Refuse a folder that holds pictures, before anything is computed for it."""
    if not folder.is_dir():
        refuse_existing(folder)
    refuse_existing(*sorted(folder.glob("*.png")))


def setting_figures(sensitivity: Sensitivity, folder: Path) -> dict[str, Path]:
    """Write, of each setting that changes cells, the image that it changes most."""
    from cellrepro.show.figures.sensitivity import setting_picture

    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, example in sensitivity.examples.items():
        files[name] = folder / f"{name}.png"
        with whole_file(files[name]) as scratch:
            setting_picture(example).savefig(scratch, dpi=150, format="png")
    return files


def sensitivity(
    data: FileName,
    *,
    settings: EvalSettings | None = None,
    vary: Several | None = None,
    model: str | None = None,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    figures: FileName | None = None,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Sensitivity:
    """Segment the images of a folder with each setting varied by itself, and compare the cells.

    Parameters
    ----------
    data : str or Path
        Folder of images; where there are masks, every variant is scored against them.
    settings : mapping, optional
        The settings that you use, as ``diameter=60``, by default Cellpose's own: each value of
        ``vary`` takes the place of one of them.
    vary : mapping, optional
        Values by setting, as ``diameter=20,40``, in the place of the usual ones; settings that it
        does not name stay as they are.
    model : str, optional
        A name of Cellpose or of this lab, a weights file, or ``KEY/REPEAT`` of a stored run. By
        default the network that Cellpose itself takes.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    figures : str or Path, optional
        A new folder for a picture of each setting.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    Sensitivity
        A setting that changes nothing is in it, too, with how many cells it did not change.

    Raises
    ------
    BadInput
        If the folder cannot be read, a setting is not known, or Cellpose would ignore a value.

    Examples
    --------
    How many cells does each setting change?

    ``cellrepro sensitivity my_images``

    Only the diameter, with these values, and plots of it

    ``cellrepro sensitivity my_images --vary diameter=20,40 --figures plots``
    """
    if figures is not None:
        refuse_figures(Path(figures))
    options = SegmentationOptions.among(locals())
    measured = sensitivity_of(options, vary, quiet=quiet)
    if figures is None:
        return measured
    return replace(measured, figures=setting_figures(measured, Path(figures)))
