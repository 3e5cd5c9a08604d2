"""Generations of Cellpose: what differs between them where the lab depends on it.

The lab segments with the Cellpose that is installed, from version 3 on. It trains with the versions
whose loop its tests have compared with its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from samebits.errors import BadInput, NotPossibleHere
from samebits.libraries import version_of
from samebits.words import joined, some

TRAINED_WITH = ("4.2.0", "4.2.1", "4.2.1.1")
"""Versions with whose loop the lab trains. ``tests/model/test_training_loop.py`` compares it with
that of 4.2.1.1; the training, transforms and networks of the other two are the same files."""

NETWORK_DIAMETER = 30
"""Pixels: the diameter of a cell to which Cellpose resizes an image."""

FLOW_STEPS = 200
"""Steps along the flows, at that diameter, where ``niter`` is not given (4.2.1.1, models.py)."""

_WAY_TO_TRAIN = (
    "`cellrepro setup FOLDER` makes a lab that trains, with Cellpose "
    f"{TRAINED_WITH[-1]}, in an environment of its own beside this one, and changes nothing here"
)


@dataclass(frozen=True)
class Generation:
    """The versions of Cellpose, from one on, that behave alike where the lab depends on it.

    Defaults are those of the newest.
    """

    first: tuple[int, int]
    """Major and minor number of its first version."""
    default_network: str
    """The network that it takes where none is named."""
    names: tuple[str, ...]
    """Its pretrained networks that need no other package."""
    networks: str = "Cellpose 4"
    """The networks whose files it loads, in words."""
    builds_own_networks: bool = True
    """Whether the lab's networks (``tiny``, ``vit-b`` …) can be built of its classes."""
    n_channels: int | None = None
    """Channels that it scales whatever the image has, missing ones filled with zeros; None where
    it scales those of the image."""
    chooses_channels: bool = False
    """Whether ``eval`` takes ``channels``: the one to segment, and that of nuclei."""
    tile_size: int = 256
    """Default size of a tile, in pixels."""
    has_precision: bool = True
    """Whether it can compute in bfloat16."""


_NAMES_OF_3 = (
    "cyto3",
    "nuclei",
    "cyto2_cp3",
    "tissuenet_cp3",
    "livecell_cp3",
    "yeast_PhC_cp3",
    "yeast_BF_cp3",
    "bact_phase_cp3",
    "bact_fluor_cp3",
    "deepbacs_cp3",
    "cyto2",
    "cyto",
    "CPx",
    "neurips_cellpose_default",
    "neurips_grayscale_cyto2",
    "CP",
    "TN1",
    "TN2",
    "TN3",
    "LC1",
    "LC2",
    "LC3",
    "LC4",
)
"""Names as in 3.1.1.2 (``cellpose/models.py``), without the two that need the package of a
transformer."""

_GENERATIONS = (
    # DINO's networks (cpdino, cpdino-vitb) need a package that is not on PyPI (4.2.1.1).
    Generation((4, 2), "cpsam_v2", ("cpsam_v2", "cpsam")),
    Generation((4, 0), "cpsam", ("cpsam",), n_channels=3),  # 4.0.9 and 4.1.1
    Generation(
        (3, 0),
        "cyto3",
        _NAMES_OF_3,
        networks="Cellpose 2 or 3",
        builds_own_networks=False,
        n_channels=2,
        chooses_channels=True,
        tile_size=224,
        has_precision=False,
    ),
)
"""The newest first."""


def installed_version() -> str | None:
    """The version of the Cellpose that is installed; None where there is none."""
    return version_of("cellpose")


def known_version() -> str:
    """The same, for answers that rest on it."""
    version = installed_version()
    if version is None:
        raise NotPossibleHere(
            "no Cellpose is installed here, or one is only on Python's path, so that its version "
            "is not known, on which the answer rests; install it: `pip install cellpose`, or "
            "`pip install -e FOLDER` for a folder with its source"
        )
    return version


def generation_of(version: str | None = None) -> Generation:
    """The generation of a version of Cellpose, by default of the installed one.

    >>> generation_of("4.2.1.1").default_network, generation_of("4.0.9").default_network
    ('cpsam_v2', 'cpsam')
    >>> generation_of("3.1.1.2").networks
    'Cellpose 2 or 3'
    """
    leading = re.match(r"(\d+)\.(\d+)", version or installed_version() or "")
    if leading is None:  # none is installed; a spec refuses what is no version
        return _GENERATIONS[0]
    numbers = (int(leading[1]), int(leading[2]))
    oldest = _GENERATIONS[-1]
    return next((known for known in _GENERATIONS if numbers >= known.first), oldest)


def of_another_generation(name: str) -> str:
    """Say, to follow a sentence, which other Cellpose has a network of this name; else empty.

    >>> of_another_generation("nuclei")
    '; nuclei is a network of Cellpose 2 or 3, and --cellpose with such a version segments with it'
    """
    owner = next((other for other in _GENERATIONS if name in other.names), None)
    if owner is None or owner == generation_of():
        return ""
    return (
        f"; {name} is a network of {owner.networks}, and --cellpose with such a version segments "
        "with it"
    )


def why_no_training() -> str | None:
    """Say why the lab does not train with the installed Cellpose; None where it does."""
    version = installed_version()
    if version is None or version in TRAINED_WITH:
        return None
    return (
        f"Cellpose {version} is installed, and the lab trains with {joined(TRAINED_WITH)} only: "
        f"its tests have compared its loop with theirs. {_WAY_TO_TRAIN}. Segmenting, explaining "
        f"and comparing are done with your {version}"
    )


def refuse_training() -> None:
    """Refuse to train with a Cellpose whose loop no test has compared with the lab's."""
    why = why_no_training()
    if why is not None:
        raise NotPossibleHere(why)


def refuse_own_network(name: str, version: str | None = None) -> None:
    """Refuse a network of the lab's where Cellpose lacks the classes to build it of."""
    generation = generation_of(version)
    if generation.builds_own_networks:
        return
    version = version or installed_version()
    raise BadInput(
        f"the network is {name!r}, which is made of parts of Cellpose 4, and Cellpose {version} is "
        f"to segment with it; expected --model with a weights file of {generation.networks}, or "
        f"one of its names ({some(generation.names)}). {_WAY_TO_TRAIN}; it also has {name!r}"
    )
