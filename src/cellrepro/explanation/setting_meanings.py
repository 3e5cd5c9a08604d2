"""What each setting does, in words for a user who sees that it differs."""

from __future__ import annotations

from collections.abc import Mapping

_MEANINGS: Mapping[str, str] = {
    "diameter": "Cellpose scales the image by 30 / diameter before the network sees it: the larger "
    "the diameter, the smaller the image; Cellpose 4 does not scale it where no diameter is set, "
    "nor with 30",
    "model": "two different networks",
    "flow_threshold": "a cell is dropped where its shape does not fit its flows: the lower, the "
    "more cells are dropped; none or 0 drops none",
    "cellprob_threshold": "a pixel belongs to a cell above it: the lower, the larger the cells; "
    "touching ones may merge, or flow_threshold drops them",
    "min_size": "cells of fewer pixels than min_size are removed",
    "niter": "steps by which pixels move to the centre of their cell",
    "channels": "which channel is segmented, and which one holds the nuclei",
    "restore": "the image was denoised, deblurred or enlarged before it was segmented",
    "profile": "device, threads and precision with which it was computed, which round differently",
    "seed": "different random numbers in the training, so different networks",
    "precision": "bfloat16 and float32 round differently, which can move outlines",
    "cellpose": "two versions of Cellpose, which can have different networks and steps",
    "device": "a GPU and a processor round differently, which can move outlines",
    "augment": "the mean over flipped tiles, or one tile alone",
    "resample": "cells are found at the size of the image, or at that of the scaled one",
    "tile_overlap": "how far tiles of a large image overlap",
    "batch_size": "tiles computed at once: with a different number a GPU adds in a different order",
    "stitch_threshold": "overlap from which cells of two planes are one cell",
    "do_3D": "the stack is segmented in three directions, or plane by plane",
    "normalize.normalize": "whether intensities are scaled at all",
    "normalize.percentile": "intensities between these two percentiles are scaled to 0 and 1",
    "normalize.lowhigh": "intensities between these two values are scaled to 0 and 1",
    "normalize.sharpen": "the image was sharpened first, by this radius in pixels",
    "normalize.smooth_radius": "the image was smoothed first, by this radius in pixels",
    "normalize.tile_norm_blocksize": "intensities are scaled in blocks of this size in pixels",
    "normalize.invert": "dark and bright were exchanged",
    "normalize.norm3D": "intensities are scaled over the whole stack, or plane by plane",
    "image.digest": "eval received different pixels: a different file, reader, type of numbers or "
    "filter",
    "image.dtype": "the pixels had two types of numbers, for example 8 bits and 16 bits",
    "image.shape": "the images had two sizes, or different axes",
    "image.axes": "the axes were taken in two orders",
    "model_digest": "the two files of weights are not the same",
    "weights_in_memory": "the network computed with different weights",
    "n_drawn_by_hand": "cells were drawn by hand, which no setting makes",
    "n_removed_by_hand": "cells were removed by hand, which no setting does",
}
"""What each setting does, for a user who sees that it differs."""

_DIGESTS: Mapping[str, str] = {
    "image.digest": "different pixels",
    "model_digest": "different files of weights",
    "weights_in_memory": "different weights",
    "data_digest": "different images",
}
"""What two different digests mean."""


_FIELDS: Mapping[str, str] = {
    "profile": "profile",
    "threads": "number of threads",
    "versions": "versions",
    "host": "computer",
    "machine": "machine",
    "dtype": "precision",
    "data_digest": "images",
    "model_digest": "weights",
    "probes": "probe",
    "switches": "switches of PyTorch",
    "variables": "environment variables",
    "numeric_libraries": "numeric libraries (BLAS, OpenMP)",
    "num_threads": "number of threads",
    "numeric_class": "numeric class (checksum of small computations)",
    "cpu_capability": "instruction set of the processor",
    "profile_settings": "settings of the profile",
}
"""Fields of a run's record whose names say little, in words."""
_CAUSES: Mapping[str, str] = {"image": "two different images", "image.shape": "two sizes"}
"""Likewise causes that are no field."""
_RECORDED: Mapping[str, str] = {
    "cellpose": "version of Cellpose",
    "image.axes": "axes of the image",
    "image.channels": "channels of the image",
    "image.crop": "crop of the image",
    "image.depth": "bit depth of the image",
    "image.digest": "pixels of the image",
    "image.dtype": "type of numbers of the image",
    "image.shape": "size of the image",
    "n_drawn_by_hand": "cells drawn by hand",
    "model_path": "file of the network",
    "n_removed_by_hand": "cells removed by hand",
    "software": "program named in the file",
    "weights_in_memory": "weights in memory",
}
"""Likewise what is recorded of a result, or tried, and is no setting of Cellpose."""


def field_in_words(name: str) -> str:
    """Name a cause or a field of a run's record; a setting of Cellpose keeps its own name.

    >>> field_in_words("numeric_libraries.num_threads"), field_in_words("normalize.percentile")
    ('numeric libraries (BLAS, OpenMP), number of threads', 'normalize.percentile')
    """
    first, _, rest = name.partition(".")
    if first not in _FIELDS:
        return _CAUSES.get(name) or _RECORDED.get(name, name)
    return f"{_FIELDS[first]}, {field_in_words(rest)}" if rest else _FIELDS[first]


def recorded_in_words(name: str) -> str:
    """Name what is recorded of a result, in a table or beside its value.

    >>> recorded_in_words("image.crop"), recorded_in_words("flow_threshold")
    ('crop of the image', 'flow_threshold')
    """
    return _RECORDED.get(name) or field_in_words(name)


def setting_meaning(name: str) -> str:
    """Say what a setting does; empty for one whose name says it."""
    return _MEANINGS.get(name, "")


def digests_in_words(name: str) -> str:
    """Say what two different digests of this name mean; empty for what is no digest."""
    return _DIGESTS.get(name, "")
