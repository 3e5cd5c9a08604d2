"""A folder of images in Cellpose's own convention, read whole and checked.

``train/`` and ``test/`` hold ``NAME.tif`` (or png, jpg) beside ``NAME_masks.tif`` (or png); a
folder without the two is all training. What `read_folder` returns can be trained on: every file was
decoded to its end, every mask fits its image, and the order does not depend on the file system.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cellrepro.images.folder_files import ImagePair, Split, Survey, list_folder
from cellrepro.images.image_axes import FLAT, Axes
from cellrepro.images.image_file import Checked, check_image, check_masks
from cellrepro.images.mapped import Content
from samebits.digests import array_digest
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """One image and, where there is one, its label image."""

    name: str
    """Name of the file without extension; unique within a part of the folder."""
    image: np.ndarray = field(repr=False)
    """(Y, X) or (Y, X, C), in the dtype of the file."""
    masks: np.ndarray | None = field(repr=False)
    """(Y, X); 0 is background."""
    image_path: Path
    stack: bool = False
    """Whether image and masks have planes as their first axis."""

    @property
    def n_objects(self) -> int:
        """Objects in its masks; 0 without masks."""
        return 0 if self.masks is None else np.unique(self.masks[self.masks > 0]).size


@dataclass(frozen=True, eq=False, repr=False)
class ImageFolder(Result):
    """A folder that can be trained on or segmented."""

    path: Path
    """The folder."""
    files: dict[str, str]
    """SHA-256 of each file that was read, by its path relative to the folder."""
    digest: str
    """SHA-256 over ``files``: equal ones mean the same files under the same names."""
    train: tuple[LabelledImage, ...]
    """Images to train on, ``img_2`` before ``img_10``, as Cellpose sorts them."""
    test: tuple[LabelledImage, ...]
    """Images to test with, sorted in the same way."""
    warnings: tuple[str, ...]
    """Remarks on what can be used but deserves a look."""

    @property
    def to_segment(self) -> tuple[LabelledImage, ...]:
        """The images to segment: the test images, or all of them where there are none."""
        return self.test or self.train

    def sentence(self) -> str:
        """Say how many images there are, and what of them deserves a look."""
        n_images = f"{amount(len(self.train), 'training image')} and {len(self.test)} for testing"
        return "; ".join([f"{n_images} in {self.path}", *self.warnings])

    def rows(self) -> list[Row]:
        """Give each image with its shape, dtype and number of cells."""
        return [
            {
                "image": image.name,
                "part": part,
                "shape": "×".join(map(str, image.image.shape)),
                "dtype": image.image.dtype.name,
                "cells": "" if image.masks is None else image.n_objects,
            }
            for part, images in (("train", self.train), ("test", self.test))
            for image in images
        ]


def read_folder(
    path: str | os.PathLike[str], *, to_train: bool = True, axes: Axes = FLAT
) -> ImageFolder:
    """Read and check every image and mask of a folder.

    Parameters
    ----------
    path : path-like
        A folder with ``train/`` and, optionally, ``test/``; one without the two is all training.
        To segment, also one image file.
    to_train : bool
        Whether there must be training images, and a mask for each image; False suits segmentation.
    axes : Axes
        Whether images may be stacks, and what their axes are where the files do not say it.

    Returns
    -------
    ImageFolder
        Sorted, checked, with digests and warnings. Nothing is repaired: an object in several
        pieces stays one label, as stored.

    Raises
    ------
    BadInput
        If the folder holds no images, or a file is damaged, of another kind, or does not fit its
        partner; all such problems at once.
    """
    survey = list_folder(Path(path), to_train)
    images: dict[Split, list[LabelledImage]] = {"train": [], "test": []}
    for pair in survey.pairs:
        image = _read_pair(pair, survey, axes)
        if image is not None:
            images[pair.split].append(image)
    train = tuple(images["train"])
    test = tuple(images["test"])
    learnable = any(item.masks is not None and item.masks.any() for item in train)
    if not survey.problems and to_train and not learnable:
        survey.problems.append(
            f"{path}: none of the {len(train)} training masks holds an object, so there "
            "is nothing to learn; check that the right masks were exported, and images to train on "
            "lie in train/ where the folder has a test/"
        )
    survey.refuse_problems()
    survey.warnings += _leaks(train, test, survey)
    return ImageFolder(
        path=survey.folder,
        files=survey.files,
        digest=survey.digest(),
        train=train,
        test=test,
        warnings=tuple(survey.warnings),
    )


def _leaks(
    train: Sequence[LabelledImage], test: Sequence[LabelledImage], survey: Survey
) -> Iterator[str]:
    """Warn of each test image that is one of the training images, too."""
    known = {array_digest(item.image): item for item in train}
    for item in test:
        twin = known.get(array_digest(item.image))
        if twin is not None:
            yield (
                f"leak: {survey.relative(item.image_path)} holds the same image as "
                f"{survey.relative(twin.image_path)}, so its score is no held-out score"
            )


def folder_digest(path: str | os.PathLike[str], *, to_train: bool = True) -> str:
    """Digest the files that `read_folder` would use, without decoding them."""
    survey = list_folder(Path(path), to_train)
    for pair in survey.pairs:
        survey.read(pair.image)
        if pair.masks is not None:
            survey.read(pair.masks)
    survey.refuse_problems()
    return survey.digest()


# --- pixels ---------------------------------------------------------------------------------------


def _read_pair(pair: ImagePair, survey: Survey, axes: Axes) -> LabelledImage | None:
    """Read and check an image and its mask; None where there is a problem."""
    image = _checked(pair.image, check_image, survey, axes)
    if pair.masks is None:
        masks = None
    else:
        masks = _checked(pair.masks, check_masks, survey, axes)
        if image is None or masks is None:
            return None
        shape = image.pixels.shape[:3] if image.is_stack else image.pixels.shape[:2]
        if masks.pixels.shape != shape:
            survey.problems.append(
                f"{pair.masks}: shape {masks.pixels.shape}, expected {shape} as in "
                f"{pair.image.name}; check that the two belong together, that neither was resized "
                "and Y and X are not swapped"
            )
            return None
        if pair.split == "train" and not masks.pixels.any():
            survey.warnings.append(f"{survey.relative(pair.masks)}: no cell, all background")
    if image is None:
        return None
    return LabelledImage(
        name=pair.image.stem,
        image=image.pixels,
        masks=None if masks is None else masks.pixels,
        image_path=pair.image,
        stack=image.is_stack,
    )


def _checked(
    file: Path, check: Callable[[Path, Content, Axes], Checked], survey: Survey, axes: Axes
) -> Checked | None:
    """Read and check a file; problems and warnings go to the survey."""
    try:
        checked = check(file, survey.read(file), axes)
    except BadInput as error:
        survey.problems.append(str(error))
        return None
    survey.warnings += [f"{survey.relative(file)}: {remark}" for remark in checked.remarks]
    return checked
