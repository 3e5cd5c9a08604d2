"""What the explorer shows: images and the masks that several runs made of them, as planes.

A *plane* is one array as it travels to the browser: narrow, deflated, named after its content, so
that equal masks of many runs are one plane. Nothing here knows of widgets or browsers.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from cellrepro.bits.digests import array_digest
from cellrepro.errors import BadInput
from cellrepro.images.label_image import label_image
from cellrepro.same.consensus import Agreement, agree
from cellrepro.same.matching import overlap
from cellrepro.same.metrics import categories as category_map
from cellrepro.same.object_changes import ObjectChange, ObjectKind, object_changes
from cellrepro.show.figures.pixels import CATEGORIES
from cellrepro.words import grouped, ppm_text

Source = np.ndarray | Callable[[], np.ndarray | None]
"""An array, or a function without arguments that reads it, if it is there."""

Plane = dict[str, Any]

TRUTH = "truth"
"""What the ground truth is called, which can be A or B like a run; its number is the one after the
last run's."""
_MOST_CHANNELS = 8
_MOST_KNOWN = 64  # label images, maps and lists of changes of an image that are held at a time
_LONGEST_NAME = 14  # of a run in a sentence; longer ones would hide the numbers


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
    """A view that is looked at: its arrays, read once and checked, and what follows from them.
    The names are those of the runs, and `TRUTH`."""

    def __init__(self, view: View, names: Sequence[str]):
        self.view, self.names = view, names
        self._known: dict[str, Any] = {}
        first = _read(view.masks[view.having[0]])
        pixels = _read(view.image)
        image = np.zeros(first.shape, np.uint8) if pixels is None else pixels
        self.shape = image.shape[: first.ndim]  # what has more axes has channels last
        self.image, self.limits = _narrow_image(_checked_image(image, self.shape))
        truth = _read(view.truth)
        self.truth = None if truth is None else _checked_labels(TRUTH, truth, self.shape)
        self.sides = [*view.having, *([] if truth is None else [len(view.masks)])]
        """What can be A or B: the runs that have masks of it, and the truth."""

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        """What was made before, or is made now; of big arrays only the last ones are held."""
        known = self._known.pop(key) if key in self._known else make()
        self._known[key] = known  # the last one used comes last
        while len(self._known) > _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        return known

    def labels(self, run: int) -> np.ndarray:
        """The checked label image of a run, or of the truth."""
        if self.is_truth(run) and self.truth is not None:
            return self.truth
        name, masks = f"masks of {self.names[run]}", self.view.masks[run]
        return self._once(f"labels {run}", lambda: _checked_labels(name, _read(masks), self.shape))

    def digest(self, run: int) -> str:
        """What equal masks have in common."""
        if self.is_truth(run):
            return TRUTH
        given = self.view.digests[run] if self.view.digests else None
        return given or self._once(
            f"digest {run}", lambda: array_digest(self.labels(run).astype(np.uint32))
        )

    def is_truth(self, run: int) -> bool:
        """Whether a side is the truth and no run."""
        return run == len(self.view.masks)

    def categories(self, a: int, b: int) -> np.ndarray:
        """The categories map of two runs, uint8 in the shape of the masks."""
        return self._once(
            f"categories {a} {b}", lambda: category_map(self.labels(a), self.labels(b))
        )

    def changes(self, a: int, b: int) -> tuple[ObjectChange, ...]:
        """What became of every object between two runs."""
        return self._once(
            f"changes {a} {b}", lambda: object_changes(overlap(self.labels(a), self.labels(b)))
        )

    def counted(self, a: int, b: int) -> tuple[dict[str, int], Counter[ObjectKind]]:
        """Pixels by category and changes by kind, over all planes of a stack."""

        def count() -> Any:
            kinds = Counter(change.kind for change in self.changes(a, b))
            return _counts(self.categories(a, b)), kinds

        return self._once(f"counts {a} {b}", count)

    @cached_property
    def agreement(self) -> Agreement:
        """How far all runs that have masks agree."""
        masks = [partial(self.labels, run) for run in self.view.having]
        return agree(masks, digests=list(map(self.digest, self.view.having)))

    def story(self, a: int, b: int) -> dict[str, Any]:
        """Every object's fate as columns, and in how many runs it is."""
        changes = self.changes(a, b)
        story: dict[str, Any] = {
            name: [getattr(change, name) for change in changes]
            for name in (
                *("kind", "labels_a", "labels_b", "area_a", "area_b", "iou", "position"),
                "cut_between",
            )
        }
        moved = [change.displacement for change in changes]
        story["moved"] = [None if np.isnan(length) else length for length in moved]
        if len(self.view.having) > 2:
            in_a, in_b = self._n_runs_with(a), self._n_runs_with(b)
            story["n_runs"] = len(self.view.having)
            story["runs"] = [
                # Of several objects the one that fewest runs have says most; the truth is no run.
                min(
                    [in_a[x] for x in change.labels_a if in_a]
                    or [in_b[x] for x in change.labels_b if in_b],
                    default=None,
                )
                for change in changes
            ]
        return story

    def _n_runs_with(self, run: int) -> dict[int, int]:
        """In how many runs each object of one run is; nothing of the truth's."""
        from pandas import unique

        if self.is_truth(run):
            return {}
        found = self.agreement.objects_of(self.view.having.index(run))
        labels = unique(self.labels(run).ravel())  # in raster order, as the agreement has them
        each = zip(labels[labels > 0].tolist(), found, strict=True)
        return {label: item.n_runs_with for label, item in each}

    def votes(self, which: str) -> np.ndarray:
        """How many runs call each pixel cell, or give it the same object (``objects``)."""
        agreement = self.agreement
        share = agreement.cell_share if which == "cells" else agreement.same_object_share
        return np.rint(share * agreement.n_runs).astype(np.int64)

    def flat(self, array: np.ndarray, z: int) -> np.ndarray:
        """One plane of a stack; an image as it is."""
        return array[z] if len(self.shape) == 3 else array

    def plane(self, what: str, a: int, b: int, z: int) -> Plane:
        """What one of the planes that a scene names holds."""
        array: Any = None
        facts: dict[str, Any] = {}
        match what:
            case "story":
                text = json.dumps(self.story(a, b), allow_nan=False)
                return {"data": zlib.compress(text.encode(), level=1), "dtype": "json", "shape": []}
            case "image":
                array, facts = self.image, self.limits
            case "truth":
                array = self.truth
            case "a" | "b":
                array = self.labels(a if what == "a" else b)
            case "categories":
                array = self.categories(a, b)
            case _:
                array, facts = self.votes(what), {"n_runs": len(self.view.having)}
        return _packed(self.flat(array, z), **facts)


