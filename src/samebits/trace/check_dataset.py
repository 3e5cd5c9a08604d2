"""Whether a dataset gives the same items whenever they are read, and whichever worker reads."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from natsort import natsorted
from torch.utils.data import DataLoader, Dataset, IterableDataset

from samebits.data_order import loader_arguments
from samebits.errors import BadInput, whole
from samebits.generator_digests import generator_digests
from samebits.generator_states import generators_kept
from samebits.results import Result
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest
from samebits.trace.step_state import flat
from samebits.words import amount, joined, some

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class DatasetCheck(Result):
    """The answer about a dataset that was read again, by different numbers of workers."""

    n: int
    """Items read."""
    n_items: int
    findings: tuple[str, ...]
    """Each with its remedy."""
    batch: pd.DataFrame
    """A row for each part of the first items: shape, dtype, mean, digest."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def sentence(self) -> str:
        """Say what was found, over how much."""
        found = amount(len(self.findings), "finding")
        over = f"{self.n} of {amount(self.n_items, 'item')}, each read twice and by 0, 1, 2 workers"
        return "\n- ".join([f"{found} over {over}", *self.findings])


class IndexedItems(Protocol):
    """What PyTorch calls a map-style dataset."""

    def __len__(self) -> int:
        """How many items there are."""

    def __getitem__(self, index: int, /) -> object:
        """Get one item."""


def check_dataset(
    dataset: IndexedItems | DataLoader[Any], *, n: int = 16, batch_size: int = 4
) -> DatasetCheck:
    """Read the first ``n`` items again and by different numbers of workers: what makes them differ?

    The global generators are as before afterwards; what the dataset keeps itself, such as a
    counter, goes on as with any reading.

    Parameters
    ----------
    dataset : Dataset or DataLoader
        Has a length and gives by index tensors, arrays, numbers, text, or dicts, lists and tuples
        of them. Of a DataLoader its dataset is read, and its ``worker_init_fn`` is tried.
    n : int
        How many items are read; all of them where there are fewer.
    batch_size : int
        How many of them the result's ``batch`` shows.

    Returns
    -------
    DatasetCheck
        Whether the items repeat, and what makes them differ where they do not.

    Raises
    ------
    BadInput
        If ``dataset`` is none or gives something else; and if a DataLoader's workers cannot have
        it: on macOS and Windows they start anew and import what a dataset is made of, so that its
        class has to stand in a file, and not in a cell of a notebook.
    """
    worker_init_fn = getattr(dataset, "worker_init_fn", None)
    items: Any = dataset.dataset if isinstance(dataset, DataLoader) else dataset
    by_index = isinstance(items, Sized) and hasattr(items, "__getitem__")
    if not by_index or isinstance(items, IterableDataset):
        raise BadInput(
            f"dataset is {type(items).__name__}; expected one with a length and items by index "
            "(an IterableDataset cannot be read twice)"
        )
    n_items = whole("the length of dataset", len(items), 1)
    n = min(whole("n", n, 1), n_items)
    batch_size = whole("batch_size", batch_size, 1)
    lists = dict(_lists_of_files(items, set()))
    names = next((files for files in lists.values() if len(files) == n_items), range(n_items))
    with generators_kept():
        findings = (
            *_changes(_Readings(items, n)),
            *_of_worker_init(worker_init_fn),
            *_unsorted(lists),
        )
        return DatasetCheck(n, n_items, findings, _shown(items, names[: min(n, batch_size)]))


def through_loader(items: Any, n_workers: int, **options: Any) -> list[Any]:
    """Every item as a DataLoader gives it, one by one."""
    with warnings.catch_warnings():
        # Python 3.12 warns of every fork of a process with threads, PyTorch of few processors.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        return list(DataLoader(items, None, num_workers=n_workers, **options))


@dataclass(frozen=True)
class _Reading:
    """One item, read once."""

    digest: str = ""
    states: tuple[tuple[str, str], ...] = ()
    """The global generators that the item moved, by name, and the digest of each afterwards."""
    refused: str | None = None
    """Why there is no digest."""

    @property
    def drew(self) -> tuple[str, ...]:
        """The global generators that the item moved, by name."""
        return tuple(name for name, _ in self.states)


