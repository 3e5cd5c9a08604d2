"""Cells that depend on where tiles lie: images segmented whole, cropped, and with more overlap."""

from __future__ import annotations

from functools import partial

from cellrepro.determinism.mode_names import Mode
from cellrepro.errors import BadInput
from cellrepro.explanation.straight_cuts import Cuts, straight_cuts
from cellrepro.explanation.tile_dependence import Tiled, TileDependence
from cellrepro.explanation.tiled_cells import CROPS, N_VARIANTS, OVERLAP, follow
from cellrepro.images.integer_images import Integers
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
        Of all variants, as for `cellrepro.segment`.
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
        from cellrepro.determinism.generator_states import generators_kept
        from cellrepro.model.evaluator import evaluator

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
                        layout=evaluate.tile_layout,
                        scaled_channels=evaluate.channels_of(image.image, settings.arguments()),
                    )
                )
            child.tell("done", image.name)
    return tuple(followed)
