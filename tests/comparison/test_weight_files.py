"""Files that Cellpose's own `torch.save` writes, byte by byte, and why they differ."""

import tracemalloc

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cellrepro.comparison.saved_copies import saved_in_several_ways
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.comparison.weight_files import DifferingPart, compare_files

HELD = {f"encoder.blocks.{i}.weight": torch.arange(6.0).reshape(2, 3) + i for i in range(12)}
CHANGED = {**HELD, "encoder.blocks.3.weight": HELD["encoder.blocks.3.weight"] * 2}
TURNED = {**HELD, "encoder.blocks.3.weight": HELD["encoder.blocks.3.weight"].T.contiguous().T}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Files by name, two of one name in folders of their own; a device stands in what is saved."""

    def save(name, tensors, device=None, **options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        with monkeypatch.context() as patch:
            if device:  # as CUDA tensors are saved, which cannot be made everywhere
                patch.setattr(torch.serialization, "location_tag", lambda _: "".join([*device]))
            torch.save(tensors, folder / name, **options)
        return folder / name

    return save


def compared(a, b):
    """What is said of each part; if nothing moved, the bytes are those that are counted here."""
    same = compare_weights(a, b).equal
    found = compare_files(a, b, same_parameters=same)
    content = [np.fromfile(path, np.uint8) for path in (a, b)]
    assert found.sizes == tuple(map(len, content))
    assert bool(found.differing) == (a.read_bytes() != b.read_bytes())
    if all(part.n_a == part.n_b for part in found.differing) and len(content[0]) == len(content[1]):
        assert sum(part.n_a for part in found.differing) == np.count_nonzero(
            content[0] != content[1]
        )
    return same, {part.part: part.why for part in found.differing}


FOLLOWS = {"zip directory", "padding", ".data/serialization_id"}


@pytest.mark.parametrize(
    ("name", "tensors", "device", "same", "part", "why"),
    [
        ("monday.pth", HELD, None, True, None, ""),
        ("friday.pth", HELD, None, True, "entry names", "'monday' and 'friday'"),
        ("tuesday.pth", HELD, None, True, "entry names", "'monday' and 'tuesday'"),
        ("monday.pth", HELD, "cuda:0", True, "data.pkl", "tensors lay on cpu and on cuda:0"),
        ("monday.pth", CHANGED, None, False, "tensors", "parameters differ"),
        ("monday.pth", TURNED, None, True, "data.pkl", "different shapes, or laid out otherwise"),
        ("monday.pth", dict(reversed(HELD.items())), None, True, "data.pkl", "different order"),
    ],
    ids=["equal", "name", "longer name", "GPU", "parameter", "layout", "order"],
)
def test_archives_of_torch_save(saved, name, tensors, device, same, part, why):
    equal, found = compared(saved("monday.pth", HELD), saved(name, tensors, device))
    assert equal == same
    assert why in found.pop(part, "")
    if part is None or part == "entry names":
        assert found.keys() <= {"zip directory", "padding"}
    elif why.endswith(("order", "otherwise")):
        assert found.pop("tensors") == "parameters in a different order"
    assert found.keys() <= FOLLOWS


def test_entries_that_only_one_archive_has(saved):
    """Under one name: the reason is not the name of the file, which is equal."""
    fewer = dict([*HELD.items()][:-1])
    found = compare_files(
        saved("monday.pth", HELD), saved("monday.pth", fewer), same_parameters=False
    )
    (why,) = (part.why for part in found.differing if part.part == "entry names")
    assert "monday" not in why
    assert why.startswith("other entries, 'data/11' and ")


def test_other_formats(saved, tmp_path):
    archive = saved("a.pth", HELD)
    old, other_old = (
        saved("a.pth", tensors, _use_new_zipfile_serialization=False) for tensors in (HELD, CHANGED)
    )
    for tensors, name in ((HELD, "c"), (CHANGED, "d")):
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, tmp_path / name)
    save_file(HELD, tmp_path / "e", metadata={"made": "elsewhere"})
    assert compared(archive, old) == (True, {"all": "files of two formats"})
    assert compared(archive, tmp_path / "c") == (True, {"all": "files of two formats"})
    assert compared(old, other_old)[1].keys() == {"content"}
    assert compared(tmp_path / "c", tmp_path / "d") == (False, {"tensors": "parameters differ"})
    assert compared(tmp_path / "c", tmp_path / "e")[1].keys() == {"header"}


def test_compare_says_it(saved, invoke):
    asked = ["compare", saved("monday.pth", HELD), saved("monday.pth", HELD, "cuda:0")]
    answer = invoke(*asked, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "identical")
    files = answer.json["weights"]["files"]
    assert files["sizes"] == [path.stat().st_size for path in asked[1:]]
    assert (files["equal"], files["differing"][0]["part"]) == (False, "data.pkl")
    assert "tensors lay on cpu and on cuda:0" in invoke(*asked).out


def test_one_network_saved_in_several_ways(tmp_path):
    """On its name for torch.save, on no order for safetensors; a changed parameter is noticed."""
    save_file(HELD, tmp_path / "w")
    _, digests, same, _, files = zip(*saved_in_several_ways(tmp_path / "w"), strict=True)
    assert all(same)
    assert (digests[0] != digests[1], digests[2] == digests[3]) == (True, True)
    assert [bool(one.differing) for one in files[:4]] == [False, True, False, False]


def test_large_files_are_read_in_pieces(tmp_path):
    """One bit of 32 MiB, found without a copy of either file."""
    held = {"w": torch.zeros(2**23)}
    save_file(held, tmp_path / "a")
    held["w"][-1] = 1e-45
    save_file(held, tmp_path / "b")
    tracemalloc.start()
    found = compare_files(tmp_path / "a", tmp_path / "b", same_parameters=False)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    assert found.differing == (DifferingPart("tensors", 1, 1, "parameters differ"),)
