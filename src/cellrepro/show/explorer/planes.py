"""What the explorer shows: images and the masks that several runs made of them, as planes.

A *plane* is one array as it travels to the browser: narrow, deflated, named after its content, so
that equal masks of many runs are one plane. Nothing here knows of widgets or browsers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from cellrepro.compare.consensus import Agreement, agree
from cellrepro.compare.matching import overlap
from cellrepro.compare.metrics import categories as category_map
from cellrepro.compare.object_changes import ObjectChange, ObjectKind, object_changes
from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image
from cellrepro.show.figures.masks import CATEGORIES
from cellrepro.store.digests import array_digest
from cellrepro.text import amount, grouped, ppm_text

Source = np.ndarray | Callable[[], np.ndarray | None]
"""An array, or a function without arguments that reads it, if it is there."""

Plane = dict[str, Any]

MOST_CHANNELS = 8
LONGEST_NAME = 14  # of a run in a sentence; longer ones would hide the numbers


@dataclass(frozen=True, eq=False)
class View:
    """One image and what every run made of it: label images, shape (Y, X) or (Z, Y, X), 0 is
    background, as arrays or functions that read them; none where a run has no masks of it.
    """

    name: str
    masks: Sequence[Source | None]
    image: Source | None = None  # of that shape, with or without channels last; or black
    truth: Source | None = None
    digests: Sequence[str | None] | None = None  # equal ones promise equal masks, read once

    @property
    def having(self) -> list[int]:
        """The runs that have masks of it."""
        return [run for run, masks in enumerate(self.masks) if masks is not None]


class OpenView:
    """A view that is looked at: its arrays, read once and checked, and what follows from them."""

    def __init__(self, view: View, names: Sequence[str]):
        self.view, self.names = view, names
        self._known: dict[tuple, Any] = {}
        first = _read(view.masks[view.having[0]])
        pixels = _read(view.image)
        image = np.zeros(first.shape, np.uint8) if pixels is None else pixels
        # What has more axes than the masks has channels last.
        self.shape = image.shape[: first.ndim] if first.ndim in (2, 3) else image.shape[:2]
        self.image, self.limits = narrow_image(checked_image(image, self.shape))
        truth = _read(view.truth)
        self.truth = None if truth is None else checked_labels("truth", truth, self.shape)

    def _once(self, key: tuple, make: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def labels(self, run: int) -> np.ndarray:
        """The checked label image of a run."""
        name = f"masks of {self.names[run]}"
        return self._once(
            ("labels", self._given_digest(run) or run),
            lambda: checked_labels(name, _read(self.view.masks[run]), self.shape),
        )

    def _given_digest(self, run: int) -> str | None:
        return self.view.digests[run] if self.view.digests else None

    def digest(self, run: int) -> str:
        """What equal masks have in common."""
        return self._given_digest(run) or self._once(
            ("digest", run), lambda: array_digest(self.labels(run).astype(np.uint32))
        )

    def categories(self, a: int, b: int) -> np.ndarray:
        """The categories map of two runs, uint8 in the shape of the masks."""
        key = "categories", self.digest(a), self.digest(b)
        return self._once(key, lambda: category_map(self.labels(a), self.labels(b)))

    def changes(self, a: int, b: int) -> tuple[ObjectChange, ...]:
        """What became of every object between two runs."""
        key = "changes", self.digest(a), self.digest(b)
        return self._once(key, lambda: object_changes(overlap(self.labels(a), self.labels(b))))

    @cached_property
    def agreement(self) -> Agreement:
        """How far all runs that have masks agree."""
        having = self.view.having
        masks = [partial(self.labels, run) for run in having]
        return agree(masks, digests=[self.digest(run) for run in having])

    def story(self, a: int, b: int) -> dict[str, Any]:
        """Every object's fate as columns, and in how many runs it is."""
        changes = self.changes(a, b)
        story: dict[str, Any] = {
            name: [getattr(change, name) for change in changes]
            for name in ("kind", "labels_a", "labels_b", "area_a", "area_b")
        }
        story |= {
            "iou": [round(change.iou, 6) for change in changes],
            "position": [[round(value, 2) for value in change.position] for change in changes],
            "moved": [
                None if np.isnan(change.displacement) else round(change.displacement, 2)
                for change in changes
            ],
        }
        if len(self.view.having) > 2:
            in_a, in_b = self._n_runs_with(a), self._n_runs_with(b)
            story["n_runs"] = len(self.view.having)
            story["runs"] = [
                # Of several objects the one that fewest runs have says most.
                min(in_a[label] for label in change.labels_a)
                if change.labels_a
                else min(in_b[label] for label in change.labels_b)
                for change in changes
            ]
        return story

    def _n_runs_with(self, run: int) -> dict[int, int]:
        """In how many runs each object of one run is."""
        from pandas import unique

        found = self.agreement.objects_of(self.view.having.index(run))
        labels = unique(self.labels(run).ravel())  # in raster order, as the agreement has them
        each = zip(labels[labels > 0].tolist(), found, strict=True)
        return {label: item.n_runs_with for label, item in each}

    def votes(self, which: str) -> np.ndarray:
        """How many runs call each pixel cell, or give it the same object (``objects``)."""
        agreement = self.agreement
        share = agreement.cell_share if which == "cells" else agreement.same_object_share
        return np.rint(share * agreement.n_runs).astype(np.int64)


