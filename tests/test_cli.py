"""The command line: answers, exit codes, and one clear message for whatever is wrong."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import tifffile
import torch

import cellrepro
from cellrepro.cli import app
from cellrepro.command_options import options_of
from cellrepro.commands import BY_WORDS
from cellrepro.images.folder import read_folder
from cellrepro.process import calling
from cellrepro.store.store import Store
from command_line import commands
from conftest import MAIN, SMALL, options
from samebits.digests import file_digest
from samebits.errors import BadInput
from stores import add_run, three


def test_train_twice_gives_the_same_bits(small_store):
    """The product's promise, through its front door; with the fields of the contract."""
    answer = small_store.answer
    document = answer.json
    assert (answer.code, document["verdict"]) == (0, "identical")
    assert document["folder"] == str(small_store.root / "runs" / document["key"])
    first, second = document["repeats"]
    assert (first["index"], second["index"]) == (0, 1)
    assert (first["weights"], first["masks"]) == (second["weights"], second["masks"])
    for repeat in (first, second):
        assert {"index", "machine", "weights", "masks", "ap50", "seconds"} <= repeat.keys()
        assert re.fullmatch(r"[0-9a-f]{64}", repeat["masks"]["synth_003"])
        assert repeat["objects"]["synth_003"] > 5
        assert 0 < repeat["ap50"] < 1
        folder = small_store.folder / str(repeat["index"])
        assert file_digest(folder / "weights.safetensors") == repeat["weights"]
    assert ": 5/5" in answer.err
    assert "{" not in answer.err


def test_finished_repeats_are_not_run_again(small_store, invoke, no_child, listing):
    before = listing(small_store.root)
    asked = ["train", small_store.data, *options(**SMALL, store=small_store.root)]
    assert invoke(*asked, "--json").json == small_store.answer.json
    lines = invoke(*asked).out.splitlines()
    assert lines[0] == f"run {small_store.key} in {small_store.root / 'runs' / small_store.key}"
    assert lines[-1].startswith("identical (weights and masks) over 2 repeats")
    alone = invoke(*asked, "--repeats", 1, "--json")
    assert (alone.code, alone.json["verdict"]) == (0, None)
    assert listing(small_store.root) == before


