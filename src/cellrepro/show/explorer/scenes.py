"""Scenes: two runs on one image, in the plain values that travel to the browser.

A scene names its planes after their content, so that equal masks of many runs are one plane that
travels once. Nothing here knows of widgets or browsers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.changed_cells import resized_cells
from cellrepro.comparison.mask_totals import fates_text
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.show.explorer.open_view import OpenView
from cellrepro.show.explorer.planes import PackedPlane
from cellrepro.show.explorer.view import TRUTH, View
from cellrepro.show.figures.colours import OTHER_OBJECT
from cellrepro.words import share_text
from samebits.errors import BadInput
from samebits.words import amount, grouped, verb_of

_BESIDE_TRUTH: Mapping[str, Mapping[ObjectKind, str]] = {
    "a": {ObjectKind.LOST: "missed", ObjectKind.GAINED: "extra"},
    "b": {ObjectKind.LOST: "extra", ObjectKind.GAINED: "missed"},
}
"""By the side that is the truth."""


class Scene(TypedDict):
    """What is shown: an image, two sides, in one plane of a stack."""

    view: int
    """The image, by its number among the views."""
    a: int
    """The first side, by its number as `OpenView` counts them."""
    b: int
    """The second side."""
    z: int
    """The plane of the stack, from 0."""
    n_planes: int
    """1 for a flat image."""
    names: dict[str, str]
    """What ``image``, ``a`` and ``b`` are called."""
    sides: list[int]
    """The sides that can be A or B on this image."""
    has_image: bool
    """False where only masks are shown."""
    pixel_size: float | None
    """The side of a pixel, micrometres; None where it is not known."""
    napari_call: str
    """The Python that opens the image in napari; empty where it was not read from files."""
    truth_is: str
    """The side that is the ground truth: ``a``, ``b``, or empty."""
    planes: dict[str, str]
    """The name of each plane by its content."""
    counts: dict[str, int]
    """Pixels by category."""
    line: str
    """What became of the cells, and the counts, as a sentence."""
    differs_by_plane: list[int]
    """How many pixels differ in each plane."""
    n_objects: dict[str, int]
    """How many cells ``a`` and ``b`` have."""
    n_unmatched: int
    """How many of these have no match."""
    kinds: dict[str, int]
    """Changes by kind."""


@dataclass(frozen=True)
class _PlaneContent:
    """The arguments of `OpenView.packed`, but for the place in a stack."""

    view: int
    content: str
    a: int
    b: int


class Scenes:
    """The scenes of some images with the masks of the same runs; each is read when it is shown."""

    def __init__(self, views: Sequence[View], names: Sequence[str]):
        incomplete = [
            view.name
            for view in views
            if len(view.masks) != len(names) or len(view.runs_with_masks) < 2
        ]
        if not views or incomplete:
            raise BadInput(
                f"{amount(len(views), 'image')} of {amount(len(names), 'run')} "
                f"{verb_of(len(views), 'was', 'were')} given, and masks are missing of "
                f"{', '.join(incomplete) or 'all'}; expected masks of two runs or more of every "
                "image"
            )
        has_truth = any(view.truth is not None for view in views)
        self.names = (*names, TRUTH) if has_truth else tuple(names)
        self._contents: dict[str, _PlaneContent] = {}
        # Only the last one stays open, as many big images would not fit into memory.
        self.open = lru_cache(maxsize=1)(lambda view: OpenView(views[view], self.names))

    def put(self, view: int, side: int, masks: NDArray[np.uint16 | np.uint32]) -> None:
        """Replace the masks of a side of the open view; names of what showed them hold no more."""
        self.open(view).put(side, masks)
        self._contents.clear()

    def pair(self, view: int, a: int, b: int) -> tuple[int, int]:
        """Choose two different sides of a view, those asked for where both have masks.

        A side without masks is replaced by the first one that has some.
        """
        sides = self.open(view).sides
        if a not in sides:
            a = next(side for side in sides if side != b)
        if b not in sides or b == a:
            b = next(side for side in sides if side != a)
        return a, b

    def scene(self, view: int, a: int, b: int, z: int | None = None) -> Scene:
        """Describe two sides of a view."""
        open_view = self.open(view)
        z = open_view.first_plane(a, b) if z is None else min(z, open_view.n_planes - 1)
        counts = open_view.counts(a, b)
        changes = open_view.changes(a, b)
        name_a = self.names[a]
        name_b = self.names[b]
        kinds = {str(kind): counts.changes.get(kind, 0) for kind in ObjectKind}
        unit = "voxels" if len(open_view.shape) == 3 else "pixels"
        truth_is = ""
        if open_view.is_truth(a):
            truth_is = "a"
        elif open_view.is_truth(b):
            truth_is = "b"
        are_renumbered = any(change.renumbered for change in changes)
        words = _BESIDE_TRUTH.get(truth_is, {})
        return {
            "view": view,
            "a": a,
            "b": b,
            "z": z,
            "n_planes": open_view.n_planes,
            "names": {"image": open_view.view.name, "a": name_a, "b": name_b},
            "sides": open_view.sides,
            "has_image": open_view.view.image is not None,
            "pixel_size": open_view.view.pixel_size,
            "napari_call": open_view.view.napari_call,
            "truth_is": truth_is,
            "planes": self._plane_names(view, a, b, z),
            "counts": dict(counts.pixels),
            "line": (
                f"{fates_text(kinds, resized_cells(changes), words=words)}; "
                f"{_pixels_text(counts.pixels, unit, are_renumbered=are_renumbered)}"
            ),
            "differs_by_plane": open_view.differs_by_plane(a, b),
            "n_objects": {
                "a": sum(len(change.labels_a) for change in changes),
                "b": sum(len(change.labels_b) for change in changes),
            },
            "n_unmatched": counts.n_unmatched,
            "kinds": kinds,
        }

    def _plane_names(self, view: int, a: int, b: int, z: int) -> dict[str, str]:
        """Name the planes of a scene.

        A name ends with the place in a stack, so that the browser can ask for the next plane before
        it is shown.
        """
        open_view = self.open(view)
        masks_a = open_view.digest(a)[:16]  # equal masks are one plane
        masks_b = open_view.digest(b)[:16]
        stems = {
            "image": "image",
            "a": f"labels/{masks_a}",
            "b": f"labels/{masks_b}",
            "categories": f"categories/{masks_a}/{masks_b}",
            "story": f"story/{masks_a}/{masks_b}",
        }
        if open_view.truth is not None:
            stems["truth"] = f"labels/{TRUTH}"
        if open_view.n_runs > 2:
            stems["cells"] = "cells"
            stems["objects"] = "objects"
        names = {}
        for content, stem in stems.items():
            self._contents[f"{view}/{stem}"] = _PlaneContent(view, content, a, b)
            plane = 0 if content == "story" else z  # a story is of the whole stack
            names[content] = f"{view}/{stem}/{plane}"
        return names

    def plane(self, name: str) -> PackedPlane:
        """Pack one plane by the name that a scene gave it."""
        stem, _, z = name.rpartition("/")
        plane = self._contents.get(stem)
        if plane is None:
            raise BadInput("the masks have changed since; what is shown now comes by itself")
        return self.open(plane.view).packed(plane.content, plane.a, plane.b, int(z))


def _pixels_text(counts: Mapping[str, int], unit: str, *, are_renumbered: bool) -> str:
    """Say how many pixels differ, and how."""
    only_a = counts["only_a"]
    only_b = counts["only_b"]
    other_object = counts["other_object"]
    n_pixels = sum(counts.values())
    n_differing = only_a + only_b + other_object
    if not n_differing:
        one = unit.removesuffix("s")
        if are_renumbered:
            return f"the same outlines in every {one}, with different numbers"
        return f"no {one} differs, of {grouped(n_pixels)}"
    return (
        f"{grouped(n_differing)} of {grouped(n_pixels)} {unit} "
        f"{verb_of(n_differing, 'differs', 'differ')} ({share_text(n_differing / n_pixels)}; "
        f"only A: {grouped(only_a)}, only B: {grouped(only_b)}, "
        f"{OTHER_OBJECT}: {grouped(other_object)})"
    )
