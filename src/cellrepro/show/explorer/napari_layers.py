"""What the explorer shows, opened in napari: the channels of the image, and masks as labels.

napari is no dependency; written against 0.9.2 (``Viewer.add_image``, ``Viewer.add_labels``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.show.explorer.planes import NarrowImage
from cellrepro.show.explorer.scenes import Scene, Scenes
from cellrepro.show.figures.colours import CHANNELS
from cellrepro.show.local_server import has_screen
from samebits.errors import NotPossibleHere
from samebits.libraries import has_library

if TYPE_CHECKING:
    import napari


def can_open_napari() -> bool:
    """Whether napari is installed and there is a screen."""
    return has_screen() and has_library("napari")


def opened_in_napari(scenes: Scenes, scene: Scene) -> napari.Viewer:
    """Open a viewer with what a scene shows; stacks whole, at the plane that is shown."""
    if not can_open_napari():
        why = "this process has no screen" if has_library("napari") else "napari is not installed"
        raise NotPossibleHere(
            f'{why}: install it beside cellrepro (pip install "napari[all]") on a computer with a '
            "screen, or download image and masks and drop them into napari"
        )
    import napari

    try:
        viewer = napari.Viewer(title=f"cellrepro: {scene['names']['image']}")
        add_layers(viewer, scenes, scene)
    except Exception as error:  # Qt or OpenGL may be missing, or refuse the screen
        raise NotPossibleHere(
            f"napari cannot open a window here ({type(error).__name__}: {error}); start it by "
            "itself first (napari --info), or download image and masks and drop them into it"
        ) from error
    return viewer


def add_layers(viewer: napari.Viewer, scenes: Scenes, scene: Scene) -> None:
    """Add image and masks to a viewer, the masks of B on top of those of A."""
    view = scenes.open(scene["view"])
    size = scene["pixel_size"] or 1
    scale = (*(1,) * (len(view.shape) - 2), size, size)
    if scene["has_image"]:
        pixels = view.image.as_given(view.image.stored)
        n_channels = pixels.shape[-1]
        colours = CHANNELS[min(n_channels, len(CHANNELS)) - 1]
        for channel, colour in enumerate(colours.values()):
            viewer.add_image(
                pixels[..., channel],
                name=f"channel {channel}" if n_channels > 1 else scene["names"]["image"],
                colormap=colour,  # from black to it, since napari 0.5
                blending="additive",
                contrast_limits=_contrast(view.image, channel),
                scale=scale,
            )
    sides = {scene["names"][side]: scene[side] for side in ("a", "b")}
    if view.truth is not None and not scene["truth_is"]:
        sides["truth"] = len(view.view.masks)
    for name, side in sides.items():
        layer = viewer.add_labels(view.labels(side), name=name, scale=scale)
        layer.contour = 1  # outlines, so that the image stays visible
    if view.n_planes > 1:
        viewer.dims.set_point(0, scene["z"])


def _contrast(image: NarrowImage, channel: int) -> tuple[float, float]:
    """The values between which a channel is stretched."""
    low, high = (image.offset + image.step * limits[channel] for limits in (image.low, image.high))
    return low, high
