"""The verb ``forecast``: the cells that other computers would give otherwise, with a page."""

from __future__ import annotations

from dataclasses import replace

from cellrepro.explanation.forecast import Forecast, ForecastExample, forecast_of
from cellrepro.run.options import SegmentationOptions
from cellrepro.show.pages.page_file import PageTarget, page_target
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings
from samebits.mode_names import Mode


def forecast(
    data: FileName,
    *,
    settings: EvalSettings | None = None,
    model: str | None = None,
    draws: int = defaults.DRAWS,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    html: FileName | None = None,
    overwrite: bool = False,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Forecast:
    """Say which cells other computers would give otherwise, from a few draws of rounding.

    Each image is segmented as usual, and a few times more with every rounded result of PyTorch
    moved by one unit in the last place, up or down at random.

    Parameters
    ----------
    data : str or Path
        Folder of images.
    settings : mapping, optional
        As for `cellrepro.segment`.
    model : str, optional
        A name of Cellpose or of this lab, a weights file, or ``KEY/REPEAT`` of a stored run. By
        default the network that Cellpose itself takes.
    draws : int
        How often each image is segmented with other rounding. Each takes little longer than the
        usual segmentation.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``. The draws have their
        own, the numbers 0, 1, 2 …, and are the same each time.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict"}
        How strictly PyTorch is held to equal results.
    html : str or Path, optional
        A file that ends in ``.html``: a page with the image whose cells differ most, the masks of
        this computer as A, and as B the draw in which most cells differ.
    overwrite : bool
        Whether a file that is there becomes the page.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    Forecast
        Image by image the cells that differ in a draw, and from how many to how many do.

    Raises
    ------
    BadInput
        If the folder cannot be read, a setting is not known, there is no draw, or the mode is
        ``portable``, in which every computer gives the same bits.

    Notes
    -----
    The forecast is about other processors, instruction sets and numbers of threads. It claims
    nothing about other versions of PyTorch or Cellpose, which may compute in another way, nor about
    bfloat16. What NumPy and OpenCV compute (normalisation, resizing) is not moved.

    Examples
    --------
    Which of my cells will differ on another computer?

    ``cellrepro forecast my_images --model cpsam``

    With more draws, and a page

    ``cellrepro forecast my_images --draws 20 --html forecast.html``
    """
    target = None
    if html is None:
        refuse_idle(("overwrite",), "without --html")
    else:
        target = page_target(html, overwrite=overwrite)
    options = SegmentationOptions.among(locals())
    foretold = forecast_of(options, draws=draws, quiet=quiet)
    if target is None or foretold.example is None:
        return foretold
    _write_page(target, foretold, foretold.example)
    return replace(foretold, html=target.path)


def _write_page(target: PageTarget, foretold: Forecast, example: ForecastExample) -> None:
    from cellrepro.comparison.mask_comparison import compare_masks
    from cellrepro.show.pages.comparison_page import ShownPair, write_comparison_page

    comparison = compare_masks(example.usual, example.masks)
    write_comparison_page(
        target,
        ShownPair(
            image_name=example.image,
            name_a="this computer",
            name_b=f"draw {example.draw}",
            a=example.usual,
            b=example.masks,
            image=example.pixels,
            comparison=comparison,
            settings=(),
            remarks=tuple(foretold.lines()),
            by_image={example.image: comparison},
        ),
    )