class Views:
    """Some images with the masks of the same runs, read when they are looked at; the names are
    those of the runs, in the order of each view's masks."""

    def __init__(self, views: Sequence[View], names: Sequence[str]):
        few = [v.name for v in views if len(v.masks) != len(names) or len(v.having) < 2]
        if not views or few:
            raise BadInput(
                f"{len(views)} images of {len(names)} runs were given, and masks are missing of "
                f"{', '.join(few) or 'all'}; expected masks of two runs or more of every image"
            )
        self.views = tuple(views)
        known = any(view.truth is not None for view in views)
        self.names = (*names, TRUTH) if known else tuple(names)
        self._named: dict[str, tuple[int, str, int, int]] = {}
        # Only the last one is held, as many big images would not fit.
        self.open = lru_cache(maxsize=1)(lambda view: OpenView(views[view], self.names))

    def pair(self, view: int, a: int, b: int) -> tuple[int, int]:
        """Two different sides that have masks of a view: those asked for, or the first others."""
        sides = self.open(view).sides
        if a not in sides:
            a = next(run for run in sides if run != b)
        if b not in sides or b == a:
            b = next(run for run in sides if run != a)
        return a, b

    def scene(self, view: int, a: int, b: int, z: int = 0) -> dict[str, Any]:
        """What the browser needs to show two runs of a view, in one plane of a stack, as plain
        values: texts, counts, and the names of what `plane` gives."""
        opened = self.open(view)
        n_planes = opened.shape[0] if len(opened.shape) == 3 else 1
        z = min(z, n_planes - 1)
        (counts, kinds), changes = opened.counted(a, b), opened.changes(a, b)
        names = self.names[a], self.names[b]
        short = names if max(map(len, names)) <= _LONGEST_NAME else ("A", "B")
        return {
            "view": view,
            "a": a,
            "b": b,
            "z": z,
            "n_planes": n_planes,
            "names": {"image": opened.view.name, "a": names[0], "b": names[1]},
            "short": {"a": short[0], "b": short[1]},
            "sides": opened.sides,
            "truth_is": "a" if opened.is_truth(a) else "b" if opened.is_truth(b) else "",
            "planes": self._named_planes(view, a, b, z),
            "counts": counts,
            "line": _line(counts, *short),
            "n_objects": {
                "a": sum(len(change.labels_a) for change in changes),
                "b": sum(len(change.labels_b) for change in changes),
            },
            "kinds": {str(kind): kinds[kind] for kind in ObjectKind},
        }

    def _named_planes(self, view: int, a: int, b: int, z: int) -> dict[str, str]:
        """The planes of a scene by what they are, each made when it is asked for; names end with
        the place in a stack, so that the browser can ask for the next one before it is shown."""
        opened = self.open(view)
        of_a, of_b = opened.digest(a)[:16], opened.digest(b)[:16]
        contents = {
            "image": f"image/{z}",
            "a": f"labels/{of_a}/{z}",  # equal masks are one plane
            "b": f"labels/{of_b}/{z}",
            "categories": f"categories/{of_a}/{of_b}/{z}",
            "story": f"story/{of_a}/{of_b}/0",
        }
        if opened.truth is not None:
            contents["truth"] = f"labels/{TRUTH}/{z}"
        if len(opened.view.having) > 2:
            contents |= {"cells": f"cells/{z}", "objects": f"objects/{z}"}
        names = {what: f"{view}/{content}" for what, content in contents.items()}
        places = {what: name.rpartition("/")[0] for what, name in names.items()}
        self._named |= {place: (view, what, a, b) for what, place in places.items()}
        return names

    def plane(self, name: str) -> Plane:
        """One plane by the name that a scene gave it; see `_packed`."""
        place, _, z = name.rpartition("/")
        view, what, a, b = self._named[place]
        return self.open(view).plane(what, a, b, int(z))


