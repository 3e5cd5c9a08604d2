"""Different results of a store beside each other: the explorer of a page, and its bounds.

Runs whose cells have the same outlines share one *result*, so of thousands of runs as many masks
are on the page as there are different results, up to a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from cellrepro.comparison.object_changes import MOST_TELLING_FIRST
from cellrepro.show.explorer.page_part import ExplorerPart, PackedScenes
from cellrepro.show.explorer.scenes import Scene
from cellrepro.show.explorer.view import View
from cellrepro.show.report.section_equality import Equality
from cellrepro.show.report.section_worst import weight_on_page
from cellrepro.show.report.summary import Chapter
from cellrepro.store.stored_run import Repeat
from cellrepro.words import share_text
from samebits.words import amount, joined

MOST_BYTES = 6 * 2**20
"""Of packed masks and images in one page; there they take a third more."""

_MOST_RESULTS = 12  # of one chapter: 66 pairs, each with a map of its pixels
_MOST_WORK = 1.5e8  # pixels times pairs of results, over all images: seconds
_MOST_DIGESTS = 200_000  # results times images
_HEIGHT = 560  # of the picture, CSS pixels


@dataclass(frozen=True)
class _Result:
    """The runs of a chapter whose cells have the same outlines in every image."""

    number: int
    """Among the results of all chapters."""
    chapter: Chapter
    letter: str
    repeats: Sequence[Repeat]

    def ending(self, *, with_chapter: bool) -> str:
        """What follows the name of one of its runs: chapter, letter, how many are equal."""
        n_more = len(self.repeats) - 1
        more = f", the same in {amount(n_more, 'more repeat')}" if n_more else ""
        chapter = f"{self.chapter.title}; " if with_chapter else ""
        return f" ({chapter}cells {self.letter}{more})"

    def name(self, *, with_chapter: bool) -> str:
        """The first of its runs, and its ending."""
        first = self.chapter.names.of_repeat(self.repeats[0])
        return f"{first}{self.ending(with_chapter=with_chapter)}"

    def digest(self, image: str) -> str | None:
        """A digest of its outlines in an image."""
        record = self.repeats[0].manifest.masks.get(image)
        return None if record is None else record.canonical_digest


@dataclass(frozen=True)
class PairOnImage:
    """What became of the cells of one result in another, on one image of the explorer."""

    image: str
    view: int | None
    """The image's number in the explorer; None where it has no room there."""
    a: int
    """The side of A there, and of B."""
    b: int
    kinds: Sequence[int]
    """Cells of each kind, the most telling first."""
    n_cells: tuple[int, int]
    """Of A and of B."""
    changed: float
    """Share of the cells of both without a match; 0 over nothing."""
    ppm: float
    """Differing pixels, of a million."""
    pixels: str
    """Their share, as it is read."""


@dataclass(frozen=True)
class RunPairs:
    """The explorer over different results, and which of them it holds."""

    results: dict[str, int]
    """The number of each repeat's result, by the repeat's name."""
    outlines: list[list[int | None]]
    """For each result the outlines in each image of its chapter, equal ones by equal numbers; empty
    where there are too many."""
    image_names: list[list[str]]
    """The images that belong to these numbers, by chapter."""
    chapters: list[int]
    """The chapter of each result."""
    pairs: list[PairOnImage]
    """Every two of the explorer's results on each image that was compared, both ways; the images on
    which most differs first, in the order in which the page chooses its worst image."""
    endings: list[str]
    """What the explorer says of a result after the name of one of its runs."""
    sides: dict[int, int]
    """The explorer's side of a result, by the result's number."""
    explorer: ExplorerPart | None
    note: str
    """What the explorer leaves out; empty where that is nothing."""


def run_pairs(
    chapters: Sequence[Chapter],
    equalities: Sequence[Equality],
    *,
    first: Sequence[str] = (),
    first_image: str = "",
    most_bytes: int = MOST_BYTES,
) -> RunPairs:
    """Find the different results, and pack as many of them into an explorer as there is room for.

    It opens with the runs ``first``, by name, on ``first_image``.
    """
    results = list(_results(chapters, equalities))
    numbers = {repeat.name: result.number for result in results for repeat in result.repeats}
    needed = {numbers[name] for name in first if name in numbers}
    chosen = [each for chapter in chapters for each in _chosen(chapter, results, needed)]
    sides = {result.number: side for side, result in enumerate(chosen)}
    several = len(chapters) > 1
    packed = PackedScenes([result.name(with_chapter=several) for result in chosen])
    images = _differing_images(chapters, chosen, first_image, first)
    work = 0.0
    n_packed = 0
    for chapter, image in images:
        of_image = [
            result
            for result in chosen
            if result.chapter is chapter and result.digest(image) is not None
        ]
        work += of_image[0].repeats[0].masks(image).size * len(of_image) ** 2
        if work > _MOST_WORK and n_packed:
            break
        view = _view(chapter, image, chosen)
        n_packed += packed.add(view, most_bytes=most_bytes - packed.n_bytes)
    compared = [
        *(_pair(scene, view=scene["view"]) for scene in _of_runs(packed.scenes.values())),
        *(_pair(scene, view=None) for scene in _of_runs(packed.without_picture)),
    ]
    image_names = [_image_names(chapter) for chapter in chapters]
    of_chapter = [chapters.index(result.chapter) for result in results]
    n_digests = sum(len(image_names[chapter]) for chapter in of_chapter)
    return RunPairs(
        results=numbers,
        outlines=_numbered_digests(results, of_chapter, image_names)
        if n_digests <= _MOST_DIGESTS
        else [],
        image_names=image_names,
        chapters=of_chapter,
        pairs=sorted(compared, key=lambda pair: weight_on_page(pair, *pair.n_cells), reverse=True),
        endings=[result.ending(with_chapter=several) for result in results],
        sides=sides if compared else {},
        explorer=_opened(packed, [sides.get(numbers.get(name, -1), -1) for name in first]),
        note=_left_out(len(results), len(chosen), len(images), n_packed) if images else "",
    )


