"""The small files on which the pages of docs/how show what a command prints.

    python scripts/website_files.py    # writes docs/files; a minute and a half on two cores

A small network is trained on the synthetic nuclei; one of the test images is then segmented as
the users of each page did: with the diameter of the GUI, in blocks, as a shrunk copy, and so on.

``old_model`` is not made here: it is a small network of Cellpose 3.1.1.2 with random weights,
``CPnet([2, 4, 8], 3, sz=3)``, saved with ``torch.save(network.state_dict(), "old_model")``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tifffile

PROJECT = Path(__file__).resolve().parents[1]
FILES = PROJECT / "docs" / "files"
STORE = PROJECT / "outputs" / "website"
DATA = PROJECT / "data" / "synthetic"
IMAGE_NAME = "synth_008"
"""The test image with the most cells."""
GUI_DIAMETER = 42.4
"""What somebody typed into the GUI, pixels."""
BLOCK = 64
"""Side of the blocks that are segmented one by one, pixels."""
MIN_SIZE = 15
"""Pixels of the smallest cell that Cellpose keeps."""

Segment = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Network:
    """Where the trained network lies, and its name in the store."""

    name: str
    """``KEY/0``."""
    weights: Path


def main() -> int:
    network = trained_network()
    FILES.mkdir(parents=True, exist_ok=True)
    image = tifffile.imread(DATA / "test" / f"{IMAGE_NAME}.tif")
    segment = segmenter(network.weights, "float32")
    write("cells.tif", image)
    usual = segment(image)
    write("script_masks.tif", usual)
    write_gui_file(segment(image, diameter=GUI_DIAMETER))
    write("renumbered_masks.tif", renumbered(usual))
    write("bfloat16_masks.tif", segmenter(network.weights, "bfloat16")(image))
    write("filtered_masks.tif", segment(blurred(image)))
    write("website_masks.tif", enlarged(segment(shrunk(image))))
    write("twice_masks.tif", enlarged(usual))
    write("blocks_masks.tif", in_blocks(usual))
    write_outlines(usual)
    write_spot(image, segment)
    write_stack(image, segment)
    write_experiment()
    for path in sorted(FILES.iterdir()):
        print(f"{path.relative_to(PROJECT)}  {path.stat().st_size / 1000:.0f} kB")
    return 0


def write_experiment() -> None:
    """Masks of two groups of images with all cells, and without the small ones; no network."""
    from cellrepro.show.made_up_experiment import made_up_experiment

    folder = FILES / "experiment"
    shutil.rmtree(folder, ignore_errors=True)
    made_up_experiment().write(folder, min_sizes={"min_size_15": 15, "min_size_80": 80})


def trained_network() -> Network:
    """Train the network of all pages, if it is not stored already."""
    import cellrepro

    outcome = cellrepro.train(DATA, model="tiny", epochs=24, repeats=1, store=STORE, quiet=True)
    repeat = outcome.repeats[0]
    return Network(name=f"{outcome.key}/0", weights=repeat.folder / "weights.safetensors")


def segmenter(weights: Path, precision: str) -> Segment:
    """Segments an array with Cellpose's ``eval`` and the settings that are given by name."""
    import torch

    from cellrepro.model.evaluator import evaluator
    from cellrepro.model.network import build
    from cellrepro.model.weight_sources import find_model
    from cellrepro.spec.segmentation_settings import Settings
    from cellrepro.store.store import Store
    from samebits.modes import mode_in_force

    source = find_model(str(weights), Store(STORE))
    network = build(source, seed=0, device=torch.device("cpu"), dtype=precision)
    evaluate = evaluator(network)

    def segment(image: np.ndarray, *, stack: bool = False, **settings: object) -> np.ndarray:
        with mode_in_force("strict", device="cpu"):
            found = evaluate(image, stack=stack, **Settings(**settings).arguments())
        return found.masks.astype(np.uint16)

    return segment


# -- what users did ----------------------------------------------------------------------------


def renumbered(masks: np.ndarray) -> np.ndarray:
    """The same cells, numbered from the last to the first."""
    return np.where(masks > 0, masks.max() + 1 - masks, 0).astype(np.uint16)


def blurred(image: np.ndarray) -> np.ndarray:
    """The image as a wrapper hands it on that smooths first."""
    from scipy import ndimage

    return ndimage.gaussian_filter(image.astype(np.float32), 2.0)


