"""A dataset is read again and by workers: what makes its items differ is named."""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
)

from samebits.data_order import item_generator, loader_arguments
from samebits.errors import BadInput
from samebits.trace.check_dataset import check_dataset

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="elsewhere workers need what can be pickled"
    ),
]


class Images(Dataset):
    """Twelve images by name, each changed as the test says."""

    def __init__(self, change=lambda image, index: image, *, files=None):
        self.files = files or [f"img{index}.tif" for index in range(12)]  # img10 after img9
        self.classes = ["round", "flat"]  # in no order, and no files
        self.labels = [self.classes[index % 2] for index in range(12)]
        self.change = change

    def __len__(self):
        return 12

    def __getitem__(self, index):
        image = np.full((4, 5), index, np.float32)
        return {"image": self.change(image, index), "label": index % 2, "name": self.labels[index]}


class Counting:
    """Knows how often it was asked."""

    n = 0

    def __call__(self, image, index):
        self.n += 1
        return image + self.n


def by_item(image, index):
    return image + item_generator(5, epoch=0, index=index).random()


def holding_each_other():
    images = Images()
    images.part = Subset(images, range(12))
    return images


OWN = np.random.default_rng(0)
CLEAN = {
    "plain": Images(),
    "drawn by item": Images(by_item),
    "of a part": Subset(Images(), [3, 1, 2]),
    "holding each other": holding_each_other(),
    "tensors": TensorDataset(torch.rand(5, 3).bfloat16(), torch.arange(5)),
    "as a TIFF has them": [{"image": np.arange(6, dtype=">u2").reshape(2, 3)}] * 3,
    "complex and sparse": [(torch.ones(2) + 1j, torch.eye(3).to_sparse())] * 3,
    "a list": [torch.ones(2), torch.zeros(3)],
    "file and class": Images(files=[(f"{c}/{i}.png", c) for c in "ab" for i in range(6)]),
    "several": ConcatDataset([Images(), Images()]),
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_dataset_is_left_alone(name):
    found = check_dataset(CLEAN[name])
    assert found.findings == ()
    assert found.ok
    n = len(CLEAN[name])
    assert found.sentence().startswith(
        f"0 findings over {min(n, 16)} of {n} items, each read twice"
    )


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (
            Images(files=[f"img{i}.tif" for i in (3, 1, 7, 0, 2, 4, 5, 6, 8, 9, 10, 11)]),
            r"files in `files` are not sorted \(img3.tif, img1.tif, img7.tif and 9 more\)",
        ),
        (
            Subset(Images(files=list(map(Path, ["b.tif", "a.tif"]))), range(4)),
            r"files in `files` are not sorted \(b.tif, a.tif\)",
        ),
        (
            Images(lambda image, index: image + np.random.rand()),
            "the global generator of numpy, and 12 differed with a different number of workers",
        ),
        (
            Images(lambda image, index: image + torch.rand(1).item() + random.random()),
            "the global generator of python and torch, and 12 differed",
        ),
        (
            Images(lambda image, index: image + time.perf_counter_ns() % 2**24),
            "12 items differed when read again from one state of the global generators",
        ),
        (Images(Counting()), "12 items differed when read again"),
        (Images(lambda image, index: image + OWN.random()), "12 items differed when read again"),
        (
            Images(lambda image, index: image + np.random.default_rng().random()),
            "12 items differed when read again",
        ),
        (
            Images(lambda image, index: image + bool(get_worker_info())),
            "12 items differed with the number of workers",
        ),
        (
            Images(lambda image, index: image + (os.getpid() if index > 8 else 0)),
            "3 items differed with the number of workers",
        ),
    ],
    ids=[
        "listing",
        "paths",
        "numpy",
        "several",
        "time",
        "counter",
        "own",
        "unseeded",
        "worker",
        "process",
    ],
)
def test_what_is_wrong_is_named_and_nothing_else(dataset, said):
    found = check_dataset(dataset)
    assert not found.ok
    (finding,) = found.findings
    assert re.search(said, finding)
    assert found.sentence() == f"1 finding over {found.n} of {found.n_items} items, each read " + (
        f"twice and by 0, 1, 2 workers\n- {finding}"
    )