def _results(chapters: Sequence[Chapter], equalities: Sequence[Equality]) -> Iterator[_Result]:
    number = 0
    for chapter, equality in zip(chapters, equalities, strict=True):
        by_letter: dict[str, list[Repeat]] = {}
        for repeat in chapter.repeats:
            by_letter.setdefault(equality.masks[repeat.name], []).append(repeat)
        for letter, repeats in by_letter.items():
            yield _Result(number, chapter, letter, repeats)
            number += 1


def _chosen(chapter: Chapter, results: Sequence[_Result], needed: set[int]) -> list[_Result]:
    """The results of a chapter that the explorer may hold, if there are two or more."""
    of_chapter = [result for result in results if result.chapter is chapter]
    if len(of_chapter) < 2:
        return []
    by_need = sorted(of_chapter, key=lambda result: result.number not in needed)
    return sorted(by_need[:_MOST_RESULTS], key=lambda result: result.number)


def _image_names(chapter: Chapter) -> list[str]:
    return list(dict.fromkeys(name for each in chapter.repeats for name in each.manifest.masks))


def _differing_images(
    chapters: Sequence[Chapter],
    chosen: Sequence[_Result],
    first_image: str,
    first: Sequence[str],
) -> list[tuple[Chapter, str]]:
    """The images on which results differ: the first one first, then those with most of them."""
    n_results: dict[tuple[int, str], int] = {}
    for number, chapter in enumerate(chapters):
        of_chapter = [result for result in chosen if result.chapter is chapter]
        for image in _image_names(chapter):
            digests = {result.digest(image) for result in of_chapter} - {None}
            if len(digests) > 1:
                n_results[number, image] = len(digests)

    def order(key: tuple[int, str]) -> tuple[bool, int]:
        number, image = key
        names = {repeat.name for repeat in chapters[number].repeats}
        return not (image == first_image and {*first} <= names), -n_results[key]

    return [(chapters[number], image) for number, image in sorted(n_results, key=order)]


def _view(chapter: Chapter, image: str, chosen: Sequence[_Result]) -> View:
    has_image = [
        result.chapter is chapter and result.digest(image) is not None for result in chosen
    ]
    first_of_each = [result.repeats[0] for result in chosen]
    truth = chapter.store.truth(chapter.images_digest, image)
    return View(
        image,
        [
            partial(repeat.masks, image) if has else None
            for repeat, has in zip(first_of_each, has_image, strict=True)
        ],
        image=partial(chapter.store.image, chapter.images_digest, image),
        truth=truth,
        digests=[
            repeat.manifest.masks[image].digest if has else None
            for repeat, has in zip(first_of_each, has_image, strict=True)
        ],
        n_repeats=[len(result.repeats) for result in chosen],
    )


def _of_runs(scenes: Iterable[Scene]) -> Iterator[Scene]:
    return (scene for scene in scenes if not scene["truth_is"])


def _pair(scene: Scene, *, view: int | None) -> PairOnImage:
    n_pixels = sum(scene["counts"].values())
    n_differing = sum(scene["counts"][name] for name in ("only_a", "only_b", "other_object"))
    return PairOnImage(
        image=scene["names"]["image"],
        view=view,
        a=scene["a"],
        b=scene["b"],
        kinds=[scene["kinds"][kind] for kind in MOST_TELLING_FIRST],
        n_cells=(scene["n_objects"]["a"], scene["n_objects"]["b"]),
        changed=scene["n_unmatched"] / max(1, sum(scene["n_objects"].values())),
        ppm=1e6 * n_differing / n_pixels,
        pixels=share_text(n_differing / n_pixels),
    )


def _numbered_digests(
    results: Sequence[_Result], of_chapter: Sequence[int], image_names: Sequence[Sequence[str]]
) -> list[list[int | None]]:
    numbers: dict[str | None, int] = {}
    return [
        [
            None if digest is None else numbers.setdefault(digest, len(numbers))
            for digest in map(result.digest, image_names[chapter])
        ]
        for result, chapter in zip(results, of_chapter, strict=True)
    ]


def _opened(packed: PackedScenes, first: Sequence[int]) -> ExplorerPart | None:
    """The explorer, at two sides of the first image if they can be shown."""
    if not packed.scenes:
        return None
    wanted = "0 " + " ".join(map(str, first))
    shown = wanted if wanted in packed.scenes else next(iter(packed.scenes))
    return packed.part(first=shown, height=_HEIGHT)


def _left_out(n_results: int, n_chosen: int, n_images: int, n_packed: int) -> str:
    parts = []
    if n_chosen < n_results:
        parts.append(f"{n_chosen} of {amount(n_results, 'different result')}")
    if n_packed < n_images:
        parts.append(f"{n_packed} of {amount(n_images, 'image')} on which they differ")
    if not parts:
        return ""
    return f"So that this page stays small, its explorer holds {joined(parts)}."
