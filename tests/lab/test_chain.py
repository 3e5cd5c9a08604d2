"""What a run writes into its ledger before, beside and after its steps."""

from types import SimpleNamespace

import numpy as np
import pytest

from cellrepro.compare.ledger_diff import compare_ledgers
from cellrepro.images.folder import LabelledImage
from cellrepro.lab.chain import flattened, write_beginning, write_prepared, write_segmented
from cellrepro.store.digests import tensor_digest, tensors_digest, value_digest
from cellrepro.store.ledger import BEFORE, STAGES, Ledger
from cellrepro.store.manifest import MaskRecord


def square(name, *, masks=True):
    labels = np.zeros((8, 8), np.int32)
    labels[2:5, 2:5] = 1
    return LabelledImage(name, labels.astype(np.uint8), labels if masks else None, name, None)


def beginning(made_up, *, files=None, images=None, surroundings=None, **changes):
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    train, test = images or ((square("a"),), (square("b", masks=False),))
    folder = SimpleNamespace(files=files or {"a.tif": "1" * 64}, train=train, test=test)
    ledger = Ledger()
    write_beginning(
        ledger,
        spec=made_up.spec(**changes),
        surroundings=surroundings or {"versions": {"torch": "2.15"}, "threads": 2, "host": {}},
        folder=folder,
        network=network,
    )
    return ledger.entries, network


def test_the_beginning_of_a_run(made_up):
    found, network = beginning(made_up)
    assert {(entry.step, entry.epoch) for entry in found} == {(BEFORE, -1)}
    stages = list(dict.fromkeys(entry.stage for entry in found))
    assert stages == ["environment", "spec", "data", "weights-init", "rng"]
    assert stages == [stage for stage in STAGES if stage in stages]

    def of(stage):
        return {entry.name: entry for entry in found if entry.stage == stage}

    assert {name: entry.plain for name, entry in of("environment").items()} == {
        "versions.torch": "2.15",
        "threads": 2,
    }
    assert of("spec")["seed"].plain == made_up.spec().seed
    assert of("spec")["seed"].digest == value_digest(made_up.spec().seed)
    assert of("spec").keys() == made_up.spec().model_dump(mode="json").keys()
    image = square("a")
    assert {name: entry.digest for name, entry in of("data").items()} == {
        "file a.tif": "1" * 64,
        "a decoded": tensor_digest(image.image),
        "a masks": tensor_digest(image.masks),
        "b decoded": tensor_digest(image.image),
    }
    weights = network.state_dict()
    assert {name: entry.digest for name, entry in of("weights-init").items()} == {
        "0": tensors_digest({n: t for n, t in weights.items() if n.startswith("0.")}),
        "1": tensors_digest({n: t for n, t in weights.items() if n.startswith("1.")}),
    }
    assert list(of("rng"))[:3] == [
        *("python at the start", "numpy at the start", "torch at the start")
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"seed": 7}, [("spec", "seed")]),
        ({"files": {"a.tif": "2" * 64}}, [("data", "file a.tif")]),
        ({"images": ((square("a"),), (square("b"),))}, [("data", "b masks")]),
        (
            {"surroundings": {"versions": {"torch": "2.6"}, "threads": 2, "host": {}}},
            [("environment", "versions.torch")],
        ),
    ],
    ids=["nothing", "seed", "a file", "masks", "a version"],
)
def test_one_thing_changed_at_the_beginning_is_the_only_difference(made_up, changes, expected):
    a, _ = beginning(made_up)
    b, _ = beginning(made_up, **changes)
    found = compare_ledgers(a, b)
    assert [(difference.stage, difference.name) for difference in found.differences] == expected


def test_images_as_they_are_augmented():
    pixels, flows = np.ones((3, 4, 4), np.float32), np.zeros((4, 4, 4), np.float32)
    ledger = Ledger()
    loop = SimpleNamespace(prepared={"a normalised": pixels, "a flows": flows})
    write_prepared(ledger, loop)
    assert [(entry.stage, entry.name, entry.digest) for entry in ledger.entries] == [
        ("data", "a normalised", tensor_digest(pixels)),
        ("data", "a flows", tensor_digest(flows)),
    ]


def test_flows_and_masks():
    """Outlines stand before labels: the same objects under other numbers differ in one only."""
    record = MaskRecord(
        file="masks/a.tif", digest="1" * 64, canonical_digest="2" * 64, n_objects=3, seconds=0.1
    )
    flows = {"cell probability": np.ones((2, 2), np.float32)}
    ledger, renumbered = Ledger(), Ledger()
    write_segmented(ledger, "a", flows, record)
    write_segmented(renumbered, "a", flows, record.model_copy(update={"digest": "3" * 64}))
    assert [(entry.stage, entry.name, entry.value) for entry in ledger.entries] == [
        ("flows", "a cell probability", None),
        ("masks", "a outlines", 3),
        ("masks", "a labels", 3),
    ]
    (difference,) = compare_ledgers(ledger.entries, renumbered.entries).differences
    assert difference.name == "a labels"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, []),
        (3, [("", 3)]),
        ({"a": {"b": {"c": 1}, "d": []}}, [("a.b.c", 1), ("a.d", [])]),
        ({"a": {}, "b": None}, [("b", None)]),
    ],
    ids=["nothing", "a number", "nested", "empty inside"],
)
def test_flattened(value, expected):
    assert list(flattened(value)) == expected
