"""The explorer: two runs on one image, compared pixel by pixel and cell by cell in the notebook.

Each array travels to the browser once, deflated, when it is first looked at; everything that moves
afterwards (curtain, opacity, zoom, read-out, sorting) is done there and never waits for the kernel.
`Explorer.to_png` draws the same with matplotlib, for places without a kernel.
"""

from __future__ import annotations

import base64
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import folder_digest
from cellrepro.same.names import Names, place_of
from cellrepro.show.explorer.planes import View, Views
from cellrepro.show.figures import masks, pixels
from cellrepro.show.figures.style import heading
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.store import Repeat, Store
from cellrepro.words import grouped, some

MOST_RUNS = 200
"""How many stored repeats one can choose from, where none is named."""
_PANEL = 560  # longer side of a panel of the still picture, pixels
_STATIC = Path(__file__).with_name("static")
# One module for the browser, which can only be given one; written as three to be read.
_MODULES = ("explorer_pixels.js", "explorer_parts.js", "explorer.js")

_SharedImage = tuple[View, list[MaskRecord | None]]  # what manifests say of each repeat's masks


class Explorer(anywidget.AnyWidget):
    """A canvas on which the masks of two runs are compared live."""

    _esm = "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in _MODULES)
    _css = (_STATIC / "explorer.css").read_text(encoding="utf-8")

    runs: Any = traitlets.List().tag(sync=True)
    images: Any = traitlets.List().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)  # what the browser asks for: view, a, b, z
    scene = traitlets.Dict().tag(sync=True)  # what is shown now, in plain values
    planes = traitlets.Dict().tag(sync=True)  # the deflated arrays that are sent at once, by name
    answered = traitlets.Int().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Dict().tag(sync=True)  # the change of the cell that was clicked last
    title = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)  # what is not shown, and how it can be
    # Of what was looked at and can be sent again, how much the page keeps, deflated.
    held_bytes = traitlets.Int(64 * 2**20).tag(sync=True)
    height = traitlets.Int(512).tag(sync=True)
    drawing = traitlets.Dict(
        {
            "colours": pixels.COLOURS,
            "dashes": pixels.DASHES,
            "agree_share": pixels.AGREE_SHARE,
            "dimmed": pixels.DIMMED,
            "darker": pixels.DARKER,
            "agreement": pixels.AGREEMENT,
            "agreed": pixels.AGREED,
        }
    ).tag(sync=True)

    def __init__(
        self,
        views: Sequence[View],
        runs: Sequence[str],
        *,
        image: str = "",
        a: int = 0,
        b: int = 1,
        title: str = "",
        note: str = "",
        height: int = 512,
    ):
        self._views = Views(views, runs)
        images = [view.name for view in views]
        if image and image not in images:
            raise BadInput(f"there is no image {image!r}; expected one of {some(images, 8)}")
        first = images.index(image or images[0])
        scene = self._views.scene(first, *self._views.pair(first, a, b))
        # What only some will look at is sent when they do.
        at_once = ("image", "a", "b", "categories", "story", "truth")
        names = [scene["planes"][key] for key in at_once if key in scene["planes"]]
        super().__init__(
            runs=list(self._views.names),
            images=images,
            choice={key: scene[key] for key in ("view", "a", "b", "z")},
            scene=scene,
            planes={name: self._views.plane(name) for name in names},
            title=title,
            note=note,
            height=height,
        )
        self.observe(lambda change: self._follow(change.new), "choice")
        self.on_msg(self._answer)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget, and the same as a still picture for pages without a kernel."""
        live = super()._repr_mimebundle_(**kwargs)
        data, metadata = live if isinstance(live, tuple) else (live or {}, {})
        png = base64.b64encode(self.to_png()).decode()
        return {**data, "image/png": png, "text/plain": self.scene["line"]}, metadata

    def to_png(self) -> bytes:
        """What is shown now as a still picture, a PNG file: outlines of A, of B, where they differ;
        of more than two runs, also how many call a pixel cell."""
        scene, opened = self.scene, self._views.open(self.scene["view"])
        flat, n_runs = partial(opened.flat, z=scene["z"]), len(opened.view.having)
        short, full = scene["short"], scene["names"]
        names = [full[k] if full[k] == short[k] else f"{short[k]}: {full[k]}" for k in "ab"]
        picture = masks.difference(
            flat(opened.image),
            flat(opened.labels(scene["a"])),
            flat(opened.labels(scene["b"])),
            name_a=names[0],
            name_b=names[1],
            truth=None if opened.truth is None or scene["truth_is"] else flat(opened.truth),
            votes=(flat(opened.votes("cells")), n_runs) if n_runs > 2 else None,
            side=_PANEL,
        )
        if self.title:
            heading(picture, self.title)
        kinds = ", ".join(f"{n} {kind}" for kind, n in scene["kinds"].items() if n)
        told = [f"cells: {kinds or 'none'}. {scene['line']}", self.note]
        picture.caption = ". ".join(filter(None, told))
        return picture.png(dpi=100, caption=True)

    def _follow(self, choice: dict[str, int]) -> None:
        """Do what the browser chose, or say why that cannot be."""
        # Not what is written there below.
        if any(choice[key] != self.scene[key] for key in ("view", "a", "b", "z")):
            self.problem = ""  # so that the same refusal is told again
            try:
                a, b = self._views.pair(choice["view"], choice["a"], choice["b"])
                scene = self._views.scene(choice["view"], a, b, choice.get("z", 0))
            except CellreproError as error:
                self.problem = str(error)
            else:
                with self.hold_sync():
                    self.scene = scene
                    self.choice = {key: scene[key] for key in ("view", "a", "b", "z")}
        self.answered = choice.get("asked", self.answered)

    def _answer(self, _: Any, content: Any, buffers: Any) -> None:
        """Send the planes that the browser asks for."""
        for name in content.get("want", ()):
            try:
                plane = dict(self._views.plane(name))
            except CellreproError as error:
                self.send({"plane": name, "error": str(error)})
                continue
            data = plane.pop("data")
            self.send({"plane": name, **plane}, [data])


def explore(
    image: np.ndarray,
    masks_a: np.ndarray,
    masks_b: np.ndarray,
    *,
    truth: np.ndarray | None = None,
    name_a: str = "A",
    name_b: str = "B",
    title: str = "",
    height: int = 512,
) -> Explorer:
    """A live comparison of the masks that two runs made on one image.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Z, Y, X), with or without channels last
        Any real dtype, all finite; the read-out gives the values as they are.
    masks_a, masks_b : ndarray of int, shape (Y, X) or (Z, Y, X)
        Label images, 0 is background; neither side is the truth. Stacks are shown plane by plane
        and compared whole.
    truth : ndarray of int, same shape, optional
        Annotated label image, 0 is background; drawn on request, and can be chosen as A or B.
    name_a, name_b : str
        What the two runs are called on screen.
    title : str
        Shown above the picture.
    height : int
        Of the picture on screen, in CSS pixels; narrow pages show it smaller.

    Returns
    -------
    Explorer
        Shows itself as the last line of a notebook cell. Saved with its notebook, it carries all
        its arrays.
    """
    view = View(title or "image", [np.asarray(masks_a), np.asarray(masks_b)], image, truth)
    return Explorer([view], [name_a, name_b], title=title, height=height)


# -- stored runs --------------------------------------------------------------------------


def explore_runs(
    store: Store | str | Path,
    runs: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    image: str = "",
    title: str = "",
    height: int = 512,
) -> Explorer:
    """Show stored runs in the explorer; masks are read when they are looked at.

    Parameters
    ----------
    store, runs, data
        As for `stored_repeats`; the first two that are named are shown first, else two whose masks
        differ. Of more than `MOST_RUNS` repeats that nobody named as many can be chosen, and a
        note says so.
    image : str
        Which image is shown first; by default one on which the first two runs differ.
    title, height
        As for `explore`.
    """
    store = store if isinstance(store, Store) else Store(store)
    shown = stored_repeats(store, runs, data=data)
    if len(shown) < 2:
        raise BadInput(
            f"{store.root} has {len(shown)} repeats of {', '.join(runs) or data or 'any images'}; "
            "the explorer compares two or more: name another one, or train again with "
            "`cellrepro train`"
        )
    found = shown
    images = _shared_images(store, found)
    first = _first_shown(found, images, chosen=bool(runs))
    note = ""
    if len(found) > MOST_RUNS and not runs:
        shown = _listed(found, first)
        images = _shared_images(store, shown)
        note = (
            f"{len(shown)} of the {grouped(len(found))} repeats can be chosen here, different "
            "masks before equal ones; name runs to look at others"
        )
    names = Names(shown)
    return Explorer(
        [view for view, _ in images],
        [names.of_repeat(repeat) for repeat in shown],
        image=image or first.image,
        a=shown.index(found[first.a]),
        b=shown.index(found[first.b]),
        title=title,
        note=note,
        height=height,
    )


def stored_repeats(
    store: Store, runs: Sequence[str] = (), *, data: str | Path | None = None
) -> list[Repeat]:
    """The repeats that were named, or all that found objects in one set of images.

    Parameters
    ----------
    store : Store or path
    runs : sequence of str
        ``KEY/MACHINE/REPEAT``, or ``KEY`` for all its repeats.
    data : str or Path, optional
        A folder of images; by default the images that most repeats are over. A network that
        others of them were trained from is left out.
    """
    if runs:
        named: dict[str, Repeat] = {}
        for reference in runs:
            run = () if "/" in reference else store.find_run(reference).repeats
            named |= {repeat.name: repeat for repeat in run or [store.find(reference)]}
        return list(named.values())
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in (repeat for run in store.runs() for repeat in run.repeats):
        if repeat.manifest.n_objects:
            groups[repeat.spec.data_digest].append(repeat)
    found = max(groups.values(), key=len, default=[])
    if data is not None:
        found = groups[folder_digest(data, to_train=False)]
    names = Names(found)
    results = [repeat for repeat in found if not names.is_start(place_of(repeat))]
    return sorted(results, key=lambda repeat: (names.order(place_of(repeat)), repeat.index))


def _shared_images(store: Store, shown: Sequence[Repeat]) -> list[_SharedImage]:
    """Every image that two or more of the repeats segmented."""
    # One name can mean another image in another data set.
    keys = {(one.spec.images_digest, name): None for one in shown for name in one.manifest.masks}
    several = len({digest for digest, _ in keys}) > 1
    images = []
    for digest, name in keys:
        records = [
            one.manifest.masks.get(name) if one.spec.images_digest == digest else None
            for one in shown
        ]
        both, truth = zip(shown, records, strict=True), store.kept(digest, f"{name}_masks.tif")
        view = View(
            f"{name} ({digest[:6]})" if several else name,
            [partial(one.masks, name) if record else None for one, record in both],
            image=partial(store.image, digest, name),
            truth=partial(store.truth, digest, name) if truth.exists() else None,
            digests=[record.digest if record else None for record in records],
        )
        if len(view.having) > 1:
            images.append((view, records))
    if not images:
        raise BadInput(
            f"no two of the {len(shown)} repeats segmented the same image; name runs over the "
            "same folder of images"
        )
    return images


@dataclass(frozen=True)
class _Result:
    """What one of the repeats made of an image."""

    run: int  # its number among the repeats that are shown
    place: str  # its spec and machine
    n_objects: int
    digest: str  # of the masks, whatever the numbers of their objects


@dataclass(frozen=True)
class _FirstShown:
    """The image and the two runs with which the explorer opens."""

    image: str
    a: int
    b: int


def _first_shown(
    shown: Sequence[Repeat], images: Sequence[_SharedImage], *, chosen: bool
) -> _FirstShown:
    """The image and the two repeats that are shown first, by the manifests: repeats of one spec on
    one machine that differ, as they should not; else what differs by most objects. Of ``chosen``
    repeats the first two."""
    places = [place_of(repeat) for repeat in shown]
    best = None
    first = _FirstShown(images[0][0].name, 0, 1)
    for number, (view, records) in enumerate(images):
        results = [
            _Result(run, places[run], record.n_objects, record.canonical_digest)
            for run, record in enumerate(records)
            if record is not None and (run < 2 or not chosen)
        ]
        for a, b in _pairs_farthest_apart(results):
            differs = a.digest != b.digest
            n_more = abs(a.n_objects - b.n_objects)
            rank = (differs and a.place == b.place, differs, n_more)
            earliest = (-a.run, -b.run, -number)
            if best is None or (rank, earliest) > best:
                best = (rank, earliest)
                first = _FirstShown(view.name, a.run, b.run)
    return first


def _pairs_farthest_apart(results: Sequence[_Result]) -> Iterator[tuple[_Result, _Result]]:
    """Of all results of an image, and of those of each spec on one machine, the two that differ
    most: a handful of pairs, where pairing everything with everything grows with the square."""
    by_place: dict[str, list[_Result]] = defaultdict(list)
    for result in results:
        by_place[result.place].append(result)
    for group in (results, *by_place.values()):
        if len(group) > 1:
            yield _farthest_apart(group)


def _farthest_apart(results: Sequence[_Result]) -> tuple[_Result, _Result]:
    """The one with the fewest and the one with the most objects; of equally many, two whose masks
    differ; else the first two."""
    fewest = min(results, key=lambda result: result.n_objects)
    most = max(results, key=lambda result: result.n_objects)
    if fewest.n_objects < most.n_objects:
        return (fewest, most) if fewest.run < most.run else (most, fewest)
    first = results[0]
    others = (result for result in results if result.digest != first.digest)
    return first, next(others, results[1])


def _listed(repeats: Sequence[Repeat], first: _FirstShown) -> list[Repeat]:
    """As many repeats as one can choose from, in their order: those shown first, then one of each
    result, then others."""
    results: dict[tuple, int] = {}
    for run, repeat in enumerate(repeats):
        masks = [record.canonical_digest for record in repeat.manifest.masks.values()]
        results.setdefault((repeat.spec.images_digest, *masks), run)
    wanted = dict.fromkeys((first.a, first.b, *results.values(), *range(len(repeats))))
    return [repeats[run] for run in sorted(itertools.islice(wanted, MOST_RUNS))]
