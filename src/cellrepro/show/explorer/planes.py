"""What the explorer shows: images and the masks that several runs made of them, as planes.

A *plane* is one array as it travels to the browser: narrow, deflated, named after its content, so
that equal masks of many runs are one plane. Nothing here knows of widgets or browsers.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cellrepro.compare.consensus import Agreement, agree
from cellrepro.compare.matching import overlap
from cellrepro.compare.metrics import categories as category_map
from cellrepro.compare.object_changes import ObjectChange, ObjectKind, object_changes
from cellrepro.errors import BadInput
from cellrepro.show.figures.masks import CATEGORIES
from cellrepro.text import grouped, ppm_text

Source = np.ndarray | Callable[[], np.ndarray | None]
"""An array, or a function without arguments that reads it, if it is there."""

MOST_CHANNELS = 8
LONGEST_NAME = 14


@dataclass(frozen=True, eq=False)
class View:
    """One image and what every run made of it.

    Attributes
    ----------
    name : str
        As the image is called on screen.
    masks : sequence of ndarray of int, or callable, or None
        One label image per run, shape (Y, X) or (Z, Y, X), 0 is background, or a function that
        reads it; none where a run has no masks of this image.
    image : ndarray or callable, optional
        Shape of the masks, with or without a last axis of channels. Black if not given.
    truth : ndarray of int or callable, optional
        Annotated label image of the same shape.
    digests : sequence of str, optional
        One per run; equal digests promise equal masks, which are then read and sent once.
    categories : ndarray of uint8, optional
        See `cellrepro.show.explorer.widget.explore`; only where there are two runs.
    """

    name: str
    masks: Sequence[Source | None]
    image: Source | None = None
    truth: Source | None = None
    digests: Sequence[str | None] | None = None
    categories: np.ndarray | None = None


@dataclass(eq=False)
class _Opened:
    """The arrays of one view that were read so far, and what was computed from them."""

    image: np.ndarray
    limits: dict[str, Any]
    truth: np.ndarray | None
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    categories: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    changes: dict[tuple[str, str], tuple[ObjectChange, ...]] = field(default_factory=dict)
    agreement: Agreement | None = None


class Views:
    """Some images with the masks of the same runs, read when they are looked at.

    Parameters
    ----------
    views : sequence of View
    names : sequence of str
        What the runs are called, in the order of each view's masks.

    Raises
    ------
    BadInput
        If there are no views, fewer than two runs, or a view has another number of masks.
    """

    def __init__(self, views: Sequence[View], names: Sequence[str]):
        if not views:
            raise BadInput("no image was given; the explorer shows one or more")
        if len(names) < 2:
            raise BadInput(
                f"{len(names)} runs were given; the explorer compares two or more, for example "
                "two repeats of one spec"
            )
        for view in views:
            if len(view.masks) != len(names):
                raise BadInput(
                    f"image {view.name} has {len(view.masks)} masks for {len(names)} runs; give "
                    "one for each run, None where a run has none"
                )
            if sum(masks is not None for masks in view.masks) < 2:
                raise BadInput(
                    f"fewer than two runs have masks of image {view.name}; leave it out, or name "
                    "runs over the same images"
                )
        self.views = tuple(views)
        self.names = tuple(names)
        self._digests: dict[tuple[int, int], str] = {}
        # Only what is looked at is held: a thousand runs over big images would not fit.
        self._opened: dict[int, _Opened] = {}

    # ---- what can be chosen --------------------------------------------------------------

    def pair(self, view: int, a: int, b: int) -> tuple[int, int]:
        """Two different runs that have masks of a view: those asked for, or the first others."""
        having = self.having(view)
        if a not in having:
            a = next(run for run in having if run != b)
        if b not in having or b == a:
            b = next(run for run in having if run != a)
        return a, b

    def having(self, view: int) -> list[int]:
        """The runs that have masks of a view."""
        return [run for run, masks in enumerate(self.views[view].masks) if masks is not None]

    def labels(self, view: int, run: int) -> np.ndarray:
        """The checked label image that a run made of a view."""
        opened, digest = self._open(view), self.digest(view, run)
        if digest not in opened.labels:
            opened.labels[digest] = self._checked(view, run, _read(self.views[view].masks[run]))
        return opened.labels[digest]

    def digest(self, view: int, run: int) -> str:
        """What equal masks of a view have in common."""
        known = self.views[view].digests
        if known is not None and known[run]:
            return str(known[run])
        if (view, run) not in self._digests:
            labels = self._checked(view, run, _read(self.views[view].masks[run]))
            narrow = np.ascontiguousarray(labels, dtype=_narrowest(labels))
            digest = hashlib.sha256(f"{narrow.dtype}{narrow.shape}".encode())
            digest.update(narrow.data)
            self._digests[view, run] = digest.hexdigest()
            self._open(view).labels.setdefault(self._digests[view, run], labels)
        return self._digests[view, run]

    def categories(self, view: int, a: int, b: int) -> np.ndarray:
        """The categories map of two runs, uint8 in the shape of the masks."""
        opened = self._open(view)
        key = self.digest(view, a), self.digest(view, b)
        if key not in opened.categories:
            masks_a, masks_b = self.labels(view, a), self.labels(view, b)
            given = self.views[view].categories
            if given is not None and a > b:  # given for the other order
                given = np.array([0, 1, 3, 2, 4], np.uint8)[given]
            opened.categories[key] = (
                category_map(masks_a, masks_b)
                if given is None
                else checked_categories(given, masks_a, masks_b)
            )
        return opened.categories[key]

    def changes(self, view: int, a: int, b: int) -> tuple[ObjectChange, ...]:
        """What became of every object between two runs."""
        opened = self._open(view)
        key = self.digest(view, a), self.digest(view, b)
        if key not in opened.changes:
            table = overlap(self.labels(view, a), self.labels(view, b))
            opened.changes[key] = object_changes(table)
        return opened.changes[key]

    def agreement(self, view: int) -> Agreement:
        """How far all runs that have masks of a view agree."""
        opened = self._open(view)
        if opened.agreement is None:
            having = self.having(view)
            opened.agreement = agree(
                [partial(self.labels, view, run) for run in having],
                digests=[self.digest(view, run) for run in having],
            )
        return opened.agreement

    def truth(self, view: int) -> np.ndarray | None:
        """The checked truth of a view, if there is one."""
        return self._open(view).truth

    def n_planes(self, view: int) -> int:
        """Planes of a stack, 1 for a flat image."""
        image = self._open(view).image
        return len(image) if image.ndim == 4 else 1

    # ---- what is sent --------------------------------------------------------------------

    def scene(self, view: int, a: int, b: int, z: int = 0) -> dict[str, Any]:
        """What the browser needs to show two runs: texts, counts and names of planes.

        Parameters
        ----------
        view, a, b : int
            Positions of the view and of two runs.
        z : int
            Plane of a stack.

        Returns
        -------
        dict
            Plain values. ``planes`` names what `plane` gives.

        Raises
        ------
        BadInput
            If the masks are none, or of another shape.
        """
        opened = self._open(view)
        masks_a, masks_b = self.labels(view, a), self.labels(view, b)
        counts = count(self.categories(view, a, b))
        having = self.having(view)
        names = self.names[a], self.names[b]
        # In a sentence long names would hide the numbers.
        short = names if max(map(len, names)) <= LONGEST_NAME else ("A", "B")
        key = f"{view}/{self.digest(view, a)[:16]}/{self.digest(view, b)[:16]}"
        planes = {
            "image": f"image/{view}/{z}",
            "a": f"labels/{view}/{self.digest(view, a)[:16]}/{z}",
            "b": f"labels/{view}/{self.digest(view, b)[:16]}/{z}",
            "categories": f"categories/{key}/{z}",
            "story": f"story/{key}",
        }
        if opened.truth is not None:
            planes["truth"] = f"truth/{view}/{z}"
        if len(having) > 2:
            planes |= {"cells": f"cells/{view}/{z}", "objects": f"objects/{view}/{z}"}
        return {
            "view": view,
            "a": a,
            "b": b,
            "z": z,
            "n_planes": self.n_planes(view),
            "names": {"image": self.views[view].name, "a": self.names[a], "b": self.names[b]},
            "short": {"a": short[0], "b": short[1]},
            "having": having,
            "planes": planes,
            "counts": counts,
            "line": counts_line(counts, *short),
            "n_objects": {"a": _n_objects(masks_a), "b": _n_objects(masks_b)},
            "kinds": self._kinds(view, a, b),
        }

    def plane(self, name: str) -> dict[str, Any]:
        """One plane by the name that a scene gave it; see `packed`.

        Raises
        ------
        BadInput
            If there is no such plane.
        """
        kind, _, rest = name.partition("/")
        parts = rest.split("/")
        try:
            view = int(parts[0])
            opened = self._open(view)
            if kind == "image":
                values = opened.image[int(parts[1])] if opened.image.ndim == 4 else opened.image
                return packed(values, **opened.limits)
            if kind == "story":
                return packed_json(self._story(view, *self._runs(view, *parts[1:3])))
            z = int(parts[-1])
            if kind == "labels":
                return packed(_at(self.labels(view, *self._runs(view, parts[1])), z))
            if kind == "categories":
                return packed(_at(self.categories(view, *self._runs(view, *parts[1:3])), z))
            if kind == "truth" and opened.truth is not None:
                return packed(_at(opened.truth, z))
            if kind in ("cells", "objects"):
                agreement = self.agreement(view)
                share = agreement.cell_share if kind == "cells" else agreement.same_object_share
                runs = np.rint(_at(share, z) * agreement.n_runs).astype(np.int64)
                return packed(runs, n_runs=agreement.n_runs)
        except BadInput:
            raise
        except (ValueError, IndexError) as error:
            raise BadInput(f"there is no plane {name!r} ({error})") from error
        raise BadInput(f"there is no plane {name!r}; expected one that a scene names")

    def _runs(self, view: int, *digests: str) -> list[int]:
        """The first run with each digest, given by its first 16 digits."""
        found = []
        for digest in digests:
            having = (run for run in self.having(view) if self.digest(view, run)[:16] == digest)
            run = next(having, None)  # others are not even read
            if run is None:
                raise BadInput(f"no run has masks {digest} of image {self.views[view].name}")
            found.append(run)
        return found

    def _kinds(self, view: int, a: int, b: int) -> dict[str, int]:
        numbers = dict.fromkeys(map(str, ObjectKind), 0)
        for change in self.changes(view, a, b):
            numbers[str(change.kind)] += 1
        return numbers

    def _story(self, view: int, a: int, b: int) -> dict[str, Any]:
        """Every object's fate as columns, and in how many runs it is."""
        changes = self.changes(view, a, b)
        story: dict[str, Any] = {
            "kind": [str(change.kind) for change in changes],
            "labels_a": [list(change.labels_a) for change in changes],
            "labels_b": [list(change.labels_b) for change in changes],
            "iou": [round(change.iou, 6) for change in changes],
            "position": [_rounded(change.position) for change in changes],
            "position_b": [_rounded(change.position_b) for change in changes],
            "area_a": [change.area_a for change in changes],
            "area_b": [change.area_b for change in changes],
            "moved": [
                None if np.isnan(change.displacement) else round(change.displacement, 2)
                for change in changes
            ],
        }
        having = self.having(view)
        if len(having) > 2:
            in_a, in_b = self._n_runs_with(view, a), self._n_runs_with(view, b)
            story["n_runs"] = len(having)
            # Of several objects the least stable one is telling.
            story["runs"] = [
                min(
                    [in_a[label] for label in change.labels_a]
                    or [in_b[label] for label in change.labels_b]
                )
                for change in changes
            ]
        return story

    def _n_runs_with(self, view: int, run: int) -> dict[int, int]:
        """In how many runs each object of one run is."""
        stable = self.agreement(view).objects_of(self.having(view).index(run))
        labels = _in_raster_order(self.labels(view, run))
        return {
            label: item.n_runs_with for label, item in zip(labels.tolist(), stable, strict=True)
        }

    # ---- reading -------------------------------------------------------------------------

    def _open(self, view: int) -> _Opened:
        if view not in self._opened:
            given = self.views[view]
            first = _read(next(masks for masks in given.masks if masks is not None))
            pixels = _read(given.image)
            image = np.zeros(first.shape, np.uint8) if pixels is None else pixels
            # What has more axes than the masks has channels last.
            shape = image.shape[: first.ndim] if first.ndim in (2, 3) else image.shape[:2]
            image = checked_image(image, shape)
            truth = _read(given.truth)
            if truth is not None:
                truth = checked_labels("truth", truth, shape)
            stored, limits = _narrow_image(image)
            self._opened.clear()
            self._opened[view] = _Opened(stored, limits, truth)
        return self._opened[view]

    def _checked(self, view: int, run: int, labels: np.ndarray) -> np.ndarray:
        shape = self._open(view).image.shape[:-1]
        if len(self.names) == 2:
            name = ("masks_a", "masks_b")[run]
        else:
            name = f"the mask of {self.names[run]} on {self.views[view].name}"
        return checked_labels(name, labels, shape)


