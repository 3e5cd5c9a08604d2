"""A baseline saved: the masks of a run or of files, with limits that later results are held to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.comparison.spread_axes import AXES
from cellrepro.explanation.baseline_limits import limits_line, limits_text
from cellrepro.explanation.references import masks_of, reference_kind
from cellrepro.spec import defaults
from cellrepro.store import baseline_file
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.store.whole_files import refuse_existing
from cellrepro.terminal import FileName
from samebits.errors import BadInput
from samebits.results import Result, Row, json_text
from samebits.words import amount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cellrepro.images.integer_images import Integers

# ``reproducibility_tolerance`` of model descriptions 0.5, as bioimageio.spec 0.5.14.3 takes it.
_MOST_FOR_BIOIMAGE_IO = 30_000  # pixels per million
_OF_LABELS = {"relative_tolerance": 0.0, "absolute_tolerance": 0.0}  # the same or not

BaselineRecord = dict[str, Any]
"""What a baseline records, as JSON."""


@dataclass(frozen=True, repr=False)
class SavedBaseline(Result):
    """A new baseline.

    ``saved[NAME]`` is a field of its record.
    """

    file: Path
    """Where it was written."""
    record: BaselineRecord
    """As JSON: ``from``, ``limits``, ``images``, ``reproducibility_tolerance``; of a run also its
    ``spec``, ``weights`` and ``versions``; of proposed limits ``proposed_from``."""

    def __getitem__(self, name: str) -> Any:
        return self.record[name]

    def sentence(self) -> str:
        """Say where it is, how many cells it holds, and within which limits."""
        limits = limits_text(self.record["limits"])
        return f"{self.file} holds {baseline_file.held_text(self.record)}; limits: {limits}"

    def rows(self) -> list[Row]:
        """Give each image with its cells."""
        return baseline_file.cells_by_image(self.record)

    def lines(self) -> list[str]:
        """Say what it holds, and what later masks may differ in."""
        limits = limits_line(self.record["limits"], self.record.get("proposed_from"))
        return [f"{self.file}: {baseline_file.held_text(self.record)}", f"  {limits}"]

    def as_json(self) -> str:
        """Give ``file`` and the fields of the record as JSON."""
        return json_text({"file": self.file, **self.record})


@dataclass(frozen=True)
class _Proposal:
    """Limits that every pair of stored results along an axis keeps."""

    limits: Mapping[str, float]
    proposed_from: str


def save_baseline(
    run: str,
    file: FileName,
    *,
    propose: str | None = None,
    store: FileName = defaults.STORE,
) -> SavedBaseline:
    """Write the masks of a run, a mask file or a folder to a baseline.

    Parameters
    ----------
    run : str
        ``KEY`` or ``KEY/REPEAT`` of the store, or the path of a mask file or a folder of them.
    file : str or Path
        The baseline; nothing may be there.
    propose : str, optional
        An axis of the stored spread, such as ``repeats``, ``seed`` or ``machine``: the limits are
        then what its pairs with this run differ by at most. Without it they are zero.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    SavedBaseline
        The new file and its record. Its ``str`` counts the cells and says the limits.

    Raises
    ------
    BadInput
        If the file exists, the masks hold no cell, or nothing is stored to propose limits from.

    Examples
    --------
    Save masks as the result that later ones must match

    ``cellrepro baseline save masks nuclei.baseline``
    """
    path = Path(file)
    if path.exists() and not baseline_file.is_one(path):
        raise BadInput(
            f"{path} exists and is no baseline: it stays as it is; expected first RUN (a run, a "
            "mask file or a folder of masks), then FILE, a new name for the baseline"
        )
    refuse_existing(path)
    opened_store = Store(store)
    masks: dict[str, NDArray[np.uint32]] = {}
    numbers: dict[str, list[int]] = {}
    for name, read in masks_of(run, opened_store).items():
        labels = read()
        masks[name] = canonical(labels)
        own = _own_numbers(labels, masks[name])
        is_one_for_each = len(set(own)) == len(own)  # not of planes that are numbered anew
        if is_one_for_each and own != list(range(1, len(own) + 1)):
            numbers[name] = own
    if not any(labels.any() for labels in masks.values()):
        raise BadInput(f"{run} holds no cells, so every result without any would pass; none saved")
    repeat = opened_store.find(run) if reference_kind(Path(run)) == "run" else None
    record: BaselineRecord = {"from": Path(run).name} if repeat is None else _origin(repeat)
    limits: Mapping[str, float] = {"max_ppm": 0.0}
    if propose is not None:
        if repeat is None:
            raise BadInput(f"--propose needs a run of the store and its like, not {run}")
        proposal = _propose(repeat, propose, opened_store)
        limits = proposal.limits
        record["proposed_from"] = proposal.proposed_from
    record["limits"] = limits
    record["reproducibility_tolerance"] = _tolerances(limits["max_ppm"])
    return SavedBaseline(path, baseline_file.write(path, record, masks, numbers=numbers).record)


def _own_numbers(given: Integers, renumbered: NDArray[np.uint32]) -> list[int]:
    """The numbers that the cells had, in the order of their new ones."""
    is_cell = renumbered > 0
    _, first = np.unique(renumbered[is_cell], return_index=True)
    return [int(number) for number in given[is_cell][first]]


def _origin(repeat: Repeat) -> BaselineRecord:
    """What a baseline records of the run whose masks it holds."""
    weights = repeat.manifest.weights
    return {
        "from": repeat.name,
        "spec": repeat.spec.model_dump(mode="json"),
        "weights": None if weights is None else weights.digest,
        "versions": repeat.manifest.versions,
    }


def _tolerances(max_ppm: float) -> list[dict[str, float]]:
    """The limit as a model description of bioimage.io has it; empty where it is too wide."""
    ppm = math.ceil(max_ppm)
    if ppm > _MOST_FOR_BIOIMAGE_IO:
        return []
    return [{**_OF_LABELS, "mismatched_elements_per_million": ppm}]


def _propose(repeat: Repeat, axis: str, store: Store) -> _Proposal:
    """Propose the limits that every pair of a repeat along an axis keeps."""
    if axis not in AXES:
        raise BadInput(f"--propose is {axis!r}; expected one of {', '.join(AXES)}")
    pairs = _pairs_along(axis, repeat, store)
    if not pairs:
        raise BadInput(
            f"the store {store.root} holds nothing that differs from {repeat.name} in {axis} only "
            "and found cells; run it, or leave --propose out"
        )
    images = [image for pair in pairs for image in pair.images.values()]
    limits = {
        "max_ppm": _rounded_up(max(1e6 * (image.n_differing / image.n_pixels) for image in images)),
        "max_changed": _rounded_up(max(pair.changed for pair in pairs)),
        "max_lost": max(_most_lost(pair, repeat.spec.key) for pair in pairs),
    }
    return _Proposal(limits, f"{amount(len(pairs), 'pair')} along {axis}")


def _rounded_up(limit: float) -> float:
    """The next number of two digits, so that the limit can be read and every pair keeps it."""
    if not limit:
        return limit
    place = 1 - math.floor(math.log10(limit))
    return round(math.ceil(round(limit * 10**place, 9)) / 10**place, place)


def _pairs_along(axis: str, repeat: Repeat, store: Store) -> list[Pair]:
    """Pair the run of a repeat with all that is stored of the same images."""
    runs = store.readable_runs(data_digest=repeat.spec.data_digest)
    run = next(one for one in runs if one.key == repeat.spec.key)
    pairs: dict[tuple[str, str], Pair] = {}
    for candidate in runs:
        if candidate.spec.task != run.spec.task:
            continue
        two_runs = {run.key: run, candidate.key: candidate}  # one, where both are the same
        spread = measure_spread(two_runs.values(), axes=[axis]).axis(axis)
        for pair in spread.evidence if spread else ():
            if run.key in (pair.a.spec.key, pair.b.spec.key):
                pairs[pair.a.name, pair.b.name] = pair
    return list(pairs.values())


def _most_lost(pair: Pair, key: str) -> int:
    """The most cells that this run lost in a pair, on whichever side it is."""
    n_lost = []
    if pair.a.spec.key == key:
        n_lost.append(pair.kinds["lost"])
    if pair.b.spec.key == key:
        n_lost.append(pair.kinds["gained"])
    return max(n_lost)
