"""What each setting of a segmentation does to the cells: measured, and drawn on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.determinism.mode_names import Mode
from cellrepro.explanation.sensitivity import sensitivity_of
from cellrepro.explanation.sensitivity_result import Sensitivity
from cellrepro.run.options import SegmentationOptions
from cellrepro.show.figures import style
from cellrepro.show.figures.masks import difference
from cellrepro.show.figures.style import SERIES, WIDTH, Picture
from cellrepro.spec import defaults
from cellrepro.spec.field_words import setting_in_words
from cellrepro.store.new_files import refuse_existing
from cellrepro.store.whole_files import whole_file
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings, Overrides
from cellrepro.words import amount, share_text, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from cellrepro.explanation.sensitivity_result import Example, Variant

_MOST_BARS = 14


def setting_bars(sensitivity: Sensitivity) -> Picture:
    """Draw the share of cells that each setting changes by itself.

    A bar for each value, the largest first, with its 95 % interval as a black line. What changes no
    pixel is named in the caption.

    Parameters
    ----------
    sensitivity : Sensitivity
        From `cellrepro.sensitivity`.

    Returns
    -------
    Picture
    """
    cells = f"{amount(sensitivity.objects, 'cell')} in {amount(sensitivity.images, 'image')}"
    caption = _caption(sensitivity, cells)
    shown = [variant for variant in sensitivity.settings if variant.changed][:_MOST_BARS]
    if not shown:
        return style.note(f"no setting changes any of {cells}").described("", caption)
    figure = Picture(WIDTH, 1.2 + 0.34 * len(shown))
    _draw_bars(figure.subplots(), shown, sensitivity.ap50)
    first = shown[0]
    heading = f"{first.setting} changes most: {first.n_changed} of {first.n_cells} cells"
    bars = "; ".join(f"{variant.setting}: {share_text(variant.changed)}" for variant in shown)
    return figure.described(heading, caption, f"Bar chart of cells: {bars}.")


def _draw_bars(axes: Axes, variants: Sequence[Variant], usual_ap50: float | None) -> None:
    shares = np.array([100 * variant.changed for variant in variants])
    lows = np.array([_low(variant) for variant in variants])
    highs = np.array([_high(variant) for variant in variants])
    bars = axes.barh(
        range(len(variants)),
        shares,
        xerr=np.abs([lows - shares, highs - shares]),
        hatch="..",
        linewidth=0.6,
        height=0.62,
        color=SERIES[3],
        edgecolor="black",
    )
    style.rows(axes, [variant.setting for variant in variants], size=9)
    texts = [_beside(variant, usual_ap50) for variant in variants]
    style.texts_beside(axes, bars, texts, highs)
    style.label_axes(axes, x="cells that change, %")


def _low(variant: Variant) -> float:
    """Lower end of its interval, in per cent; where there is none, its share."""
    return 100 * (variant.interval[0] if variant.interval else variant.changed)


def _high(variant: Variant) -> float:
    """Upper end of its interval, in per cent; where there is none, its share."""
    return 100 * (variant.interval[1] if variant.interval else variant.changed)


def _caption(sensitivity: Sensitivity, cells: str) -> str:
    caption = (
        "A cell is changed if the other masks have none that overlaps it by half (IoU 0.5), among "
        f"the cells of both, the usual and the other; {cells} with the usual settings. Black "
        f"lines: 95 % intervals {_interval_kind(sensitivity)}. Lost, gained, split, merged, and "
        "shifted or reshaped are counted as `compare` does: a cell that is shifted or reshaped is "
        "changed only where it overlaps its counterpart by less than half."
    )
    if sensitivity.ap50 is not None:
        caption += f" AP@0.5 with the usual settings is {sensitivity.ap50:.2f}."
    idle = [variant.setting for variant in sensitivity.settings if not variant.ppm]
    if idle:
        caption += f" No pixel changes with {some(idle, len(idle))}."
    return caption


def _interval_kind(sensitivity: Sensitivity) -> str:
    if any(variant.interval_over == "images" for variant in sensitivity.settings):
        return "over images (bootstrap)"
    return "over cells (binomial, since images are fewer than three)"


def _setting(changed: Variant | Example) -> str:
    return setting_in_words(f"settings.{changed.name}", changed.value)


def _beside(variant: Variant, usual_ap50: float | None) -> str:
    """The text beside a bar: cells changed, what became of them, the score if there is a truth."""
    parts = [f"{variant.n_changed} of {variant.n_cells}"]
    changed = {kind: n for kind, n in variant.kinds.items() if n and kind != ObjectKind.KEPT}
    parts += [f"{n} {ObjectKind(kind).in_words}" for kind, n in changed.items()]
    if usual_ap50 is not None and variant.ap50 is not None:
        parts.append(f"AP@0.5 {variant.ap50:.2f}")
    return ", ".join(parts)


def setting_picture(example: Example) -> Picture:
    """Draw what one setting does to the image that it changes most."""
    setting = _setting(example)
    picture = difference(
        example.pixels, example.usual, example.masks, name_a="usual", name_b=setting
    )
    share = share_text(example.share)
    return picture.described(f"{example.image} with {setting}: {share} of its cells change")


def refuse_figures(folder: Path) -> None:
    """Refuse a folder that holds pictures, before anything is computed for it."""
    if not folder.is_dir():
        refuse_existing(folder)
    refuse_existing(*sorted(folder.glob("*.png")))


def setting_figures(sensitivity: Sensitivity, folder: Path) -> dict[str, Path]:
    """Write, of each setting that changes cells, the image that it changes most."""
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
    vary: Overrides | None = None,
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
        Beside which each is varied, ``{"diameter": 60}``; default Cellpose's own.
    vary : mapping, optional
        Values by setting, in the place of the usual ones; settings that it does not name stay as
        they are.
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

    ``cellrepro sensitivity my_images --vary "diameter=[20, 40]" --figures plots``
    """
    if figures is not None:
        refuse_figures(Path(figures))
    options = SegmentationOptions.among(locals())
    measured = sensitivity_of(options, vary, quiet=quiet)
    if figures is None:
        return measured
    return replace(measured, figures=setting_figures(measured, Path(figures)))