class _Readings:
    """A dataset whose items are what reading those of another one gives.

    A worker that is no copy of this process gets it pickled. The other dataset is pickled by itself
    in it, and made only when the first item is asked for, so that what is wrong can be said.
    """

    def __init__(self, dataset: Any, n: int) -> None:
        self._dataset = dataset
        self._pickled = b""  # in a worker, until the first item is asked for
        self._kind = type(dataset).__name__
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> _Reading:
        if self._pickled:
            try:
                self._dataset = ForkingPickler.loads(self._pickled)
            except Exception as error:
                return _Reading(refused=_not_for_workers(self._kind, error))
            self._pickled = b""
        before = generator_digests()
        item = self._dataset[index]
        after = generator_digests()
        try:
            digest = tensor_digest(item)
        except BadInput as error:
            return _Reading(refused=str(error))
        return _Reading(digest, _moved(before, after))

    def seeded(self, index: int, seed: int = 0) -> _Reading:
        """The same from one state of the global generators."""
        seed_everything(seed, quiet=True)
        return self[index]

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickled = bytes(ForkingPickler.dumps(self._dataset))
        except Exception as error:
            raise BadInput(_not_for_workers(self._kind, error)) from error
        return {**vars(self), "_dataset": None, "_pickled": pickled}


def _moved(before: dict[str, str], after: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The generators whose digest changed, each with the digest afterwards."""
    return tuple((name, digest) for name, digest in after.items() if digest != before.get(name))


def _not_for_workers(kind: str, error: Exception) -> str:
    return (
        f"{kind} cannot be given to a DataLoader's workers, which do not begin as a copy of this "
        f"process here ({type(error).__name__}: {error}): put its class, and every function that "
        "it holds, into a file MODULE.py, without lambdas, and import it from there: a worker does "
        "not know what is defined in a notebook's cell"
    )


def _through_workers(items: _Readings, n_workers: int) -> list[_Reading]:
    """Every item as a DataLoader with so many workers reads it."""
    try:
        return through_loader(items, n_workers, **loader_arguments(0))
    except RuntimeError as error:
        copies = torch.multiprocessing.get_start_method() == "fork"
        if copies or not str(error).startswith("DataLoader worker (pid"):
            raise
        raise BadInput(
            f"a worker ended before it had read anything ({error}); its reason stands above, if it "
            "gave one. In a script, put what is to be carried out once under "
            '`if __name__ == "__main__":`, for workers import the script'
        ) from error


def _changes(items: _Readings) -> Iterator[str]:
    """Findings about items that differ, and about generators that they move or seed."""
    seed_everything(0, quiet=True)
    # The workers first: a file that the dataset opens here would be open in them.
    loaded = [_through_workers(items, n_workers) for n_workers in (2, 1, 0)]
    for reading in itertools.chain(*loaded):
        if reading.refused is not None:
            raise BadInput(reading.refused)
    seeded = [items.seeded(index) for index in range(len(items))]
    again = [items.seeded(index) for index in reversed(range(len(items)))]
    otherwise = [items.seeded(index, seed=1) for index in range(len(items))]
    # What ends in one state whatever the state before was seeded by the item itself.
    seeds = {
        name
        for one, other in zip(seeded, otherwise, strict=True)
        for name, _ in set(one.states) & set(other.states)
    }
    changed = _differing(seeded, again[::-1])
    moved = len(_differing(*loaded) - changed)
    if changed:
        yield (
            f"{amount(len(changed), 'item')} differed when read again from one state of the global "
            "generators (time, a counter, a generator of the dataset's own or without a seed): "
            "let an item follow from its index, as with samebits.item_generator"
        )
    if seeds:
        yield (
            f"items seed the global generator of {joined(sorted(seeds))} themselves: what an item "
            "draws is the same in every epoch, and the training's own generator is set back at "
            "each item; take the seed out, and draw from samebits.item_generator"
        )
    # A worker seeds NumPy's new generators that get no seed, and draws that from the global one.
    readings = (*seeded, *loaded[0]) if moved else seeded
    drawn = sorted({name for reading in readings for name in reading.drew} - seeds)
    if drawn:
        differed = " with a different number of workers (0, 1, 2)"
        yield (
            f"items draw from the global generator of {joined(drawn)}, "
            f"{f'and {moved} differed' if moved else 'which differ'}{differed}: draw from "
            "samebits.item_generator, or keep that number and use samebits.loader_arguments"
        )
    elif moved and not seeds:
        yield (
            f"{amount(moved, 'item')} differed with the number of workers (by a worker's number, "
            "its process or its one thread): take out what an item learns of who reads it"
        )


def _of_worker_init(worker_init_fn: Callable[[int], None] | None) -> Iterator[str]:
    """Whether the workers of a loader are seeded with the same number in every epoch."""
    if worker_init_fn is None:
        return
    states = []
    for seed in (0, 1):
        seed_everything(seed, quiet=True)
        before = generator_digests()
        try:
            worker_init_fn(0)
        except Exception:  # of one that asks which worker it is in, as `seed_worker` does
            return
        states.append(set(_moved(before, generator_digests())))
    if fixed := sorted({name for name, _ in states[0] & states[1]}):
        yield (
            f"worker_init_fn seeds {joined(fixed)} with the same number in every epoch, so that "
            "each epoch is augmented as the first: seed from torch.initial_seed(), which is "
            "another in every epoch, as samebits.loader_arguments does"
        )


def _differing(*readings: list[_Reading]) -> set[int]:
    """The items that were not the same in every reading."""
    digests = [[reading.digest for reading in one] for one in readings]
    return {index for index, each in enumerate(zip(*digests, strict=True)) if len(set(each)) > 1}


def _lists_of_files(dataset: Any, seen: set[int]) -> Iterator[tuple[str, list[Path]]]:
    """The lists of paths among the attributes of a dataset and of those inside it, by name.

    Each dataset is looked at once, though two may hold each other.
    """
    if id(dataset) in seen:
        return
    seen.add(id(dataset))
    for name, value in getattr(dataset, "__dict__", {}).items():
        entries = value if isinstance(value, list | tuple) else [value]
        for inner in entries:
            if isinstance(inner, Dataset):
                yield from _lists_of_files(inner, seen)
        # torchvision's lists hold file and class.
        firsts = [entry[0] if isinstance(entry, tuple) and entry else entry for entry in entries]
        if len(firsts) > 1 and all(isinstance(f, str | Path) and Path(f).suffix for f in firsts):
            yield name, list(map(Path, firsts))


def _unsorted(lists: dict[str, list[Path]]) -> Iterator[str]:
    for name, files in lists.items():
        texts = list(map(str, files))
        if files != sorted(files) and texts not in (sorted(texts), natsorted(texts)):
            yield (
                f"the files in `{name}` are not sorted ({some([path.name for path in files], 3)}), "
                "and a directory, like a set, gives them in an order of its own, which can change "
                "from machine to machine and from run to run: sort them, also before a shuffle"
            )


def _shown(dataset: Any, names: Any) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for index, name in enumerate(names):
        seed_everything(0, quiet=True)
        for part, value in flat(dataset[index], "item"):
            x = torch.as_tensor(value)
            shape = () if x.is_nested else tuple(x.shape)
            digest = tensor_digest(x)[:12]
            rows.append((Path(str(name)).name, part, shape, str(x.dtype), _mean(x), digest))
    return pd.DataFrame(rows, columns=["item", "part", "shape", "dtype", "mean", "digest"])


def _mean(values: torch.Tensor) -> float:
    """Average values; complex numbers by magnitude, NaN for what is in parts or in a code."""
    try:
        dense = values.to_dense()
        return float((dense.abs() if dense.is_complex() else dense).double().mean())
    except RuntimeError:  # which NotImplementedError is, too
        return math.nan