def test_segmenting_gives_the_masks_and_scores_that_training_found(small_store, tmp_path, invoke):
    """Of the test image and of the training image that was scored beside it."""
    for part in ("train", "test"):  # a folder without the two: all are segmented
        shutil.copytree(small_store.data / part, tmp_path / "all", dirs_exist_ok=True)
    asked = {"model": small_store.weights, "repeats": 2, "store": tmp_path / "outputs"}
    answer = invoke("segment", tmp_path / "all", *options(**asked), "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "identical")
    assert answer.json["verdicts"]["weights"] is None
    trained = small_store.answer.json["repeats"][0]
    assert trained["train_scores"] == {"synth_000": pytest.approx(trained["ap50_train"])}
    for repeat in answer.json["repeats"]:
        assert (repeat["weights"], repeat["ap50_train"]) == (None, None)
        assert trained["masks"].items() <= repeat["masks"].items()
        found = Store(tmp_path / "outputs").find(f"{answer.json['key']}/{repeat['index']}")
        scores = {name: record.ap50 for name, record in found.manifest.masks.items()}
        assert trained["train_scores"].items() <= scores.items()
        assert scores["synth_003"] == trained["ap50"]
        assert 0 < trained["ap50_train"] < 1


@pytest.mark.slow
def test_a_setting_is_part_of_a_segmentation_and_compare_names_it(
    small_store, tmp_path, monkeypatch, invoke
):
    monkeypatch.chdir(tmp_path)  # where the printed command writes masks
    asked = [small_store.data, *options(model=small_store.weights, store=tmp_path, repeats=1)]
    usual = invoke("segment", *asked, "--masks-into", tmp_path / "out", "--json").json
    (file,) = (tmp_path / "out").glob("*_masks.tif")
    record = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    assert (record["settings"], record["precision"]) == ({}, "float32")
    assert record["model_digest"] == small_store.answer.json["repeats"][0]["weights"]
    told = invoke("describe", file, "--command", *options(store=small_store.root)).out
    (line,) = (line for line in told.splitlines() if "cellrepro segment " in line)
    words = line.split()[1:]
    assert words[1] == str(
        next(image for image in (small_store.data / "test").iterdir() if "mask" not in image.name)
    )
    again = invoke(*words, *options(store=tmp_path), "--json").json
    assert again["repeats"][0]["masks"] == usual["repeats"][0]["masks"]
    given = ("--set", "diameter=60", "--set", "normalize.percentile=[3, 97]")
    other = invoke("segment", *asked, *given, "--json").json
    assert usual["key"] != other["key"]
    found = invoke("compare", usual["key"], other["key"], *options(store=tmp_path), "--json").json
    assert {"spec", "masks"} <= {*found["differs"]}
    assert found["spec"] == {
        "settings.diameter": [None, 60.0],
        "settings.normalize.percentile": [None, [3.0, 97.0]],
    }
    refused = invoke("segment", *asked, "--set", "rescale=2")
    assert refused.code == 2
    assert "overwrites it by 30 / diameter: give diameter" in refused.err
    listed = invoke("list", *options(store=tmp_path), "--where", "settings.diameter=60", "--json")
    assert [run["key"] for run in listed.json["runs"]] == [other["key"]]


def test_stacks_are_stored_compared_and_reported(small_store, tmp_path, invoke):
    (file,) = (f for f in (small_store.data / "test").iterdir() if "_masks" not in f.name)
    plane = tifffile.imread(file)[:96, :112]
    planes = np.stack([np.roll(plane, k, axis=1) for k in range(3)])
    (tmp_path / "data").mkdir()
    tifffile.imwrite(tmp_path / "data" / "named.tif", planes, metadata={"axes": "ZYX"}, imagej=True)
    store = options(model=small_store.weights, store=tmp_path / "outputs", repeats=1)
    keys = []
    for name, more in (("apart", ()), ("stitched", ("--set", "stitch_threshold=0.3"))):
        written = ("--masks-into", tmp_path / name)  # three planes, which are no colours
        answer = invoke("segment", tmp_path / "data", *store, *more, *written, "--json")
        assert answer.code == 0, answer.err
        keys.append(answer.json["key"])
    moved = shutil.copytree(tmp_path / "data", tmp_path / "moved")  # of whose images it is stored
    again = invoke("segment", moved, *store, "--masks-into", tmp_path / "again", "--json")
    assert again.json["key"] == keys[0]
    record = json.loads((tmp_path / "again" / "named_masks.json").read_text(encoding="utf-8"))
    assert record["filename"] == str(moved / "named.tif")
    stored = Store(tmp_path / "outputs")
    masks = [stored.find(key).masks("named") for key in keys]
    assert [one.shape for one in masks] == [planes.shape] * 2
    kept = stored.image(stored.find(keys[0]).spec.data_digest, "named")
    np.testing.assert_array_equal(kept, planes)
    found = invoke("compare", *keys, *options(store=tmp_path / "outputs"), "--json").json
    assert found["spec"] == {"settings.stitch_threshold": [0, 0.3]}
    assert found["objects"]["merged"] > 0
    of_files = invoke("compare", tmp_path / "apart", tmp_path / "stitched")
    for text in ("planes were joined into cells differently", "cut between planes z 0 | 1"):
        assert text in of_files.out
    report = invoke("report", *options(store=tmp_path / "outputs"))
    assert report.code == 0, report.err
    (tmp_path / "data" / "named.tif").unlink()
    tifffile.imwrite(tmp_path / "data" / "unnamed.tif", np.concatenate([planes] * 2))
    refused = invoke("segment", tmp_path / "data", *store)
    assert refused.code == 2
    assert "give --set z_axis=N" in refused.err
    other = invoke("segment", tmp_path / "data", *store, "--set", "z_axis=3")
    assert other.code == 2
    assert "z_axis is 3, and the image has shape (6, 96, 112)" in other.err


def test_compare_and_list_runs(invoke, tmp_path):
    store = Store(tmp_path)
    same, other = three(), three(three()["img_b"] * 0)
    first = add_run(store, [(1.0, same)] * 2)
    second = add_run(store, [(1.0, same), (2.0, other)], seed=1)
    key, place = first.key, ["--store", tmp_path, "--json"]
    answer = invoke("compare", key, key, *place)
    assert {"weights", "masks", "objects", "environment"} <= answer.json.keys()
    assert (answer.code, answer.json["verdict"], answer.json["differs"]) == (0, "identical", [])
    answer = invoke("compare", key, second.key, *place)  # the same bits of another spec
    assert (answer.code, answer.json["verdict"]) == (1, "identical")
    assert (answer.json["differs"], answer.json["spec"]) == (["spec"], {"seed": [0, 1]})
    answer = invoke("compare", key, f"{second.key}/1", *place)
    assert (answer.code, answer.json["verdict"]) == (1, "different")
    assert {"spec", "weights", "masks", "truth"} == set(answer.json["differs"])
    objects = answer.json["objects"]
    assert objects["lost"] == objects["n_a"] - objects["n_b"] == 2
    lost = [change for change in objects["changes"] if change["kind"] == "lost"]
    assert all((change["y"], change["x"]) == (*change["position"],) for change in lost)
    assert [(len(change["a"]), change["b"]) for change in lost] == [(1, []), (1, [])]
    words = invoke("compare", key, f"{second.key}/1", "--store", tmp_path)
    assert words.out.startswith("different: what was asked for")
    rows = {row["key"]: row for row in invoke("list", *place).json["runs"]}
    assert {"key", "label", "machine", "repeats"} <= rows[key].keys()
    assert [row["verdict"] for row in rows.values()] == ["identical", "different"]
    _, *lines = invoke("list", "--store", tmp_path).out.splitlines()
    short_keys = [line.split()[0] for line in lines[: len(rows)]]
    assert [store.find_run(short).key for short in short_keys] == [*rows]
    assert any("different weights and masks" in line and "seed 1" in line for line in lines)


def test_what_is_stored_already_is_said_and_what_it_lacks(small_store, invoke, no_child):
    """Its checkpoints are three epochs apart."""
    asked = ("train", small_store.data, *options(**SMALL, repeats=2, store=small_store.root))
    plain = invoke(*asked)
    assert "note: all 2 repeats that you asked for are stored already" in plain.err
    assert "nothing was run" in plain.err
    assert "changed nothing" not in plain.err
    more = invoke(*asked, "--keep-checkpoints", "--checkpoint-every", 1)
    assert "keep_checkpoints changed nothing of what they hold: give another store" in more.err


def test_list_of_nothing(invoke, tmp_path):
    answer = invoke("list", "--store", tmp_path / "outputs")
    assert answer.out.startswith("no runs yet")
    assert "which is not there" in answer.out
    assert invoke("list", "--store", tmp_path / "outputs", "--json").json["runs"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_words_of_another_program_are_not_touched(tmp_path, invoke):
    """An option of the lab's own that may stand alone is an option of others, too."""
    images = tmp_path / "images"
    images.mkdir()
    tifffile.imwrite(images / "one.tif", np.ones((16, 16), np.uint8))
    program = tmp_path / "segment.py"
    program.write_text(
        "import sys, numpy, tifffile\n"
        "tifffile.imwrite(sys.argv[3], numpy.full((16, 16), len(sys.argv[1]), 'uint16'))\n"
    )
    words = [sys.executable, program, "--keep-checkpoints", "{image}", "{masks}"]
    asked = options(store=tmp_path / "outputs", repeats=1)
    answer = invoke("wrap", images, *asked, "--", *words)
    assert answer.code == 0, answer.err
    (masks,) = tmp_path.glob("outputs/runs/*/*/0/masks/one.tif")
    assert tifffile.imread(masks).max() == len("--keep-checkpoints")


@pytest.mark.parametrize("closed", ["", ">&-"], ids=["ascii", "no output"])
def test_where_the_answer_cannot_be_written_the_code_still_tells(tmp_path, closed):
    """A file name that the terminal has no letters for, or no terminal at all."""
    paths = [tmp_path / "größe.tif", tmp_path / "mehr.tif"]
    for n_labels, path in enumerate(paths, start=1):
        tifffile.imwrite(path, np.array([[0, 1, n_labels]], np.uint16))
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" compare "$2" "$3" {closed}', sys.executable, MAIN, *paths],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert closed or "different: masks" in done.stdout


def test_json_knows_no_nan(invoke, tmp_path):
    """Two empty masks have no precision; JSON has no NaN."""
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((4, 5), np.uint16))
    answer = invoke("compare", tmp_path / "a.tif", tmp_path / "a.tif", "--json")
    assert (answer.code, answer.json["verdict"]) == (1, "vacuous")
    assert (answer.json["masks"]["a"]["ap50"], "NaN" in answer.out) == (None, False)


def test_data(invoke, tmp_path):
    assert "synthetic" in invoke("data", "--json").json["sets"]
    answer = invoke("data", "synthetic", "--into", tmp_path / "data", "--json")
    assert answer.json == {"folder": str(tmp_path / "data" / "synthetic")}
    assert len(list((tmp_path / "data" / "synthetic" / "train").glob("*_masks.tif"))) == 8


def test_data_for_a_benchmark(invoke, tmp_path):
    asked = options(images=3, size=128, cells=7, into=tmp_path)
    folder = Path(invoke("data", "synthetic", *asked, "--json").json["folder"])
    drawn = [image.masks for image in read_folder(folder).train]
    assert [(masks.shape, masks.max()) for masks in drawn] == [((128, 128), 7)] * 3


@pytest.fixture
def given(tmp_path, small_data):
    """A copy of the images with one that is cut off, and a file of the user's."""
    data = tmp_path / "mine"
    shutil.copytree(small_data, data)
    image = data / "train" / "synth_000.tif"
    image.write_bytes(image.read_bytes()[:200])
    (tmp_path / "my.yaml").write_text("thread: 2")
    return SimpleNamespace(tmp=tmp_path, good=small_data, data=data, image=image)


def train(*given):
    return lambda g: ["train", g.good, *(str(one).format(tmp=g.tmp) for one in given)]


BAD = {
    "corrupt image": (lambda g: ["train", g.data], "synth_000.tif"),
    "unknown model": (train("--model", "cyto9"), "'cyto9'"),
    "a name too long": (train("--model", "m" * 5000), "m" * 50),
    "bad profile file": (train("--profile", "{tmp}/my.yaml"), "thread"),
    "negative seed": (train("--seed", -1), "seed is -1"),
    "data seed in words": (train("--data-seed", "other"), "'other'"),
    "steps in words": (train("--operation-steps", "3-"), "'3-'"),
    "steps backwards": (train("--operation-steps", "9-0"), "'9-0'"),
    "steps without end": (train("--operation-steps", "0-99999999999"), "0-99999999999"),
    "a grid of no workers": (lambda g: ["grid", g.image, "--dry-run", "--workers", 0], "workers"),
    "a grid of no time": (lambda g: ["grid", g.image, "--dry-run", "--time-limit", -3], "-3"),
    "a plan for others": (
        lambda g: ["grid", g.image, "--dry-run", "--scheduler", "tcp://nowhere:1"],
        "--scheduler would do nothing",
    ),
    "unknown option": (train("--epoch-s", 2), "--epoch-s"),
    "unknown keys": (lambda g: ["compare", "abcdef", "fedcba/1"], "'abcdef'"),
    "two kinds": (lambda g: ["compare", g.tmp / "my.yaml", g.data], "my.yaml is a text"),
    "binary grid": (lambda g: ["grid", g.image], "synth_000.tif is not a grid file"),
    "no folder for a store": (train("--store", "/dev/null/store"), "/dev/null/store"),
    "a file for a store": (train("--store", "{tmp}/my.yaml"), "my.yaml"),
    "cells of a real set": (
        lambda g: ["data", "dsb2018", "--cells", 3, "--into", g.tmp],
        "dsb2018",
    ),
    "no cells": (lambda g: ["data", "synthetic", "--cells", 0, "--into", g.tmp], "cells must be"),
    "unknown set": (lambda g: ["data", "nuclei9", "--into", g.tmp / "sets"], "nuclei9"),
}


@pytest.mark.parametrize(("arguments", "named"), BAD.values(), ids=BAD.keys())
def test_bad_input(given, invoke, no_child, listing, arguments, named):
    """One message that names what was given, exit code 2, and nothing is written."""
    call = [str(argument) for argument in arguments(given)]
    if call[0] != "data" and "--store" not in call:
        call += ["--store", str(given.tmp / "outputs")]
    tree = listing(given.tmp)
    answer = invoke(*call, "--json")
    assert (answer.code, answer.out) == (2, ""), answer
    assert named in answer.err
    ours = answer.err.count("cellrepro: ")
    assert (ours, "Usage: " in answer.err) in [(1, False), (0, True)], answer.err
    assert listing(given.tmp) == tree


def test_a_disk_that_is_full_elsewhere(small_data, tmp_path, invoke, no_child, monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device", "/tmp"))
    monkeypatch.setattr(calling.tempfile, "TemporaryDirectory", full)
    answer = invoke("train", small_data, "--store", tmp_path / "outputs")
    assert (answer.code, answer.out) == (3, "")
    assert "can be made: No space left on device: '/tmp')" in answer.err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_device(small_data, tmp_path, command):
    """Exit code 3, and no trace of the attempt, nor of the folders on the way to the store."""
    store = tmp_path / "not" / "yet" / "there"
    answer = command("train", small_data, "--profile", "cuda", "--store", store, "--json")
    assert (answer.code, answer.out) == (3, "")
    assert re.search(r"cellrepro: .*'cuda' needs the device 'cuda'.*cpu-1thread", answer.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted; what was finished is kept"),
        (MemoryError("Unable to allocate 20 GiB"), 3, "memory is short: Unable to allocate 20 GiB"),
    ],
)
def test_only_the_users_mistakes_become_messages(invoke, monkeypatch, error, code, said):
    inner = "cellrepro.explanation.compare_files.compare"
    monkeypatch.setattr(inner, Mock(side_effect=error))
    answer = invoke("compare", "a", "b")
    assert (answer.code, answer.out, answer.err) == (code, "", f"cellrepro: {said}\n")
    monkeypatch.setattr(inner, Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):  # a fault of ours
        invoke("compare", "a", "b")


VERBS_WITH_A_MODE = {
    "doctor": lambda g: ["doctor"],
    "train": lambda g: ["train", g.good],
    "segment": lambda g: ["segment", g.good],
    "audit": lambda g: ["audit", g.good],
    "audit of a segmentation": lambda g: ["audit", g.good, "--task", "segment"],
    "sensitivity": lambda g: ["sensitivity", g.good],
    "tiles": lambda g: ["tiles", g.good],
    "forecast": lambda g: ["forecast", g.good],
    "wrap": lambda g: ["wrap", g.good, "--mode", "off", "--", "true", "{image}", "{masks}"],
    "explain": lambda g: ["explain", *g.masks, "--image", g.photo, "--model", "tiny"],
}


@pytest.mark.parametrize("arguments", VERBS_WITH_A_MODE.values(), ids=VERBS_WITH_A_MODE.keys())
def test_mode_off_can_be_asked_for(given, invoke, no_child, monkeypatch, arguments):
    """No verb has a seed of its own for the mode that refuses any."""
    given.photo = given.good / "test" / "synth_003.tif"
    given.masks = [given.tmp / "a.tif", given.tmp / "b.tif"]
    for n_objects, path in enumerate(given.masks, start=1):
        labels = np.zeros((256, 256), np.uint16)
        labels[:9, : 9 * n_objects] = n_objects
        tifffile.imwrite(path, labels)
    call = [str(argument) for argument in arguments(given)]
    if "--mode" not in call:
        call += ["--mode", "off"]
    monkeypatch.chdir(given.tmp)
    with pytest.raises(AssertionError, match="a process was started"):
        invoke(*call)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (("--epochs", 3), "--epochs would do nothing where a training is audited"),
        (("--set", "diameter=60"), "--set would do nothing"),
        (("--task", "segment", "--batch-size", 4), "--batch-size would do nothing with --task seg"),
        (("--function", "m:f", "--model", "tiny"), "--model would do nothing beside --function"),
        (
            ("--task", "segmnt"),
            "--task is 'segmnt'; expected one of train, segment; do you mean segment?",
        ),
        (("--epochs", "abc"), "--epochs is 'abc'; expected a whole number"),
        (("--epochs", "1.5"), "--epochs is '1.5'; expected a whole number"),
    ],
)
def test_options_of_audit_that_would_do_nothing_are_refused(
    small_data, invoke, no_child, asked, named
):
    answer = invoke("audit", small_data, *asked)
    assert (answer.code, named in answer.err) == (2, True), answer.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("doctor", "--model", "tiny"), "--model would do nothing without --warning"),
        (("doctor", "--warning", "x", "--seed", 1), "--seed would do nothing beside --warning"),
        (("tiles", "--masks", "m.tif", "--set", "diameter=9"), "--set would do nothing beside --m"),
        (("data", "--images", 2), "no set is named"),
        (("data", "nuclei", "--cells", 2), "the set nuclei is named"),
    ],
)
def test_options_that_would_do_nothing_are_refused(invoke, no_child, words, named):
    answer = invoke(*words)
    assert (answer.code, named in answer.err) == (2, True), answer.err


