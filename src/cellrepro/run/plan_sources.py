"""What plans are made from: folders of images, networks and profiles, each read once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import fastremap

from cellrepro.comparison.weight_reading import open_file
from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.images.image_axes import Axes
from cellrepro.model.cellpose_generation import generation_of, refuse_own_network
from cellrepro.model.encoders import ENCODERS, PRETRAINED
from cellrepro.model.weight_sources import ModelSource, find_model
from cellrepro.process.cellpose_versions import is_installed
from cellrepro.profiles import profiles
from cellrepro.store.store import Store
from samebits.errors import BadInput


@dataclass(frozen=True)
class ImageSize:
    """Size of an image."""

    shape: tuple[int, ...]
    """(Y, X) or (Y, X, C); of a stack (Z, Y, X) or (Z, Y, X, C)."""
    stack: bool
    """Whether it has the axis Z."""

    @property
    def n_pixels(self) -> int:
        """Its pixels in all planes; those of several channels count once."""
        return math.prod(self.shape[: 3 if self.stack else 2])


@dataclass(frozen=True)
class FolderSummary:
    """A folder of images, as far as a plan needs it; no pixels, so that many fit in memory."""

    digest: str
    """Digest of all its files."""
    warnings: tuple[str, ...]
    """Sentences on what deserves a look."""
    n_labels: Mapping[str, int]
    """Number of different labels, with the background, in the masks of each training image by name;
    0 without masks."""
    n_test: int
    """Number of test images."""
    segmented: Mapping[str, ImageSize]
    """Sizes of the images to segment, by name."""

    @property
    def n_segmented(self) -> int:
        """Number of images to segment."""
        return len(self.segmented)

    @property
    def n_pixels(self) -> int:
        """Pixels of the images to segment together."""
        return sum(size.n_pixels for size in self.segmented.values())

    @classmethod
    def of(cls, folder: ImageFolder) -> FolderSummary:
        """Summarize a folder that was read."""
        n_labels = {
            image.name: 0 if image.masks is None else fastremap.unique(image.masks).size
            for image in folder.train
        }
        return cls(
            digest=folder.digest,
            warnings=folder.warnings,
            n_labels=n_labels,
            n_test=len(folder.test),
            segmented={
                image.name: ImageSize(image.image.shape, image.stack) for image in folder.to_segment
            },
        )

    def trainable(self, least: int) -> list[str]:
        """The training images with at least so many cells, which Cellpose trains on."""
        return [name for name, n_labels in self.n_labels.items() if n_labels - 1 >= least]


class PlanInputs:
    """A cache of folders, networks and profiles, for the time in which one grid is read.

    A thousand specs over the same images decode them once. A worker reads them again, and refuses
    others than those of its spec.
    """

    def __init__(self) -> None:
        self._folders: dict[tuple[Path, bool, Axes], FolderSummary] = {}
        self._models: dict[tuple[str, Path, str | None], ModelSource] = {}
        self._profiles: dict[str, profiles.Profile] = {}

    def folder(self, data: str | Path, *, to_train: bool, axes: Axes) -> FolderSummary:
        """Summarize a folder of images, all of which are read and checked."""
        key = (Path(data).resolve(), to_train, axes)
        if key not in self._folders:
            self._folders[key] = FolderSummary.of(read_folder(data, to_train=to_train, axes=axes))
        return self._folders[key]

    def model(self, reference: str, store: str | Path, version: str | None) -> ModelSource:
        """Resolve a model reference; another version of Cellpose has names of its own."""
        key = (reference, Path(store).resolve(), version)
        if key not in self._models:
            self._models[key] = _model(reference, Store(store), version)
        return self._models[key]

    def profile(self, name: str | Path) -> profiles.Profile:
        """Load a profile by name, or from a file."""
        key = str(name)
        if key not in self._profiles:
            self._profiles[key] = profiles.load(name)
        return self._profiles[key]


def _model(reference: str, store: Store, version: str | None) -> ModelSource:
    if version is not None and reference in generation_of(version).names:
        return ModelSource(reference, PRETRAINED)
    try:
        source = find_model(reference, store)
    except BadInput:
        is_name = Path(reference).name == reference
        if is_installed(version) or not is_name:
            raise
        return ModelSource(reference, PRETRAINED)
    if source.architecture in ENCODERS:
        refuse_own_network(source.architecture, version)
    else:
        refuse_unreadable_network(source)
    return source


def refuse_unreadable_network(source: ModelSource) -> None:
    """Parse a weights file with our own reader before PyTorch loads it.

    Before PyTorch 2.10 its loader is not safe with a malicious file (CVE-2026-24747).
    """
    if source.path is not None:
        open_file(source.path)
