"""The section on where all runs agree: the share of stable cells, and those that are least so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cellrepro.comparison.consensus import Agreement, Stability, agree
from cellrepro.show.figures.agreement import agreement_map, least_stable
from cellrepro.show.pages.parts import Figure, figure, table_file, which
from cellrepro.show.report.summary import Chapter
from cellrepro.store.stored_run import Repeat
from samebits.digests import value_digest

_MOST_PIXELS = 3e7  # of all different results together, so that the page takes seconds
_MOST_OF_IMAGE = 5e7  # pixels of the different results of one image; beyond it runs are sampled
_MOST_CELLS = 8  # among the least stable
_MOST_NAMES = 20  # of runs that lack a cell


@dataclass(frozen=True)
class AgreementSection:
    """Where all runs agree; map and cells are those of the image with most unstable cells."""

    agreements: Sequence[Agreement]
    n_left_out: int
    """How many further images differ, for which there was no time."""
    drawn: Sequence[tuple[str, Agreement]]
    """The images of which only a sample of the runs was compared."""
    n_having: Mapping[str, int]
    """How many runs have masks, by image."""
    image: str
    worst: Agreement
    map: Figure
    unstable: Figure | None
    """None where no cell is unstable."""

    @property
    def n_stable(self) -> int:
        """Cells that are in all runs that were looked at, over all images."""
        return sum(agreement.n_stable for agreement in self.agreements)

    @property
    def n_cells(self) -> int:
        """Cells over all images."""
        return sum(len(agreement.objects) for agreement in self.agreements)

    @property
    def stable_share(self) -> float:
        """The share of these cells that are in all runs."""
        return self.n_stable / max(1, self.n_cells)


@dataclass(frozen=True)
class _ImageAgreement:
    """The agreement on one image, and the repeats it was computed from."""

    repeats: list[Repeat]
    agreement: Agreement

    @property
    def stable_share(self) -> float:
        """The share of cells that all runs have."""
        return self.agreement.n_stable / max(1, len(self.agreement.objects))


def agreement_section(chapter: Chapter) -> AgreementSection | None:
    """Make the section on agreement; None where all runs have the same masks of every image."""
    digests = _digests_by_image(chapter)
    agreements = _agreements(digests)
    if not agreements:
        return None
    n_differing = sum(_n_results(of_image) > 1 for of_image in digests.values())
    n_having = {image: len(digests[image]) for image in agreements}
    image = min(agreements, key=lambda name: agreements[name].stable_share)
    repeats = agreements[image].repeats
    worst = agreements[image].agreement
    rows = _rows(chapter, repeats, worst)
    readers: list[Callable[[], np.ndarray]] = [partial(each.masks, image) for each in repeats]
    pixels = chapter.store.image(chapter.images_digest, image)
    if worst.consensus.ndim == 3:
        plane = _most_disputed_plane(worst)
        readers = [partial(_plane, read, plane) for read in readers]
        worst = agree(readers)
        pixels = None if pixels is None else pixels[plane]
    n_unstable = sum(cell.n_runs_with < worst.n_runs for cell in worst.objects)
    n_shown = min(_MOST_CELLS, n_unstable)
    unstable = None
    if n_shown:
        data = table_file(f"least-stable-{image}", _rows(chapter, repeats, worst)[:n_shown])
        unstable = figure(least_stable(pixels, worst, readers, n=n_shown), data)
    return AgreementSection(
        agreements=[of_image.agreement for of_image in agreements.values()],
        n_left_out=n_differing - len(agreements),
        drawn=[
            (name, of_image.agreement)
            for name, of_image in agreements.items()
            if of_image.agreement.n_runs < n_having[name]
        ],
        n_having=n_having,
        image=image,
        worst=worst,
        map=figure(agreement_map(pixels, worst), table_file(f"stability-{image}", rows)),
        unstable=unstable,
    )


def _most_disputed_plane(agreement: Agreement) -> int:
    """Find the plane of a stack on which most pixels are disputed."""
    share = agreement.same_object_share
    is_disputed = (share > 0) & (share < 1)
    return int(is_disputed.sum(axis=(1, 2)).argmax())


def _plane(read: Callable[[], np.ndarray], plane: int) -> np.ndarray:
    return read()[plane]


def _rows(
    chapter: Chapter, repeats: Sequence[Repeat], agreement: Agreement
) -> list[dict[str, object]]:
    names = [chapter.names.of_repeat(repeat) for repeat in repeats]

    def lacking(cell: Stability) -> list[str]:
        having = set(cell.runs)
        return [name for run, name in enumerate(names) if run not in having]

    return [
        {
            "cell at": "y {:.0f}, x {:.0f}".format(*cell.position[-2:]),
            "area, pixels": cell.area,
            "repeats with it": cell.n_runs_with,
            "share": cell.share,
            "mean IoU": cell.mean_iou,
            "without it": which(lacking(cell), agreement.n_runs, "repeat", most=_MOST_NAMES),
        }
        for cell in agreement.objects
    ]


def _digests_by_image(chapter: Chapter) -> dict[str, dict[Repeat, str]]:
    """Get the canonical digests of masks by image and repeat."""
    digests: dict[str, dict[Repeat, str]] = defaultdict(dict)
    for repeat in chapter.repeats:
        for image, record in repeat.manifest.masks.items():
            digests[image][repeat] = record.canonical_digest
    return digests


def _n_results(digests: Mapping[Repeat, str]) -> int:
    return len(set(digests.values()))


def _agreements(digests: Mapping[str, Mapping[Repeat, str]]) -> dict[str, _ImageAgreement]:
    """Compute agreement where runs differ, most results first, up to `_MOST_PIXELS`."""
    differing = [image for image in digests if _n_results(digests[image]) > 1]
    agreements: dict[str, _ImageAgreement] = {}
    n_pixels = 0
    for image in sorted(differing, key=lambda name: -_n_results(digests[name])):
        if n_pixels > _MOST_PIXELS:
            break
        repeats = _sample(image, digests[image])
        readers = [partial(repeat.masks, image) for repeat in repeats]
        agreement = agree(readers, digests=[digests[image][repeat] for repeat in repeats])
        agreements[image] = _ImageAgreement(repeats, agreement)
        n_pixels += agreement.n_distinct * agreement.consensus.size
    return agreements


def _sample(image: str, digests: Mapping[Repeat, str]) -> list[Repeat]:
    """Get all runs, or a sample where they have too many different results.

    The sample follows a digest of their names, which is as good as random and always the same.
    """
    size = next(iter(digests)).masks(image).size
    most_results = max(2, int(_MOST_OF_IMAGE / size))
    results: set[str] = set()
    sample: set[Repeat] = set()
    for repeat in sorted(digests, key=lambda each: value_digest(each.name)):
        results.add(digests[repeat])
        if len(results) > most_results:
            break
        sample.add(repeat)
    return [repeat for repeat in digests if repeat in sample]