@pytest.mark.parametrize(
    ("option", "text", "near"),
    [("--mode", "stric", "strict"), ("--ledger", "step", "steps"), ("--profile", "cpuu", "cpu")],
)
def test_a_mistyped_choice_proposes_the_nearest_word(small_data, invoke, option, text, near):
    answer = invoke("train", small_data, option, text)
    assert answer.code == 2
    assert text in answer.err
    assert re.search(rf"(do|Did) you mean \W?{near}", answer.err)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train"], "train needs DATA; see `cellrepro train --help`"),
        (["baseline", "check", "x"], "baseline check needs MASKS"),
        (["tiles", "a", "b"], "'b': more words than `cellrepro tiles` takes"),
        (["doctor", "--mode"], "--mode needs a value"),
        (["trian"], "there is no command 'trian'; do you mean train?"),
        (["baseline", "baseline"], "there is no command 'baseline'; expected one of save, check"),
        (["--store", "here", "list"], "options come after it: `cellrepro list --store …`"),
        (
            ["explore", __file__, __file__, __file__, "--html", "x", "--no-browser"],
            "--no-browser w",
        ),
        (["report", "--overwrit"], "no option --overwrit; do you mean --overwrite?"),
    ],
)
def test_wrong_words_are_named_with_the_way_on(invoke, no_child, words, named):
    answer = invoke(*words)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert named in answer.err


