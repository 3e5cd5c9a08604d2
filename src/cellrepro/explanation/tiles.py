"""Cells that depend on where tiles lie: images segmented whole, cropped, and with more overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from cellrepro.comparison.object_matching import Integers
from cellrepro.explanation.straight_cuts import Cuts, cut_lines, straight_cuts
from cellrepro.explanation.tiled_cells import CROPS, N_VARIANTS, OVERLAP, Tiled, follow
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import print_note
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.results import Result, Row, derived
from samebits.words import amount, grouped, verb_of

TileCause = Literal["tiling", "normalisation", "none"]


@dataclass(frozen=True, repr=False)
class TileDependence(Result):
    """What becomes of the cells of some images when tiles lie elsewhere."""

    images: tuple[Tiled, ...]
    """One for each image."""
    variants: tuple[str, ...]
    """How tiles were laid otherwise, in words."""

    @derived
    def cause(self) -> TileCause:
        """``tiling`` where cells change though intensities are scaled alike; ``normalisation``
        where they change only because a crop is scaled by itself; else ``none``."""
        if any(image.n_dependent or image.n_gained for image in self.images):
            return "tiling"
        return "normalisation" if any(image.n_by_normalisation for image in self.images) else "none"

    @derived
    def vacuous(self) -> bool:
        """Whether no cell was found in any image, so that none could depend on tiles."""
        return not any(image.n_cells or image.n_gained for image in self.images)

    @property
    def differs(self) -> bool:
        """Whether a cell depends on tiles or is cut, or there is no cell."""
        is_cut = any(image.cuts for image in self.images)
        return self.cause != "none" or is_cut or self.vacuous

    def sentence(self) -> str:
        """Say how many cells depend on where tiles lie."""
        over = amount(len(self.images), "image")
        if self.vacuous:
            return f"vacuous: no cell was found in {over}, so none could depend on tiles"
        n_cells = amount(sum(image.n_cells for image in self.images), "cell")
        if self.cause == "none":
            return f"none of {n_cells} in {over} depends on where tiles lie"
        if self.cause == "normalisation":
            return (
                f"none of {n_cells} in {over} depends on where tiles lie; cells of crops change "
                "since these are normalised by themselves"
            )
        n_dependent = sum(image.n_dependent for image in self.images)
        n_gained = sum(image.n_gained for image in self.images)
        depend = verb_of(n_dependent, "depends", "depend")
        appear = verb_of(n_gained, "appears", "appear")
        return (
            f"{grouped(n_dependent)} of {n_cells} in {over} {depend} on where tiles lie, and "
            f"{grouped(n_gained)} more {appear} where they lie elsewhere"
        )

    def rows(self) -> list[Row]:
        """Give every image."""
        return [
            {
                "image": image.name,
                "cells": image.n_cells,
                "depend on tiles": image.n_dependent,
                "gained": image.n_gained,
                "by normalisation": image.n_by_normalisation,
                "straight ends at tile borders": image.seam.n_at,
            }
            for image in self.images
        ]

    def lines(self) -> list[str]:
        """Say how many cells depend on tiles, image by image, and how tiles were laid."""
        is_said_of_image = len(self.images) == 1 and not self.vacuous
        lines = [] if is_said_of_image else [self.sentence()]
        for image in self.images:
            lines += image.lines()
            lines += cut_lines(image.cuts)
        variants = ", ".join(self.variants)
        lines.append(f"compared with the whole image: {variants}; intensities scaled alike")
        return lines


def tiles(
    data: FileName | None = None,
    /,
    *,
    masks: FileName | None = None,
    settings: EvalSettings | None = None,
    model: str | None = None,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> TileDependence | Cuts:
    """Say which cells depend on the position of tiles; find straight cuts in any masks.

    Images are segmented whole, cropped, and with tiles that overlap more, and every cell is
    followed.

    Parameters
    ----------
    data : str or Path, optional
        Folder of images.
    masks : str or Path, optional
        A label image instead: its straight cuts alone, and nothing is segmented.
    settings : mapping, optional
        Of all variants, as for `segment`.
    model : str, optional
        A name of Cellpose or of this lab, a weights file, or ``KEY/REPEAT`` of a stored run. By
        default the network that Cellpose itself takes.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    TileDependence or Cuts
        Image by image the cells that depend on where tiles lie, and the cause; or the cuts.

    Raises
    ------
    BadInput
        If settings change the normalisation, which is varied itself, or an image is a stack; if
        both or neither of images and masks are given.

    Examples
    --------
    Find straight cuts in masks that you have

    ``cellrepro tiles --masks cells_masks.tif``

    Which cells depend on where the tiles lie?

    ``cellrepro tiles my_images``
    """
    if masks is not None and data is None:
        of_a_network = ("model", "seed", "profile", "mode", "settings", "store")
        refuse_idle(of_a_network, "beside --masks, where nothing is segmented")
        return straight_cuts(masks)
    if data is None or masks is not None:
        raise BadInput("give a folder of images, or --masks with a label image")
    plan = plan_segmentation(SegmentationOptions.among(locals()))
    changed = plan.spec.settings.normalize.changed
    if changed:
        raise BadInput(
            f"settings.normalize has {', '.join(changed)}; tiles varies the normalisation "
            "itself: leave it out"
        )
    if not quiet:
        print_note(segmenting_announced(plan, Store(store), n_each=N_VARIANTS))
    images = in_child(
        partial(tiled, request=plan.request),
        plan.request.setup,
        label="tiles",
        steps=1 + plan.n_images,
        quiet=quiet,
    )
    crops = [f"{rows} rows and {columns} columns cut off" for rows, columns in CROPS]
    return TileDependence(images, (*crops, f"tile_overlap {OVERLAP}"))


def tiled(child: Child, *, request: Request) -> tuple[Tiled, ...]:
    """Runs in a child process: follow the cells of every image."""
    followed = []
    with child.opened(request.model) as (network, _):
        from cellrepro.model.evaluator import evaluator
        from cellrepro.model.tile_layout import scaled_channels, tile_layout
        from samebits.generator_states import generators_kept

        evaluate = evaluator(network)
        settings = request.spec.settings

        def segment(image: Integers, **arguments: object) -> Integers:
            """The masks alone; the arguments are those of ``CellposeModel.eval``."""
            return evaluate(image, **arguments).masks  # type: ignore[arg-type]

        for image in read_images(request).to_segment:
            if image.stack:
                raise BadInput(f"{image.name} is a stack; tiles looks at flat images")
            with generators_kept():
                followed.append(
                    follow(
                        segment,
                        image.name,
                        image.image,
                        settings,
                        layout=tile_layout(evaluate.model),
                        scaled_channels=scaled_channels(image.image, settings.arguments()),
                    )
                )
            child.tell("done", image.name)
    return tuple(followed)
