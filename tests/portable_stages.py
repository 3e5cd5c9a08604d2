"""Segmentations whose stages must have the same bits on every machine; as a program it prints them.

The network is a drawing of one: it climbs to the brightest pixel by single operations, so that all
time goes into the stages around it.
"""

import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cellrepro.images.folder import LabelledImage
from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.images.nuclei_look import NucleiLook
from cellrepro.model.inference import segment
from cellrepro.model.portable_cellpose import dx_to_circ, portable_cellpose
from cellrepro.model.stages import Stages
from samebits.arithmetic.portable_mode import PortableArithmetic
from samebits.digests import array_digest

FLAT = {
    "usual": {},
    "tiles of the normalisation": {"normalize": {"tile_norm_blocksize": 40}, "augment": True},
    "smoothed": {"normalize": {"smooth_radius": 1.5, "sharpen_radius": 9}, "tile_overlap": 0.4},
    "sharpened": {"normalize": {"sharpen_radius": 9}, "diameter": 24.0, "niter": 50},
    "limits": {"normalize": {"lowhigh": (100.3, 3000.7)}, "diameter": 50.0, "resample": False},
    "thresholds": {"normalize": {"percentile": (3.0, 98.5)}, "cellprob_threshold": 1.0},
}
DEEP = {
    "3-D": {"do_3D": True, "anisotropy": 1.7, "flow3D_smooth": 1, "diameter": 27.0},
    "stitched": {"stitch_threshold": 0.2, "normalize": {"tile_norm_blocksize": 30}},
    "planes": {"normalize": {"tile_norm_blocksize": 30, "norm3D": False}},
}
"""Of a stack."""


class Uphill(nn.Module):
    """Flows to the brighter neighbours, and a probability that grows with brightness."""

    backbone = "sam_vitl"
    device = torch.device("cpu")
    dtype = torch.float32

    def forward(self, tiles):
        pixels = tiles.mean(dim=1).clamp(-1, 2)
        flows = []
        for axis in (1, 2):
            slope = pixels.roll(-4, axis) - pixels.roll(4, axis)
            flows.append((slope * 12).clamp(-5, 5))
        probability = (pixels - 0.35) * 6
        return torch.stack([*flows, probability], dim=1), torch.zeros(len(tiles), 256)


def flat_image():
    """Nuclei on two tiles."""
    drawn = nuclei(5, shape=(270, 90), n_nuclei=20, look=NucleiLook(diameter=20))
    return LabelledImage("flat", drawn.image, drawn.masks, Path("flat.tif"))


def stack():
    """The same nuclei in planes that move."""
    plane = flat_image().image[:24, :30]
    planes = np.stack([np.roll(plane, step, axis=0) for step in (0, 1, 3, 4)])
    return replace(flat_image(), name="stack", image=planes, masks=planes, stack=True)


def images_and_settings():
    """Every image with every setting, by a name."""
    for name, settings in FLAT.items():
        yield name, flat_image(), settings
    bright = flat_image()
    yield "dark", replace(bright, image=4095 - bright.image), {"normalize": {"invert": True}}
    for name, settings in DEEP.items():
        yield name, stack(), settings


def segmented(image, settings, *, network=None, portable=True):
    """The masks and flows of an image, and what it was at each stage."""
    stages = Stages(keep=True)
    with ExitStack() as stack:
        if portable:
            stack.enter_context(PortableArithmetic())
            stack.enter_context(portable_cellpose())
        stack.enter_context(stages.watching())
        (result,) = segment(network or Uphill(), (image,), **settings)
    return result, stages


def digests(*, batch_size, threads):
    """Of every stage of every segmentation."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = {}
        for name, image, settings in images_and_settings():
            result, stages = segmented(image, {**settings, "batch_size": batch_size})
            found[name] = stages.digests
            found[name]["filtered"] = array_digest(result.masks)
            for part, values in result.flows.items():
                found[name][part] = array_digest(values)
            if not image.stack:
                with portable_cellpose():
                    picture = dx_to_circ(result.flows["flows"])
                found[name]["picture"] = array_digest(picture)
    finally:
        torch.set_num_threads(before)
    return found


if __name__ == "__main__":
    batch_size, threads = map(int, sys.argv[1:])
    print(json.dumps(digests(batch_size=batch_size, threads=threads)))