def test_options_of_one_command_are_not_those_of_the_next(invoke):
    """What would do nothing is refused by what was named, and only while it is carried out."""
    assert invoke("tiles", "--masks", "m.tif", "--seed", 1).code == 2
    with pytest.raises(BadInput, match="no such file"):
        cellrepro.tiles(masks="m.tif", seed=1)


def test_alone_it_shows_its_commands_and_says_its_version(invoke):
    alone = invoke().out
    for command in commands():
        assert re.search(rf"^\W*{command.words[0]} ", alone, re.MULTILINE)
    assert re.findall(r"─ (\w[\w ]+) ─", alone) == [
        *("Commands", "Two files", "Segment and train", "Find the cause"),
        *("Hand on", "The store", "Set up"),
    ]
    begin = re.findall(r"^ {4}(cellrepro .*)$", alone, re.MULTILINE)
    assert len(begin) > 1
    for line in begin:
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)
    assert invoke("--version").out == f"cellrepro {cellrepro.__version__}\n"


@pytest.mark.parametrize("command", [*commands()], ids=lambda command: " ".join(command.words))
def test_every_command_shows_examples_that_are_read_without_an_error(invoke, command):
    """With all their options and values; nothing is carried out."""
    usage, _, shown = invoke(*command.words, "--help").out.partition("Examples:\n")
    assert "[ARGS" not in usage, "an argument that may be left out has a name, too"
    examples = re.findall(r"^ {4}(cellrepro .*)$", shown, re.MULTILINE)
    assert examples
    for example in examples:
        _, *given = shlex.split(example)
        assert tuple(given[: len(command.words)]) == command.words
        command.read(given[len(command.words) :])
        assert len(example) <= 76, "wider than a terminal"