def test_the_first_batch_can_be_read():
    batch = check_dataset(Images(), batch_size=2).batch
    assert batch.drop(columns="digest").values.tolist() == [
        ["img0.tif", "item image", (4, 5), "torch.float32", 0.0],
        ["img0.tif", "item label", (), "torch.int64", 0.0],
        ["img1.tif", "item image", (4, 5), "torch.float32", 1.0],
        ["img1.tif", "item label", (), "torch.int64", 1.0],
    ]
    assert batch.digest.str.fullmatch("[0-9a-f]{12}").all()
    assert batch.digest.nunique() == 4


def seeding(image, index):
    np.random.seed(42)
    return image + np.random.rand()


def seeding_by_index(image, index):
    random.seed(index)
    return image + random.random()


def test_an_item_that_seeds_a_global_generator_is_named():
    for change, name in ((seeding, "numpy"), (seeding_by_index, "python")):
        (finding,) = check_dataset(Images(change)).findings
        assert finding.startswith(f"items seed the global generator of {name} themselves")
        assert "the training's own generator is set back" in finding


def test_a_loader_is_checked_by_its_dataset_and_by_how_it_seeds_its_workers():
    def loader(worker_init_fn=None, change=lambda image, index: image):
        return DataLoader(Images(change), num_workers=2, worker_init_fn=worker_init_fn)

    assert check_dataset(loader()).ok
    (finding,) = check_dataset(loader(change=seeding)).findings
    assert "items seed the global generator of numpy" in finding
    (finding,) = check_dataset(loader(lambda worker: np.random.seed(42 + worker))).findings
    assert finding.startswith("worker_init_fn seeds numpy with the same number in every epoch")
    of_torch = loader(lambda worker: np.random.seed(torch.initial_seed() % 2**32))
    assert check_dataset(of_torch).ok
    assert check_dataset(DataLoader(Images(), num_workers=2, **loader_arguments(0))).ok


def test_a_batch_of_no_whole_number_is_refused():
    for batch_size in (2.5, 0, -1):
        with pytest.raises(BadInput, match="batch_size must be a whole number of at least 1"):
            check_dataset(Images(), batch_size=batch_size)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "dataset is Stream; expected one with a length and items by index"),
        (DataLoader(Stream()), "dataset is Stream; expected one with a length"),
        ([object()], "^a value of type object cannot be digested; expected a tensor, an array"),
        ([], "the length of dataset must be a whole number of at least 1, got 0"),
    ],
    ids=["stream", "loader", "objects", "empty"],
)
def test_refuses_others(dataset, message):
    with pytest.raises(BadInput, match=message):
        check_dataset(dataset)


# Without a file of its own, as a notebook has none; workers start as on macOS and Windows.
WITHOUT_A_FILE = """
import torch
from samebits import BadInput, check_dataset
from torch.utils.data import Dataset, TensorDataset

class Cell(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(2) * index

clean, holds_a_lambda = TensorDataset(torch.ones(4, 2)), TensorDataset(torch.ones(4, 2))
holds_a_lambda.change = lambda image: image
torch.multiprocessing.set_start_method("spawn")
for dataset in (clean, holds_a_lambda, Cell()):
    try:
        print(check_dataset(dataset).sentence())
    except BadInput as error:
        print(error)
"""


@pytest.mark.slow
def test_workers_that_are_no_copies_of_this_process_read_too_or_it_is_said_why_not():
    command = [sys.executable, "-c", WITHOUT_A_FILE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    clean, holds_a_lambda, cell = done.stdout.splitlines()
    assert clean == "0 findings over 4 of 4 items, each read twice and by 0, 1, 2 workers"
    assert holds_a_lambda.startswith("TensorDataset cannot be given to a DataLoader's workers")
    assert "lambda" in holds_a_lambda
    assert cell.startswith("Cell cannot be given to a DataLoader's workers")
    assert "Can't get attribute 'Cell'" in cell
    assert "put its class, and every function that it holds, into a file MODULE.py" in cell
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_script_that_its_workers_would_carry_out_again_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    lines = WITHOUT_A_FILE.replace("(clean, holds_a_lambda, Cell())", "(clean,)")
    script.write_text(lines, encoding="utf-8")
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    assert "put what is to be carried out once under `if __name__" in done.stdout