# -- arrays as planes ----------------------------------------------------------------------


def _packed(array: np.ndarray, **facts: Any) -> Plane:
    """An array of integers in [0, 2**32), shape (Y, X) or (Y, X, C), as the browser receives it:
    ``data`` is a zlib stream of little-endian values in C order, in the narrowest ``dtype``."""
    dtype = np.min_scalar_type(int(array.max()))
    data = np.ascontiguousarray(array, dtype=dtype.newbyteorder("<")).tobytes()
    # Level 1: label images are so regular that more effort saves little and costs seconds.
    deflated = zlib.compress(data, level=1)
    return {"data": deflated, "dtype": dtype.name, "shape": list(array.shape), **facts}


def _narrow_image(image: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The image in at most two bytes a value, with the limits of its contrast.

    Integers that span less than 2**16 arrive exactly, as offset + value. Others are quantised to
    1/65535 of their span, ten times finer than the four digits which the read-out shows.
    """
    numbers = image.astype(np.float64 if image.dtype.kind == "f" else np.int64)
    offset, top = numbers.min().item(), numbers.max().item()
    exact = image.dtype.kind != "f" and top - offset < 2**16
    step = 1 if exact else (top - offset) / (2**16 - 1) or 1
    stored = np.rint((numbers - offset) / step).astype(np.uint16)
    axes = tuple(range(image.ndim - 1))
    low, high = np.percentile(stored, (1, 99), axis=axes)
    # A channel of one value, or nearly, has no contrast to stretch: use its whole span.
    flat = low == high
    low, high = np.where(flat, stored.min(axes), low), np.where(flat, stored.max(axes), high)
    high = np.where(low == high, low + 1, high)
    limits = {"low": low.tolist(), "high": high.tolist()}
    return stored, {**limits, "offset": offset, "step": step, "exact": exact}


def _counts(categories: np.ndarray) -> dict[str, int]:
    """How many pixels of a map fall into each of `CATEGORIES`."""
    numbers = np.bincount(categories.ravel(), minlength=len(CATEGORIES)).tolist()
    return dict(zip(CATEGORIES, numbers, strict=True))


def _line(counts: dict[str, int], name_a: str, name_b: str) -> str:
    """The counts as a sentence; digits are grouped in threes by spaces."""
    only_a, only_b, other = (counts[name] for name in ("only_a", "only_b", "other_object"))
    n, differ = sum(counts.values()), only_a + only_b + other
    if not differ:
        return f"no pixel differs, of {grouped(n)}"
    return (
        f"{grouped(differ)} {'pixel differs' if differ == 1 else 'pixels differ'} "
        f"= {ppm_text(differ / n * 1e6)} (only {name_a}: {grouped(only_a)}, "
        f"only {name_b}: {grouped(only_b)}, other object: {grouped(other)}) of {grouped(n)}"
    )


# -- checking what was given ---------------------------------------------------------------


def _checked_image(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The image of masks of that shape, with a last axis of channels."""
    with_channels = image[..., np.newaxis] if image.shape == shape else image
    fits = with_channels.shape[:-1] == shape and 1 <= with_channels.shape[-1] <= _MOST_CHANNELS
    if not fits or not image.size or image.dtype.kind not in "buif" or not np.isfinite(image).all():
        raise BadInput(
            f"image has shape {image.shape} and dtype {image.dtype}; expected finite real numbers "
            f"in the shape of the masks, {shape}, with or without 1 to {_MOST_CHANNELS} channels "
            "last. Move them with np.moveaxis(image, 0, -1), fill gaps with np.nan_to_num(image)."
        )
    return with_channels


def _checked_labels(name: str, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The label image; a foreground map is one object."""
    if labels.shape != shape:
        raise BadInput(
            f"{name} has shape {labels.shape}; expected {shape}, that of the image. Give the masks "
            "of this very image, neither cropped nor resized."
        )
    return label_image(name, labels.astype(np.uint8) if labels.dtype.kind == "b" else labels)


def _read(source: Source | None) -> Any:
    """The array, or none if there is none."""
    found = source() if callable(source) else source
    return None if found is None else np.asarray(found)