@pytest.mark.parametrize("command", [*commands()], ids=lambda command: " ".join(command.words))
def test_every_argument_and_option_has_its_words(command):
    assert [one.name for one in command.parameters if not one.help] == []


@pytest.mark.parametrize("command", [*commands()], ids=lambda command: " ".join(command.words))
def test_the_options_of_every_command_are_known_without_importing_it(command):
    known = options_of(BY_WORDS[" ".join(command.words)])
    assert set(known) == {one.options[0] for one in command.options}


def test_words_that_a_command_does_not_take_are_answered_with_the_call_that_works(invoke):
    assert "cellrepro list --store ../nowhere`" in invoke("list", "../nowhere").err
    assert "--store" not in invoke("compare", "a.tif", "b.tif", "folder/c.tif").err
    assert "cellrepro explore IMAGE A B`" in invoke("explore", "a.npy", "--image", "x.tif").err
    assert "--set diameter=VALUE" in invoke("segment", "d", "--diameter", "20").err
    assert "do you mean --learning-rate?" in invoke("train", "d", "--lr", "0.1").err


def test_an_unknown_option_is_told_by_its_letters_alone(invoke):
    refused = invoke("explain", "a.tif", "b.tif", "--html", "x.html")
    assert refused.code == 2
    assert "`cellrepro compare`, `cellrepro explore`" in refused.err
    assert "do you mean" not in refused.err
    assert "do you mean --image?" in invoke("explain", "a.tif", "b.tif", "--imgae=m").err


