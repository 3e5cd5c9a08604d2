"""Damage of a stored file is said as damage, whoever reads it; nothing is judged by it."""

import shutil

import numpy as np
import pytest
import tifffile

from cellrepro.errors import Damaged
from cellrepro.store.store import Store
from cellrepro.store.unchanged import digest_once
from stores import add_run, three


def flip_a_bit(path):
    """Change the last byte, as a failing disk or a bad copy does."""
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def change_a_pixel(path):
    """Give one pixel to a different cell, in a file that opens as before."""
    path.chmod(0o644)
    masks = tifffile.imread(path)
    masks.flat[np.flatnonzero(masks)[0]] = 0
    tifffile.imwrite(path, masks)


FILES = {"weights.safetensors": flip_a_bit, "masks/synth_003.tif": change_a_pixel}


@pytest.fixture(params=FILES, ids=["one bit of the weights", "one pixel of the masks"])
def damaged(request, small_store, tmp_path):
    """A copy of a store of two equal repeats, of which the second was damaged; and the file."""
    root = tmp_path / "outputs"
    shutil.copytree(small_store.root, root)  # which shares no content with the first one
    path = root / "runs" / small_store.key / small_store.machine / "1" / request.param
    FILES[request.param](path)
    return root, path


def test_damage_is_no_verdict(damaged, small_store, invoke, no_child):
    """`compare`, and a command whose repeats are all stored end with 2 and the file."""
    root, path = damaged
    store = ("--store", root)
    asked = ("--epochs=4", "--images-per-epoch=16", "--learning-rate=0.01", "--repeats=2")
    commands = {
        "compare": ("compare", small_store.key, small_store.key, *store, "--json"),
        "train": ("train", small_store.data, *asked, *store, "--json"),
    }
    for name, command in commands.items():
        answer = invoke(*command)
        assert (answer.code, answer.out) == (2, ""), name
        assert f"{path} is damaged" in answer.err, name
        assert "fsck --repair" in answer.err, name  # from the repeat that is whole


def test_without_a_copy_the_store_is_copied_again(tmp_path):
    (repeat,) = add_run(Store(tmp_path), [(1.0, three())]).repeats
    flip_a_bit(repeat.folder / "weights.safetensors")
    with pytest.raises(Damaged, match="copy the store again"):
        repeat.file("weights.safetensors")


def test_damage_is_left_out_of_the_report(damaged, invoke):
    """The page is about the other repeat, and names the one that is not on it, and the file."""
    root, path = damaged
    answer = invoke("report", "--store", root, "--json")
    (run,) = answer.json["runs"]
    assert run["repeats"] == [0]
    assert f"{path} is damaged" in (root / "report" / "index.html").read_text(encoding="utf-8")


def test_damage_is_listed(damaged, invoke):
    """The list still shows every run, names the file, and calls nothing of it identical."""
    root, path = damaged
    answer = invoke("list", "--store", root, "--json")
    assert answer.code == 2
    (run,) = answer.json["runs"]
    assert run["verdict"] == "damaged"
    (message,) = run["damage"]
    assert f"{path} is damaged" in message
    assert f"{path} is damaged" in invoke("list", "--store", root).out


@pytest.mark.parametrize("most", ["MOST_BYTES", "MOST_FILES"])
def test_a_list_reads_little_and_says_what_it_left_unread(damaged, invoke, monkeypatch, most):
    """It has to come at once over terabytes, too; each content counts once."""
    root, _ = damaged
    monkeypatch.setattr(f"cellrepro.show.run_list.{most}", 0)
    monkeypatch.setattr("cellrepro.store.unchanged._known", {})
    answer = invoke("list", "--store", root, "--json")
    assert (answer.code, answer.json["unread"]) == (0, 4)
    assert "4 files of weights and masks unread" in invoke("list", "--store", root).out


def test_nothing_starts_from_damaged_weights(damaged, small_store, invoke):
    root, path = damaged
    model = f"{small_store.key}/1"
    asked = ("--model", model, "--store", root, "--repeats", 1)
    answer = invoke("segment", small_store.data, *asked)
    if path.name.startswith("weights"):
        assert answer.code == 2
        assert f"{path} is damaged" in answer.err
    else:  # its masks are no part of a start
        assert answer.code == 0


def test_a_whole_store_is_left_alone(small_store, invoke):
    answer = invoke("list", "--store", small_store.root, "--json")
    assert answer.code == 0
    assert [run["damage"] for run in answer.json["runs"]] == [[]]


def test_a_ledger_is_checked(small_store, tmp_path):
    root = tmp_path / "outputs"
    shutil.copytree(small_store.root, root)
    repeat = Store(root).find(f"{small_store.key}/0")
    flip_a_bit(repeat.folder / "ledger.parquet")
    with pytest.raises(Damaged, match=r"ledger\.parquet is damaged"):
        repeat.file("ledger.parquet")


def test_is_read_once_while_it_stays_as_it_is(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"a")
    reads = []
    monkeypatch.setattr(
        "cellrepro.store.unchanged.file_digest", lambda path: reads.append(path) or str(len(reads))
    )
    assert digest_once(path) == digest_once(path) == "1"
    path.write_bytes(b"ab")
    assert digest_once(path) == "2"
