"""The verb ``forecast``: what other computers would give, of images or a training, with a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cellrepro.divergence.growth_forecast import GrowthForecast, growth_forecast_of
from cellrepro.exchange.input_lookup import find_images
from cellrepro.exchange.plan_again import RecordedRun, plan_again
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.explanation.forecast import Forecast, ForecastExample, forecast_of
from cellrepro.run.options import SegmentationOptions
from cellrepro.show.pages.forecast_page import write_forecast_page
from cellrepro.show.pages.page_file import PageTarget, page_target
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings
from cellrepro.words import as_sentence
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.words import amount, joined


def forecast(
    data: FileName,
    *,
    settings: EvalSettings | None = None,
    model: str | None = None,
    draws: int | None = None,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    html: FileName | None = None,
    overwrite: bool = False,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Forecast | GrowthForecast:
    """Say which cells other computers would give otherwise, from a few draws of rounding.

    Each image is segmented as usual, and a few times more with every rounded result of PyTorch
    moved by one unit in the last place, up or down at random. So is a stored training, trained
    again.

    Parameters
    ----------
    data : str or Path
        Folder of images; or ``KEY/REPEAT`` of a stored training, whose images, network, seed,
        profile and mode are its own: how far would it grow apart from itself elsewhere?
    settings : mapping, optional
        As for `segment`.
    model : str, optional
        A name of Cellpose or of this lab, a weights file, or ``KEY/REPEAT`` of a stored run. By
        default the network that Cellpose itself takes.
    draws : int, optional
        How often each image is segmented with other rounding, by default 5; each takes little
        longer than the usual segmentation. How often a network is trained so, by default 3.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``. The draws have their
        own, the numbers 0, 1, 2 …, and are the same each time.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict"}
        How strictly PyTorch is held to equal results.
    html : str or Path, optional
        A file that ends in ``.html``: a page with the image whose cells differ most, the masks of
        this computer as A, and as B the draw in which most cells differ; of a training, with the
        band in which it grows apart, and the same training in the store from elsewhere over it.
        Folders that are not there are made.
    overwrite : bool
        Whether a file that is there becomes the page.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    Forecast or GrowthForecast
        Image by image the cells that differ in a draw, and from how many to how many do. Of a
        training the same by epoch, and how far its weights are apart.

    Raises
    ------
    BadInput
        If the folder cannot be read, a setting is not known or not that of the training, there is
        no draw, or the mode is ``portable``, in which every computer gives the same bits; of a
        training, if it was not seeded, trained nothing, or its images are not here.
    NotPossibleHere
        If this machine lacks what the training's profile asks for, or the disk is short.

    Notes
    -----
    The forecast is about other processors, instruction sets and numbers of threads. It claims
    nothing about other versions of PyTorch or Cellpose, which may compute in another way, nor about
    bfloat16. What NumPy and OpenCV compute (normalisation, resizing) is not moved.

    Examples
    --------
    Which of my cells will differ on another computer?

    ``cellrepro forecast my_images --model cpsam``

    How far would my training grow apart from itself on another computer?

    ``cellrepro forecast KEY/0``

    With more draws, and a page

    ``cellrepro forecast my_images --draws 20 --html forecast.html``
    """
    target = None
    if html is None:
        refuse_idle(("overwrite",), "without --html")
    else:
        target = page_target(html, overwrite=overwrite)
    training = _stored_training(data, Store(store))
    if training is not None:
        _refuse_options_of_images(settings, model, seed, profile, mode)
        n_trainings = defaults.DRAWN_TRAININGS if draws is None else draws
        grown = _forecast_of_training(training, Store(store), draws=n_trainings, quiet=quiet)
        if target is None:
            return grown
        grown = replace(grown, html=target.path)
        write_forecast_page(target, grown)
        return grown
    options = SegmentationOptions.among(locals())
    n_draws = defaults.DRAWS if draws is None else draws
    foretold = forecast_of(options, draws=n_draws, quiet=quiet)
    if target is None or foretold.example is None:
        return foretold
    _write_page(target, foretold, foretold.example)
    return replace(foretold, html=target.path)


def _stored_training(data: str | Path, store: Store) -> Repeat | None:
    """The stored training that is named; None where a folder of images is."""
    if Path(data).exists():
        return None
    repeat = store.find(str(data))
    if repeat.spec.task != "train":
        raise BadInput(
            f"{repeat.name} trained nothing; name a training, or for what it segmented the folder "
            "of its images and its --model"
        )
    return repeat


def _refuse_options_of_images(
    settings: EvalSettings | None, model: str | None, seed: int | None, profile: str, mode: Mode
) -> None:
    """Refuse options that a stored training has already."""
    names = ("settings", "model", "seed", "profile", "mode")
    refuse_idle(names, "with a stored training, which has its own")
    given = (settings, model, seed, profile, mode)
    usual = (None, None, None, defaults.PROFILE, defaults.MODE)
    others = [name for name, a, b in zip(names, given, usual, strict=True) if a != b]
    if others:  # in Python
        raise BadInput(f"{joined(others)} would do nothing with a stored training; leave it out")


def _forecast_of_training(
    training: Repeat, store: Store, *, draws: int, quiet: bool
) -> GrowthForecast:
    manifest = training.manifest
    images = find_images(training.spec, store, recorded=manifest.data.path)
    if images is None:
        raise BadInput(
            f"the images of {training.name} are not here as they were; put the folder "
            f"{manifest.data.path} back, or import the run exported with --images"
        )
    recorded = RecordedRun(training.name, training.spec, str(images), manifest.model.path)
    plan = plan_again(recorded, ReplayRequest(), store)
    return growth_forecast_of(plan, training, draws=draws, quiet=quiet)


def _write_page(target: PageTarget, foretold: Forecast, example: ForecastExample) -> None:
    from cellrepro.comparison.mask_comparison import compare_masks
    from cellrepro.show.pages.comparison_page import ShownPair, write_comparison_page

    comparison = compare_masks(example.usual, example.masks)
    write_comparison_page(
        target,
        ShownPair(
            image_name=example.image,
            name_a="as this computer computes it",
            name_b=f"draw {example.draw}, with simulated rounding of another computer",
            kicker=f"A forecast of {amount(len(foretold.images), 'image')} on other computers",
            headline=as_sentence(foretold.sentence()),
            a=example.usual,
            b=example.masks,
            image=example.pixels,
            comparison=comparison,
            settings=(),
            remarks=tuple(  # what the headline does not say; rows of the table are indented
                line if line.startswith(" ") else as_sentence(line) for line in foretold.lines()[1:]
            ),
            by_image={example.image: comparison},
        ),
    )