class Views:
    """Some images with the masks of the same runs, read when they are looked at; the names are
    those of the runs, in the order of each view's masks."""

    def __init__(self, views: Sequence[View], names: Sequence[str]):
        if not views or len(names) < 2:
            raise BadInput(
                f"{amount(len(views), 'image')} of {amount(len(names), 'run')} given; the explorer "
                "compares two runs or more on one image or more"
            )
        for view in views:
            if len(view.masks) != len(names) or len(view.having) < 2:
                raise BadInput(
                    f"image {view.name} has {len(view.having)} masks for {len(names)} runs; give "
                    "one for each run, or None, and two or more in all"
                )
        self.views, self.names = tuple(views), tuple(names)
        self._planes: dict[str, Callable[[], Plane]] = {}
        self._opened: dict[int, OpenView] = {}

    def open(self, view: int) -> OpenView:
        """The arrays of one view; only the last one is held, as many big images would not fit."""
        if view not in self._opened:
            opened = OpenView(self.views[view], self.names)
            self._opened = {view: opened}
        return self._opened[view]

    def pair(self, view: int, a: int, b: int) -> tuple[int, int]:
        """Two different runs that have masks of a view: those asked for, or the first others."""
        having = self.views[view].having
        if a not in having:
            a = next(run for run in having if run != b)
        if b not in having or b == a:
            b = next(run for run in having if run != a)
        return a, b

    def scene(self, view: int, a: int, b: int, z: int = 0) -> dict[str, Any]:
        """What the browser needs to show two runs of a view, in one plane of a stack, as plain
        values: texts, counts, and the names of what `plane` gives."""
        opened = self.open(view)
        n_planes = opened.shape[0] if len(opened.shape) == 3 else 1
        z = min(z, n_planes - 1)
        counts = count(opened.categories(a, b))
        changes = opened.changes(a, b)
        names = self.names[a], self.names[b]
        short = names if max(map(len, names)) <= LONGEST_NAME else ("A", "B")
        return {
            "view": view,
            "a": a,
            "b": b,
            "z": z,
            "n_planes": n_planes,
            "names": {"image": opened.view.name, "a": names[0], "b": names[1]},
            "short": {"a": short[0], "b": short[1]},
            "having": opened.view.having,
            "planes": self._named_planes(view, a, b, z),
            "counts": counts,
            "line": counts_line(counts, *short),
            "n_objects": {
                "a": sum(len(change.labels_a) for change in changes),
                "b": sum(len(change.labels_b) for change in changes),
            },
            "kinds": {
                str(kind): sum(change.kind == kind for change in changes) for kind in ObjectKind
            },
        }

    def _named_planes(self, view: int, a: int, b: int, z: int) -> dict[str, str]:
        """The planes of a scene by what they are; each is made when it is asked for."""
        opened = self.open(view)
        of_a, of_b = opened.digest(a)[:16], opened.digest(b)[:16]

        def flat(read: Callable[[OpenView], Any], **facts: Any) -> Callable[[], Plane]:
            def make() -> Plane:
                one = self.open(view)  # not the one above, which would be held as long as its names
                array = read(one)
                return packed(array[z] if len(one.shape) == 3 else array, **facts)

            return make

        planes: dict[str, tuple[str, Callable[[], Plane]]] = {
            "image": (f"{z}", flat(lambda one: one.image, **opened.limits)),
            "a": (f"{of_a}/{z}", flat(lambda one: one.labels(a))),
            "b": (f"{of_b}/{z}", flat(lambda one: one.labels(b))),
            "categories": (f"{of_a}/{of_b}/{z}", flat(lambda one: one.categories(a, b))),
            "story": (f"{of_a}/{of_b}", lambda: packed_json(self.open(view).story(a, b))),
        }
        if opened.truth is not None:
            planes["truth"] = (f"{z}", flat(lambda one: one.truth))
        n_runs = len(opened.view.having)
        if n_runs > 2:
            planes["cells"] = (f"{z}", flat(lambda one: one.votes("cells"), n_runs=n_runs))
            planes["objects"] = (f"{z}", flat(lambda one: one.votes("objects"), n_runs=n_runs))
        names = {}
        for what, (content, make) in planes.items():
            kind = "labels" if what in ("a", "b") else what  # equal masks are one plane
            names[what] = f"{view}/{kind}/{content}"
            self._planes[names[what]] = make
        return names

    def plane(self, name: str) -> Plane:
        """One plane by the name that a scene gave it; see `packed`."""
        if name not in self._planes:
            raise BadInput(f"there is no plane {name!r}; expected one that a scene names")
        return self._planes[name]()


