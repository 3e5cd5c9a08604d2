"""Cells that depend on where tiles lie: images segmented whole, cropped, and with more overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from cellrepro.comparison.object_matching import Integers
from cellrepro.explanation.straight_cuts import Cuts, straight_cuts
from cellrepro.explanation.tiled_cells import (
    CHANGE_MEANS,
    CROPS,
    NEAR_CUT,
    WITH_OTHER_TILES,
    Tiled,
    changed_by_crop,
    follow,
    overlap_varies,
    shifted_or_reshaped,
    without_match,
)
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec import defaults
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.results import Result, Row, derived
from samebits.words import amount, grouped, some, verb_of, with_verb

TileCause = Literal["tiling", "normalisation", "none"]
_MOST_QUIET = 3  # images with nothing to see, which have a line each


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
        if any(image.n_changed or image.n_gained for image in self.images):
            return "tiling"
        by_normalisation = any(image.n_changed_by_normalisation for image in self.images)
        return "normalisation" if by_normalisation else "none"

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
        """Say whether tiles change or cut cells, and what else does."""
        return "; ".join(self._answers())

    def _answers(self) -> list[str]:
        """Say whether tiles change cells, whether they cut cells, and what a crop changes."""
        over = amount(len(self.images), "image")
        if self.vacuous:
            return [f"vacuous: no cell was found in {over}, so none could depend on tiles"]
        by_tiles = self.cause == "tiling" or any(image.is_cut for image in self.images)
        answers = [f"{'yes' if by_tiles else 'no'}: {self._changed(over)}", self._cut()]
        if any(image.n_changed_by_normalisation for image in self.images):
            answers.append(
                f"not by tiles: {changed_by_crop(self.images)}, since Cellpose scales the "
                "intensities of each image by its own darkest and brightest pixels"
            )
        return answers

    def _changed(self, over: str) -> str:
        n_cells = sum(image.n_cells for image in self.images)
        n_changed = sum(image.n_changed for image in self.images)
        n_gained = sum(image.n_gained for image in self.images)
        n_not_followed = sum(image.n_not_followed for image in self.images)
        cells = f"{amount(n_cells, 'cell')} in {over}"
        if n_not_followed:
            n_followed = n_cells - n_not_followed
            cells = f"the {amount(n_followed, 'cell')} in {over} that can be followed"
        changed = (
            f"tiles change {grouped(n_changed) if n_changed else 'none'} of {cells} "
            f"({self._fates()})"
        )
        if n_not_followed:
            are = verb_of(n_not_followed, "is", "are")
            changed += f"; {grouped(n_not_followed)} more {are} too near the cuts"
        if not n_gained:
            return changed
        appear = with_verb(n_gained, "more cell", "appears", "appear")
        return f"{changed}; {appear} {WITH_OTHER_TILES}"

    def _fates(self) -> str:
        """Count the cells by what became of them."""
        n_unmatched = sum(image.n_dependent for image in self.images)
        n_moved = sum(image.n_moved for image in self.images)
        n_other_pixels = sum(image.n_other_pixels for image in self.images)
        n_same = sum(image.n_same_pixels for image in self.images)
        fates = [
            *([without_match(n_unmatched)] if n_unmatched else []),
            *([shifted_or_reshaped(n_moved)] if n_moved else []),
            f"{_who_are(n_other_pixels)} kept with other pixels",
            f"{_who_are(n_same)} the same in every pixel",
        ]
        return ", ".join(fates)

    def _cut(self) -> str:
        """Say in how many images cells are cut, at tile borders and elsewhere."""
        n_cut = sum(image.is_cut for image in self.images)
        elsewhere = [len(image.cuts) - len(image.cuts_at_tiles) for image in self.images]
        n_elsewhere = sum(elsewhere)
        if n_cut:
            cut = f"they cut cells in {amount(n_cut, 'image')}"
        else:
            cut = "no cut at a tile border was found"
        if not n_elsewhere:
            return cut
        lie = with_verb(n_elsewhere, "straight cut", "lies", "lie")
        return f"{cut}, but {lie} where no tile begins or ends"

    def rows(self) -> list[Row]:
        """Give every image, those first that show something."""
        return [
            {
                "image": image.name,
                "cells": image.n_cells,
                "no match with other tiles": image.n_dependent,
                "shifted or reshaped": image.n_moved,
                "kept, other pixels": image.n_other_pixels,
                "same in every pixel": image.n_same_pixels,
                "more with other tiles": image.n_gained,
                "change in a crop": image.n_changed_by_normalisation,
                "straight cuts at tile borders": len(image.cuts_at_tiles),
                "straight cuts elsewhere": len(image.cuts) - len(image.cuts_at_tiles),
            }
            for image in self._telling_first()
        ]

    def lines(self) -> list[str]:
        """Answer, then say it of the images, those first that show something."""
        images = self._telling_first()
        telling = [image for image in images if image.shows_something]
        others = images[len(telling) :]
        lines = self._answers()
        if self.cause != "none":
            lines.insert(1, f"  {CHANGE_MEANS}")  # below the line that counts them
        for image in telling:
            lines += image.lines()
        if len(others) > _MOST_QUIET:
            names = some([image.name for image in others])
            n_cells = amount(sum(image.n_cells for image in others), "cell")
            lines.append(
                f"{len(others)} {'more ' if telling else ''}images ({names}): {n_cells} in all, "
                "none changes, and no straight cut"
            )
        else:
            lines += [line for image in others for line in image.lines()]
        if self.variants:
            lines.append(
                "how the tiles were laid elsewhere: each image was segmented again "
                f"{'; '.join(self.variants)}. The intensities were scaled as in the whole image. "
                f"Cells within {NEAR_CUT} pixels of where rows and columns were cut off were not "
                "compared there"
            )
        return lines

    def _telling_first(self) -> list[Tiled]:
        return sorted(self.images, key=lambda image: not image.shows_something)


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
    passes = _Passes.of(plan.spec.settings)
    images = in_planned_child(
        plan,
        partial(tiled, request=plan.request),
        announced=partial(
            segmenting_announced, plan, Store(store), n_each=passes.n, ways=passes.in_words
        ),
        label="tiles",
        steps=plan.n_images,
        counted="images done",
        quiet=quiet,
    )
    variants = dict.fromkeys(variant for image in images for variant in image.variants)
    return TileDependence(images, tuple(variants))


def _who_are(n: int) -> str:
    return f"{grouped(n) if n else 'none'} {verb_of(max(n, 1), 'is', 'are')}"


@dataclass(frozen=True)
class _Passes:
    """How often an image is segmented."""

    n: int
    in_words: str

    @classmethod
    def of(cls, settings: Settings) -> _Passes:
        """Whole, with more overlap where that is another layout, and each crop twice."""
        more = ", once with tiles that overlap more" if overlap_varies(settings) else ""
        in_words = (
            f"once as it is{more}, and {len(CROPS)} crops, each once with the intensities scaled "
            "as in the whole image and once by its own; small images are not cropped, nor "
            "segmented with more overlap where that moves no tile"
        )
        return cls(1 + bool(more) + 2 * len(CROPS), in_words)


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