# ---- arrays as planes ------------------------------------------------------------------------


def packed(array: np.ndarray, **facts: Any) -> dict[str, Any]:
    """An array of non-negative integers as the browser receives it.

    Parameters
    ----------
    array : ndarray of int, shape (Y, X) or (Y, X, C)
        Values in [0, 2**32).
    **facts
        Further entries to send along.

    Returns
    -------
    dict
        ``data`` (zlib stream of the little-endian values in C order), ``dtype`` (the narrowest of
        uint8, uint16, uint32 that holds them), ``shape`` and `facts`.
    """
    dtype = _narrowest(array)
    data = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<")).tobytes()
    return {
        # Level 1: label images are so regular that more effort saves little and costs seconds.
        "data": zlib.compress(data, level=1),
        "dtype": dtype.name,
        "shape": list(array.shape),
        **facts,
    }


def packed_json(value: Any) -> dict[str, Any]:
    """Plain values as the browser receives them: deflated JSON."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return {"data": zlib.compress(text.encode(), level=1), "dtype": "json", "shape": []}


def unpacked(plane: dict[str, Any]) -> Any:
    """The array that `packed` was given, in its narrowest dtype, or the values of `packed_json`.

    Parameters
    ----------
    plane : dict

    Returns
    -------
    ndarray, or plain values

    Examples
    --------
    >>> unpacked(packed(np.array([[0, 300]])))
    array([[  0, 300]], dtype=uint16)
    >>> unpacked(packed_json({"kind": ["kept"]}))
    {'kind': ['kept']}
    """
    content = zlib.decompress(plane["data"])
    if plane["dtype"] == "json":
        return json.loads(content)
    dtype = np.dtype(plane["dtype"])
    values = np.frombuffer(content, dtype=dtype.newbyteorder("<"))
    return values.astype(dtype).reshape(plane["shape"])


def grey(plane: dict[str, Any]) -> np.ndarray:
    """The image plane in 8 bit, stretched between its limits; channels are averaged.

    Parameters
    ----------
    plane : dict
        Of an image, with its limits.

    Returns
    -------
    ndarray of uint8, shape (Y, X)
        The very values that the browser paints.
    """
    low, high = np.asarray(plane["low"], dtype=float), np.asarray(plane["high"], dtype=float)
    stretched = np.clip((unpacked(plane) - low) / (high - low), 0, 1)
    return np.floor(stretched.mean(axis=2) * 255 + 0.5).astype(np.uint8)


# ---- counts ----------------------------------------------------------------------------------


def count(categories: np.ndarray) -> dict[str, int | float]:
    """How many pixels fall into each category, and how many of a million differ.

    Parameters
    ----------
    categories : ndarray of uint8, shape (Y, X) or (Z, Y, X)
        Values 0 to 4 as in `CATEGORIES`.

    Returns
    -------
    dict
        One count per category, ``differ``, ``pixels`` and ``ppm`` = differ / pixels * 1e6.

    Examples
    --------
    >>> count(np.array([[0, 1], [2, 4]], dtype=np.uint8))["ppm"]
    500000.0
    """
    numbers = np.bincount(categories.ravel(), minlength=len(CATEGORIES)).tolist()
    counts: dict[str, int | float] = dict(zip(CATEGORIES, numbers, strict=True))
    counts["differ"] = sum(numbers[2:])
    counts["pixels"] = categories.size
    counts["ppm"] = counts["differ"] / categories.size * 1e6
    return counts


def counts_line(counts: dict[str, int | float], name_a: str = "A", name_b: str = "B") -> str:
    """The counts as a sentence; digits are grouped in threes by spaces.

    Parameters
    ----------
    counts : dict
        From `count`.
    name_a, name_b : str
        What the two runs are called.

    Returns
    -------
    str

    Examples
    --------
    >>> print(counts_line(count(np.array([[0, 1], [2, 4]], dtype=np.uint8))))
    2 pixels differ = 500 000 ppm (only A: 1, only B: 0, other object: 1) of 4
    """
    differ = counts["differ"]
    parts = (
        f"only {name_a}: {grouped(counts['only_a'])}, "
        f"only {name_b}: {grouped(counts['only_b'])}, "
        f"other object: {grouped(counts['other_object'])}"
    )
    pixels = "pixel differs" if differ == 1 else "pixels differ"
    return (
        f"{grouped(differ)} {pixels} = {ppm_text(counts['ppm'])} ({parts}) "
        f"of {grouped(counts['pixels'])}"
    )


# ---- checking what was given -----------------------------------------------------------------


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
    if image.dtype.kind not in "buif":
        raise BadInput(f"image has dtype {image.dtype}; expected real numbers.")
    if not np.isfinite(image).all():
        raise BadInput(
            f"image has {np.count_nonzero(~np.isfinite(image))} values that are NaN or infinite; "
            "expected finite numbers. Replace them with np.nan_to_num(image)."
        )
    return image


def checked_labels(name: str, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The label image, or BadInput."""
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise BadInput(
            f"{name} has shape {labels.shape}; expected {shape}, (Y, X) of the image. Give "
            "the masks of this very image, one plane, neither cropped nor resized."
        )
    if labels.dtype.kind not in "bui":
        raise BadInput(
            f"{name} has dtype {labels.dtype}; expected a label image of integers with 0 as "
            f"background. If its values are whole numbers, give {name}.astype(np.int32)."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= 2**32:
        raise BadInput(
            f"{name} has labels from {low} to {high}; expected 0 for background and labels "
            "below 2**32 for objects. Renumber the objects from 1."
        )
    return labels.astype(np.uint8) if labels.dtype.kind == "b" else labels


def checked_categories(
    categories: np.ndarray, masks_a: np.ndarray, masks_b: np.ndarray
) -> np.ndarray:
    """The categories map, or BadInput where it contradicts the masks it is drawn over."""
    categories = checked_labels("categories", categories, masks_a.shape)
    in_a, in_b = masks_a > 0, masks_b > 0
    expected = np.where(in_a & in_b, 1, 2 * in_a + 3 * in_b)
    # "Agree" and "other object" both mean a cell in both; which one, the masks alone do not say.
    wrong = np.where(categories == 4, 1, categories) != expected
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        axes = "(y, x)" if len(place) == 2 else "(z, y, x)"
        raise BadInput(
            f"categories contradict the masks at {np.count_nonzero(wrong)} pixels, first at "
            f"{axes} = {place}: category {categories[place]} where A has label {masks_a[place]} "
            f"and B {masks_b[place]}. Expected 0 background in both, 1 agree, 2 only A, 3 only B, "
            "4 other object; leave categories out to have them computed."
        )
    return categories.astype(np.uint8)


def _narrow_image(image: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
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
    return stored, {
        "low": low.tolist(),
        "high": high.tolist(),
        "offset": offset,
        "step": step,
        "exact": exact,
    }


def _read(source: Source | None) -> Any:
    """The array, or none if there is none."""
    found = source() if callable(source) else source
    return None if found is None else np.asarray(found)


def _narrowest(array: np.ndarray) -> np.dtype:
    return np.min_scalar_type(int(array.max()))


def _at(array: np.ndarray, z: int) -> np.ndarray:
    return array[z] if array.ndim == 3 else array


def _n_objects(labels: np.ndarray) -> int:
    return len(_in_raster_order(labels))


def _in_raster_order(labels: np.ndarray) -> np.ndarray:
    """The labels of the objects in the order in which they appear."""
    flat = labels.ravel()
    begins = flat[np.flatnonzero(np.diff(flat, prepend=flat.dtype.type(0)))]
    found, first = np.unique(begins, return_index=True)
    return found[np.argsort(first)][found[np.argsort(first)] > 0]


def _rounded(position: tuple[float, ...] | None) -> list[float] | None:
    return None if position is None else [round(value, 2) for value in position]