# -- arrays as planes ----------------------------------------------------------------------


def packed(array: np.ndarray, **facts: Any) -> Plane:
    """An array of integers in [0, 2**32), shape (Y, X) or (Y, X, C), as the browser receives it:
    ``data`` is a zlib stream of little-endian values in C order, in the narrowest ``dtype``."""
    dtype = np.min_scalar_type(int(array.max()))
    data = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<")).tobytes()
    # Level 1: label images are so regular that more effort saves little and costs seconds.
    deflated = zlib.compress(data, level=1)
    return {"data": deflated, "dtype": dtype.name, "shape": list(array.shape), **facts}


def packed_json(value: Any) -> Plane:
    """Plain values as the browser receives them: deflated JSON."""
    text = json.dumps(value, allow_nan=False)
    return {"data": zlib.compress(text.encode(), level=1), "dtype": "json", "shape": []}


def narrow_image(image: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The image in at most two bytes a value, with the limits of its contrast.

    Integers that span less than 2**16 arrive exactly, as offset + value. Others are quantised to
    1/65535 of their span, ten times finer than the four digits which the read-out shows.
    """
    numbers = image.astype(np.float64 if image.dtype.kind == "f" else np.int64)
    offset, top = numbers.min().item(), numbers.max().item()
    exact = image.dtype.kind != "f" and top - offset < 2**16
    step = 1 if exact else (top - offset) / (2**16 - 1) or 1
    stored = (numbers - offset if exact else np.rint((numbers - offset) / step)).astype(np.uint16)
    axes = tuple(range(image.ndim - 1))
    low, high = np.percentile(stored, (1, 99), axis=axes)
    # A channel of one value, or nearly, has no contrast to stretch: use its whole span.
    flat = low == high
    low, high = np.where(flat, stored.min(axes), low), np.where(flat, stored.max(axes), high)
    high = np.where(low == high, low + 1, high)
    limits = {"low": low.tolist(), "high": high.tolist()}
    return stored, {**limits, "offset": offset, "step": step, "exact": exact}


# -- counts --------------------------------------------------------------------------------


def count(categories: np.ndarray) -> dict[str, int | float]:
    """How many pixels of a map fall into each of `CATEGORIES`, how many ``differ``, and how many of
    a million ``pixels`` that is (``ppm``)."""
    numbers = np.bincount(categories.ravel(), minlength=len(CATEGORIES)).tolist()
    counts: dict[str, int | float] = dict(zip(CATEGORIES, numbers, strict=True))
    counts["differ"] = sum(numbers[2:])
    counts["pixels"] = categories.size
    counts["ppm"] = counts["differ"] / categories.size * 1e6
    return counts


def counts_line(counts: dict[str, int | float], name_a: str = "A", name_b: str = "B") -> str:
    """The counts as a sentence; digits are grouped in threes by spaces."""
    differ = counts["differ"]
    return (
        f"{grouped(differ)} {'pixel differs' if differ == 1 else 'pixels differ'} "
        f"= {ppm_text(counts['ppm'])} (only {name_a}: {grouped(counts['only_a'])}, "
        f"only {name_b}: {grouped(counts['only_b'])}, "
        f"other object: {grouped(counts['other_object'])}) of {grouped(counts['pixels'])}"
    )


# -- checking what was given ---------------------------------------------------------------


def checked_image(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The image of masks of that shape, with a last axis of channels, or BadInput."""
    given = image.shape
    if given == shape:
        image = image[..., np.newaxis]
    if image.shape[:-1] != shape or not 1 <= image.shape[-1] <= MOST_CHANNELS:
        raise BadInput(
            f"image has shape {given}; expected that of the masks, (Y, X) or (Z, Y, X), or that "
            f"with up to {MOST_CHANNELS} channels last. Give one plane of a stack for flat masks, "
            "and move channels with np.moveaxis(image, 0, -1)."
        )
    if image.size == 0:
        raise BadInput(f"image has shape {given}, so no pixels; there is nothing to compare.")
    if image.dtype.kind not in "buif" or not np.isfinite(image).all():
        raise BadInput(
            f"image has dtype {image.dtype} and values that are no finite real numbers; give "
            "np.nan_to_num(image)."
        )
    return image


def checked_labels(name: str, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The label image, or BadInput; a foreground map is one object."""
    if labels.shape != shape:
        raise BadInput(
            f"{name} has shape {labels.shape}; expected {shape}, (Y, X) of the image. Give "
            "the masks of this very image, one plane, neither cropped nor resized."
        )
    return label_image(name, labels.astype(np.uint8) if labels.dtype.kind == "b" else labels)


def _read(source: Source | None) -> Any:
    """The array, or none if there is none."""
    found = source() if callable(source) else source
    return None if found is None else np.asarray(found)
