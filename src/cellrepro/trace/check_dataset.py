"""Does a dataset give the same items whenever they are read, and whoever reads them?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from natsort import natsorted
from torch.utils.data import DataLoader, Dataset, IterableDataset

from cellrepro.determinism.seeding import generators_kept, loader_arguments, seed_everything
from cellrepro.errors import BadInput, whole
from cellrepro.store.digests import generator_digests, tensor_digest
from cellrepro.text import amount, joined, some
from cellrepro.trace.check_repeatable import flat

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class DatasetCheck:
    """What reading a dataset again, and by other numbers of workers, showed."""

    n: int  # items read
    n_items: int
    findings: tuple[str, ...]  # each with its remedy
    batch: pd.DataFrame  # a row for each part of the first items: shape, dtype, mean, digest

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def sentence(self) -> str:
        """What was found, over how much."""
        found = amount(len(self.findings), "finding")
        over = f"{self.n} of {amount(self.n_items, 'item')}, each read twice and by 0, 1, 2 workers"
        return "\n- ".join([f"{found} over {over}", *self.findings])


def check_dataset(dataset: Any, *, n: int = 16, batch_size: int = 4) -> DatasetCheck:
    """Read the first ``n`` items again and by other numbers of workers: what makes them differ?

    ``dataset`` has a length and gives by index tensors, arrays, numbers, text, or dicts, lists and
    tuples of them; `BadInput` refuses others. ``batch`` of the result shows ``batch_size`` items.
    The global generators are as before afterwards; what the dataset keeps itself, such as a
    counter, goes on as with any reading.
    """
    by_index = isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")
    if not by_index or isinstance(dataset, IterableDataset):
        raise BadInput(
            f"dataset is {type(dataset).__name__}; expected one with a length and items by index "
            "(of a DataLoader its dataset; an IterableDataset cannot be read twice)"
        )
    n_items = whole("the length of dataset", len(dataset), 1)
    n = min(whole("n", n, 1), n_items)
    lists = dict(_lists_of_files(dataset))
    names = next((files for files in lists.values() if len(files) == n_items), range(n_items))
    with generators_kept():
        findings = (*_changes(_Digests(dataset, n)), *_unsorted(lists))
        return DatasetCheck(n, n_items, findings, _shown(dataset, names[: min(n, batch_size)]))


def through_loader(items: Any, n_workers: int, **options: Any) -> list[Any]:
    """Every item as a DataLoader gives it, one by one."""
    with warnings.catch_warnings():
        # Python 3.12 warns of every fork of a process with threads, PyTorch of few processors.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        return list(DataLoader(items, None, num_workers=n_workers, **options))


class _Digests:
    """Of each item its digest and the global generators that it drew from, as one text."""

    def __init__(self, dataset: Any, n: int) -> None:
        self._dataset, self._n = dataset, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int) -> str:
        before = generator_digests()
        digest = tensor_digest(self._dataset[index])
        after = generator_digests()
        return " ".join([digest, *(name for name in after if after[name] != before.get(name))])

    def seeded(self, index: int) -> str:
        """The same from one state of the global generators."""
        seed_everything(0, quiet=True)
        return self[index]


def _changes(items: _Digests) -> Iterator[str]:
    seed_everything(0, quiet=True)
    try:  # the workers first: a file that the dataset opens here would be open in them
        loaded = [through_loader(items, k, **loader_arguments(0)) for k in (2, 1, 0)]
    except BadInput:
        items[0]  # says it without the worker's traceback
        raise
    here = [items.seeded(index) for index in range(len(items))]
    again = [items.seeded(index) for index in reversed(range(len(items)))]
    changed = _differing(here, again[::-1])
    moved = len(_differing(*loaded) - changed)
    if changed:
        yield (
            f"{amount(len(changed), 'item')} differed when read again from one state of the global "
            "generators (time, a counter, a generator of the dataset's own or without a seed): "
            "let an item follow from its index, as with cellrepro.item_generator"
        )
    if drawn := sorted({name for text in (*loaded[0], *here) for name in text.split()[1:]}):
        yield (
            f"items draw from the global generator of {joined(drawn)}, and {moved} differed with "
            "another number of workers (0, 1, 2): draw from cellrepro.item_generator, or keep that "
            "number and use cellrepro.loader_arguments"
        )
    elif moved:
        yield (
            f"{amount(moved, 'item')} differed with the number of workers (by a worker's number, "
            "its process or its one thread): take out what an item learns of who reads it"
        )


def _differing(*readings: list[str]) -> set[int]:
    """The items that were not the same in every reading."""
    digests = [[text.split()[0] for text in reading] for reading in readings]
    return {index for index, each in enumerate(zip(*digests, strict=True)) if len(set(each)) > 1}


def _lists_of_files(dataset: Any) -> Iterator[tuple[str, list[Path]]]:
    """The lists of paths among the attributes of a dataset and of those inside it, by name."""
    for name, value in getattr(dataset, "__dict__", {}).items():
        entries = value if isinstance(value, list | tuple) else [value]
        for inner in entries:
            if isinstance(inner, Dataset):
                yield from _lists_of_files(inner)
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
                "and a directory lists them as it likes: sort them, also before a shuffle"
            )


def _shown(dataset: Any, names: Any) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for index, name in enumerate(names):
        seed_everything(0, quiet=True)
        for part, value in flat(dataset[index], "item"):
            x = torch.as_tensor(value)
            mean, digest = float(x.double().mean()), tensor_digest(x)[:12]
            rows.append((Path(str(name)).name, part, tuple(x.shape), str(x.dtype), mean, digest))
    return pd.DataFrame(rows, columns=["item", "part", "shape", "dtype", "mean", "digest"])