READING = [
    command for command in commands() if {one.name for one in command.arguments} - {"folder"}
]
"""The commands whose arguments name what is there; a ``folder`` is made."""


OF_STORES = [command for command in commands() if BY_WORDS[" ".join(command.words)].is_of_store]
"""Those that answer about a whole store; of the others it is one of the places to look in."""


@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command.words))
def test_what_is_not_there_is_said_in_one_sentence(
    invoke, no_child, tmp_path, monkeypatch, command
):
    """Whatever kind of name it is: of a file, of a run, or of a network."""
    monkeypatch.chdir(tmp_path)
    for name in ("zzzz", "zzzz.tif"):
        answer = invoke(*command.words, *(name for _ in command.arguments))
        if "not installed here" in answer.err:  # an extra, without which nothing is looked up
            continue
        assert (answer.code, answer.out) == (2, ""), answer
        assert name in answer.err
        assert not re.search(r"[Ee]rrno|FileNotFound|is not an? ", answer.err)
        assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("command", OF_STORES, ids=lambda command: " ".join(command.words))
def test_a_store_that_is_not_there_is_said_to_be_missing(
    invoke, no_child, tmp_path, monkeypatch, command
):
    """Rather than empty: its name is mistyped, or its disk is not connected."""
    monkeypatch.chdir(tmp_path)
    by_place = [one.name for one in command.arguments if one.name != "store"]
    option = [] if any(one.name == "store" for one in command.arguments) else ["--store"]
    answer = invoke(*command.words, *("zzzz" for _ in by_place), *option, "no/store")
    assert (answer.code, answer.out) == (2, ""), answer
    assert answer.err.startswith("cellrepro: no/store: no such folder")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "words",
    [("compare", "", ""), ("compare", "a.tif", "b.tif", "--html", ""), ("list", "--store", "")],
)
def test_an_empty_name_is_not_the_current_folder(words, invoke, tmp_path, monkeypatch):
    """A shell's variable that is not set gives one, and Python takes it for the folder."""
    monkeypatch.chdir(tmp_path)
    answer = invoke(*words)
    assert (answer.code, "an empty name" in answer.err) == (2, True)
    assert [*tmp_path.iterdir()] == []


def test_masks_beside_a_single_image_would_be_taken_for_its_truth(small_data, tmp_path, invoke):
    (image,) = (f for f in (small_data / "test").iterdir() if "_masks" not in f.name)
    shutil.copy(image, tmp_path)
    answer = invoke(
        "segment", tmp_path / image.name, "--masks-into", tmp_path, *options(store=tmp_path / "o")
    )
    assert answer.code == 2
    assert "taken for masks that you have drawn" in answer.err
    assert not (tmp_path / "o").exists()


def test_whoever_reads_our_output_may_have_enough(tmp_path):
    for index in range(400):
        tifffile.imwrite(tmp_path / f"{index}_masks.tif", np.ones((2, 2), np.uint8))
    shell = '"$0" -c "$1" compare "$2" "$2" --json | true; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable, MAIN, tmp_path], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