def shrunk(image: np.ndarray) -> np.ndarray:
    """The image at half its size: means of two by two pixels."""
    n_rows, n_columns = image.shape
    blocks = image.reshape(n_rows // 2, 2, n_columns // 2, 2)
    return blocks.mean(axis=(1, 3)).astype(image.dtype)


def enlarged(masks: np.ndarray) -> np.ndarray:
    """Masks of twice the size: every pixel four times."""
    return masks.repeat(2, axis=0).repeat(2, axis=1)


def in_blocks(masks: np.ndarray) -> np.ndarray:
    """The cells as blocks have them that are segmented one by one, and whose parts nobody joins."""
    cut = np.zeros_like(masks)
    for top in range(0, masks.shape[0], BLOCK):
        for left in range(0, masks.shape[1], BLOCK):
            place = (slice(top, top + BLOCK), slice(left, left + BLOCK))
            labels, n_pixels = np.unique(masks[place], return_counts=True)
            for label in labels[(labels > 0) & (n_pixels >= MIN_SIZE)]:
                cut[place][masks[place] == label] = cut.max() + 1
    return cut


def write_outlines(masks: np.ndarray) -> None:
    """The same cells as outlines, and what becomes of them elsewhere: filled in ImageJ, eroded."""
    from cellpose import io, utils
    from scipy import ndimage

    from cellrepro.images.outline_files import read_outlines

    outlines = utils.outlines_list(masks)
    io.save_rois(masks, str(FILES / "script"))
    io.outlines_to_text(str(FILES / "script"), outlines)
    features = [
        {
            "type": "Feature",
            "geometry": {
                "type": "Polygon",
                "coordinates": [[*points.tolist(), points[0].tolist()]],
            },
            "properties": {"name": str(n), "classification": {"name": "Nucleus"}},
        }
        for n, points in enumerate(outlines, start=1)
    ]
    collection = {"type": "FeatureCollection", "features": features}
    (FILES / "script.geojson").write_text(json.dumps(collection, separators=(",", ":")) + "\n")
    as_corners = replace(read_outlines(FILES / "script_rois.zip"), along_pixels=False)
    write("imagej_masks.tif", as_corners.drawn(masks.shape).labels.astype(np.uint16))
    square = np.ones((3, 3))
    lowest = ndimage.grey_erosion(masks, footprint=square)
    highest = ndimage.grey_dilation(masks, footprint=square)
    write("eroded_masks.tif", np.where(lowest == highest, masks, 0))


def write_spot(image: np.ndarray, segment: Segment) -> None:
    """An image with bright debris in one corner, its masks, and those of a crop without it."""
    spot = image.copy()
    spot[:48, :48] = 40_000 + 10 * spot[:48, :48]
    write("debris.tif", spot)
    write("whole_masks.tif", segment(spot))
    crop = spot[64:, 64:]
    write("crop_masks.tif", segment(crop))
    wide = {"normalize.percentile": (1.0, 96.0)}
    write("percentile_masks.tif", segment(spot, **wide))


def write_stack(image: np.ndarray, segment: Segment) -> None:
    """A bright and a dim plane, normalised together, and the dim plane alone."""
    planes = np.stack([image, image[::-1] // 12])[:, :128, :128]
    tifffile.imwrite(
        FILES / "stack.tif", planes, metadata={"axes": "ZYX"}, compression="zlib", imagej=False
    )
    together = segment(planes, stack=True, stitch_threshold=0.3)
    write("plane_in_stack_masks.tif", together[1])
    write("plane_alone_masks.tif", segment(planes[1]))


def write_gui_file(masks: np.ndarray) -> None:
    """What the GUI of Cellpose 4.2 saves of an image, the pictures of the flows left out."""
    content = {
        "outlines": np.zeros_like(masks),
        "colors": np.zeros((int(masks.max()), 3), np.uint8),
        "masks": masks,
        "filename": "cells.tif",
        "flows": [[], [], [[]]],
        "ismanual": np.zeros(int(masks.max()), bool),
        "manual_changes": [],
        "model_path": 0,
        "flow_threshold": 0.4,
        "cellprob_threshold": 0.0,
        "normalize_params": gui_normalisation(),
        "restore": None,
        "ratio": 1.0,
        "diameter": GUI_DIAMETER,
    }
    np.save(FILES / "cells_seg.npy", content, allow_pickle=True)


def gui_normalisation() -> dict[str, object]:
    """The GUI's own, where nobody touched it."""
    return {
        "lowhigh": None,
        "normalize": True,
        "percentile": [1.0, 99.0],
        "sharpen_radius": 0.0,
        "smooth_radius": 0.0,
        "tile_norm_blocksize": 0.0,
        "tile_norm_smooth3D": 1.0,
        "norm3D": True,
        "invert": False,
    }


def write(name: str, pixels: np.ndarray) -> None:
    """Write an image of docs/files, compressed without loss."""
    tifffile.imwrite(FILES / name, pixels, compression="zlib")


if __name__ == "__main__":
    raise SystemExit(main())
