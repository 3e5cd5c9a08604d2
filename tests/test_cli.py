"""The command line: answers, exit codes, and one clear message for whatever is wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import imagecodecs
import numpy as np
import pytest
import tifffile
from safetensors.numpy import load_file, save_file

from cellrepro.determinism.profiles import load
from cellrepro.lab import process
from cellrepro.lab.machine import machine_here
from cellrepro.store.digests import file_digest
from cellrepro.store.store import Store

HEX = re.compile(r"[0-9a-f]{64}")
SMALL = ["--epochs", 4, "--images-per-epoch", 16, "--learning-rate", 0.01]
PROGRAM = "from cellrepro.cli import main; main()"
QUICK = ["--epochs", 2, "--images-per-epoch", 1]


@pytest.fixture
def no_worker(monkeypatch):
    """Fail if a process is started, but for a look at the machine: a refusal must come before."""
    machine_here(load("cpu"))  # found out once a process

    def refuse(*_, **__):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(process.subprocess, "Popen", refuse)


# -- train ---------------------------------------------------------------------------------


def test_train_twice_gives_the_same_bits(small_store):
    """The product's promise, through its front door."""
    answer = small_store.answer
    assert answer.code == 0
    assert answer.json["verdict"] == "identical"
    first, second = answer.json["repeats"]
    assert HEX.fullmatch(first["weights"])
    assert first["weights"] == second["weights"]
    assert first["masks"] == second["masks"]
    assert sum(first["objects"].values()) > 5


def test_train_answers_with_the_fields_of_the_contract(small_store):
    document = small_store.answer.json
    assert document["folder"] == str(small_store.root / "runs" / document["key"])
    assert [repeat["index"] for repeat in document["repeats"]] == [0, 1]
    for repeat in document["repeats"]:
        assert {"index", "machine", "weights", "masks", "ap50", "seconds"} <= repeat.keys()
        assert repeat["masks"].keys() == {"synth_003"}
        assert HEX.fullmatch(repeat["masks"]["synth_003"])
        assert 0 < repeat["ap50"] < 1
        assert repeat["seconds"] > 0
        folder = small_store.folder / str(repeat["index"])
        assert file_digest(folder / "weights.safetensors") == repeat["weights"]


def test_progress_goes_to_standard_error(small_store):
    assert "train repeat 1/2: 5/5" in small_store.answer.err
    assert "train repeat 2/2" in small_store.answer.err
    assert "{" not in small_store.answer.err
    assert small_store.answer.out.startswith("{")
    assert small_store.answer.out.endswith("}\n")


def test_finished_repeats_are_not_run_again(small_store, invoke, no_worker, listing):
    before = listing(small_store.root)
    answer = invoke("train", small_store.data, *SMALL, "--store", small_store.root, "--json")
    assert answer.json == small_store.answer.json
    assert listing(small_store.root) == before


def test_train_in_words(small_store, invoke, no_worker):
    answer = invoke("train", small_store.data, *SMALL, "--store", small_store.root)
    lines = answer.out.splitlines()
    assert answer.code == 0
    assert lines[0] == f"run {small_store.key} in {small_store.root / 'runs' / small_store.key}"
    assert lines[1] == f"machine {small_store.machine}"
    assert lines[2] == "learning rate 0 to 0.0033 over 4 epochs"
    assert lines[-1] == "identical (weights identical, masks identical) over 2 repeats, 1 images"


def test_a_single_repeat_has_no_verdict(small_store, invoke, no_worker):
    arguments = ["train", small_store.data, *SMALL, "--store", small_store.root, "--repeats", 1]
    answer = invoke(*arguments, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, None)
    assert answer.json["reasons"] == ["a single repeat has nothing to be compared with"]
    assert "no verdict over 1 repeats" in invoke(*arguments).out


@pytest.mark.slow
def test_one_epoch_is_vacuous(small_data, tmp_path, command):
    """Two equal networks that never trained prove nothing."""
    answer = command(
        "train",
        small_data,
        *("--epochs", 1, "--images-per-epoch", 1, "--store", tmp_path / "outputs", "--json"),
    )
    assert answer.code == 1
    assert answer.json["verdict"] == "vacuous"
    assert answer.json["verdicts"] == {"weights": "vacuous", "masks": "vacuous"}
    assert "1 epoch trains nothing" in "; ".join(answer.json["reasons"])
    assert "note: this run will be vacuous: 1 epoch trains nothing" in answer.err
    key = answer.json["key"]
    told = command("diverge", key, key, "--store", tmp_path / "outputs", "--json")
    assert (told.code, told.json["first"], told.json["verdict"]) == (1, None, "vacuous")


# -- segment, compare, list, over a store with more in it ----------------------------------


@pytest.fixture(scope="module")
def store(small_store, tmp_path_factory, command):
    """A copy of the small store with a run of other surroundings and one that segmented."""
    root = tmp_path_factory.mktemp("cli") / "outputs"
    shutil.copytree(small_store.root, root)
    other = command(
        *("train", small_store.data, "--seed", 1, "--profile", "cpu-baseline", *QUICK),
        *("--repeats", 1, "--store", root, "--json"),
    )
    assert other.code == 0, other.err
    segmented = command(
        *("segment", small_store.data, "--model", small_store.key, "--repeats", 2),
        *("--store", root, "--json"),
    )
    return SimpleNamespace(root=root, first=small_store.key, other=other, segmented=segmented)


@pytest.mark.slow
def test_segmenting_gives_the_masks_that_training_found(store, small_store):
    answer = store.segmented
    assert answer.code == 0
    assert answer.json["verdict"] == "identical"
    assert answer.json["verdicts"]["weights"] is None
    trained = small_store.answer.json["repeats"][0]
    for repeat in answer.json["repeats"]:
        assert repeat["weights"] is None
        assert repeat["masks"] == trained["masks"]
        assert repeat["ap50"] == trained["ap50"]


@pytest.mark.slow
def test_compare_two_repeats(store, invoke):
    answer = invoke(
        "compare", f"{store.first}/0", f"{store.first}/1", "--store", store.root, "--json"
    )
    assert answer.code == 0
    document = answer.json
    assert {"verdict", "differs", "weights", "masks", "objects", "environment"} <= document.keys()
    assert (document["verdict"], document["differs"]) == ("identical", [])
    assert document["environment"] == {}
    assert document["masks"]["synth_003"]["verdict"] == "identical"
    assert document["objects"]["lost"] == 0


@pytest.mark.slow
def test_compare_two_runs(store, invoke):
    key = store.other.json["key"]
    answer = invoke("compare", store.first, key, "--store", store.root, "--json")
    assert answer.code == 1
    document = answer.json
    assert document["verdict"] == "different"
    assert {"environment", "spec", "weights-init", "weights", "masks"} <= set(document["differs"])
    assert "data" not in document["differs"]
    assert document["environment"]["cpu_capability"][1] == "DEFAULT"
    assert document["spec"]["seed"] == [0, 1]
    assert document["weights"]["n_differing"] > 1000
    words = invoke("compare", store.first, key, "--store", store.root)
    assert words.code == 1
    assert words.out.startswith("different: environment, spec")


@pytest.mark.slow
def test_compare_a_training_with_a_segmentation(store, invoke):
    """Of two runs that made the same masks, one of which has no weights."""
    key = store.segmented.json["key"]
    answer = invoke("compare", store.first, key, "--store", store.root, "--json")
    assert answer.json["verdict"] == "identical"
    assert answer.json["weights"] is None
    assert answer.code == 1
    assert "spec" in answer.json["differs"]


@pytest.mark.slow
def test_list(store, invoke):
    answer = invoke("list", "--store", store.root, "--json")
    assert answer.code == 0
    found = {run["key"]: run for run in answer.json["runs"]}
    assert found[store.first]["verdict"] == "identical"
    assert found[store.first]["repeats"] == [0, 1]
    assert found[store.other.json["key"]]["verdict"] is None
    assert found[store.segmented.json["key"]]["spec"]["task"] == "segment"
    lines = invoke("list", "--store", store.root).out.splitlines()
    assert len(lines) == 3
    assert any("seed 1, cpu-baseline, strict: 1 repeat on " in line for line in lines)


def test_list_of_nothing(invoke, tmp_path):
    assert invoke("list", "--store", tmp_path / "outputs").out == "no runs yet\n"
    assert invoke("list", "--store", tmp_path / "outputs", "--json").json == {"runs": []}
    assert list(tmp_path.iterdir()) == []


def test_compare_files(invoke, tmp_path):
    labels = np.array([[1, 1, 0, 2, 2]] * 4, np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", labels)
    tifffile.imwrite(tmp_path / "b.tif", labels)
    (tmp_path / "c.png").write_bytes(imagecodecs.png_encode(labels[:, ::-1].copy()))
    a, b, c = tmp_path / "a.tif", tmp_path / "b.tif", tmp_path / "c.png"
    assert invoke("compare", a, b).code == 0
    answer = invoke("compare", a, c, "--json")
    assert (answer.code, answer.json["verdict"]) == (1, "same-objects")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(a, tmp_path / folder / "x.tif")
    assert invoke("compare", tmp_path / "one", tmp_path / "two").code == 0
    tifffile.imwrite(tmp_path / "two" / "x.tif", labels * (labels == 1))
    assert invoke("compare", tmp_path / "one", tmp_path / "two").code == 1


def test_compare_weights_files(invoke, small_store, tmp_path):
    tensors = load_file(small_store.weights)
    save_file(tensors, tmp_path / "same.safetensors")
    tensors["out.bias"][0] += 1
    save_file(tensors, tmp_path / "other.safetensors")
    assert invoke("compare", small_store.weights, tmp_path / "same.safetensors").code == 0
    answer = invoke("compare", small_store.weights, tmp_path / "other.safetensors", "--json")
    assert (answer.code, answer.json["differs"]) == (1, ["weights"])
    assert answer.json["weights"]["n_differing"] == 1


def test_networks_of_other_layouts_are_told_apart_by_name(invoke, tmp_path):
    one = {"a": np.ones(3, np.float32), "b": np.ones((2, 2), np.float32), "c": np.ones(1)}
    two = {"b": np.ones(4, np.float32), "c": np.ones(1, np.float32), "d": np.ones(1)}
    for name, tensors in (("one", one), ("two", two)):
        save_file(tensors, tmp_path / f"{name}.safetensors")
    said = invoke("compare", tmp_path / "one.safetensors", tmp_path / "two.safetensors").out
    assert "nan" not in said
    for line in (
        "9 of 9 parameters differ, no distance over all of them",
        "only in A: a",
        "only in B: d",
        "other shapes: b ((2, 2) and (4,))",
        "other types: c (F64 and F32)",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("surroundings", "closed"),
    [({"PYTHONIOENCODING": "ascii"}, ""), ({}, ">&-")],
    ids=["ascii", "no output"],
)
def test_where_the_answer_cannot_be_written_the_code_still_tells(tmp_path, surroundings, closed):
    """A file name that the terminal has no letters for, or no terminal at all."""
    path = tmp_path / "größe.tif"
    tifffile.imwrite(path, np.array([[0, 1, 1]], np.uint16))
    more = tmp_path / "mehr.tif"
    tifffile.imwrite(more, np.array([[0, 1, 2]], np.uint16))
    found = [
        subprocess.run(
            ["sh", "-c", f'"$0" -c "$1" "$2" "$3" "$4" {closed}', sys.executable, PROGRAM,
             "compare", path, other],
            env={**os.environ, **surroundings}, capture_output=True, text=True, check=False,
        )
        for other in (path, more)
    ]  # fmt: skip
    assert [result.returncode for result in found] == [0, 1]
    assert [result.stderr for result in found] == ["", ""]
    assert closed or " in gr\\xf6\\xdfe.tif" in found[1].stdout


def test_json_knows_no_nan(invoke, tmp_path):
    """Two empty masks have no precision; JSON has no NaN."""
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((4, 5), np.uint16))
    answer = invoke("compare", tmp_path / "a.tif", tmp_path / "a.tif", "--json")

    def refuse(constant):
        raise AssertionError(constant)

    document = json.loads(answer.out, parse_constant=refuse)
    assert (answer.code, document["verdict"]) == (1, "vacuous")
    assert document["masks"]["a.tif"]["ap50"] is None


def test_data(invoke, tmp_path):
    assert "synthetic" in invoke("data", "--json").json["sets"]
    answer = invoke("data", "synthetic", "--into", tmp_path / "data", "--json")
    assert answer.json == {"folder": str(tmp_path / "data" / "synthetic")}
    assert len(list((tmp_path / "data" / "synthetic" / "train").glob("*_masks.tif"))) == 8


@pytest.mark.parametrize("verb", ["train", "segment", "compare", "grid", "list", "report", "data"])
def test_help(invoke, verb):
    answer = invoke(verb, "--help")
    assert answer.code == 0
    assert f" {verb} " in answer.out
    assert "--json" in answer.out


# -- bad input -----------------------------------------------------------------------------


@pytest.fixture
def given(tmp_path, small_data, small_store):
    """A folder of one's own to spoil, and ways to do it."""
    data = tmp_path / "mine"
    shutil.copytree(small_data, data)
    image = data / "train" / "synth_000.tif"
    return SimpleNamespace(
        tmp=tmp_path,
        data=data,
        image=image,
        masks=image.with_name("synth_000_masks.tif"),
        labels=tifffile.imread(image.with_name("synth_000_masks.tif")),
        weights=small_store.weights,
    )


def rewrite(path, array):
    tifffile.imwrite(path, array)


def corrupt(path):
    path.write_bytes(path.read_bytes()[:200])


def truncated(given):
    path = given.tmp / "cut.safetensors"
    path.write_bytes(given.weights.read_bytes()[:1000])
    return path


def text(given, name, content):
    path = given.tmp / name
    path.write_text(content)
    return path


def train(given, *options):
    return ["train", given.data, *options]


def grid(given, content):
    return ["grid", text(given, "grid.yaml", content.format(data=given.data, tmp=given.tmp))]


BAD = {
    # the images
    "corrupt image": (lambda g: corrupt(g.image), train, "synth_000.tif"),
    "corrupt masks": (lambda g: corrupt(g.masks), train, "synth_000_masks.tif"),
    "empty image": (lambda g: g.image.write_bytes(b""), train, "synth_000.tif"),
    "masks of another size": (lambda g: rewrite(g.masks, g.labels[:-1]), train, "synth_000_masks"),
    "missing masks": (lambda g: g.masks.unlink(), train, "synth_000"),
    "masks without an image": (lambda g: g.image.unlink(), train, "synth_000_masks.tif"),
    "float masks": (
        lambda g: rewrite(g.masks, (g.labels / 2).astype(np.float32)),
        train,
        "synth_000_masks.tif",
    ),
    "negative labels": (
        lambda g: rewrite(g.masks, g.labels.astype(np.int16) - 1),
        train,
        "synth_000_masks.tif",
    ),
    "no object anywhere": (
        lambda g: [rewrite(p, np.zeros_like(g.labels)) for p in g.data.rglob("train/*_masks.tif")],
        train,
        "train",
    ),
    "empty folder": (
        lambda g: (g.tmp / "empty").mkdir(),
        lambda g: ["train", g.tmp / "empty"],
        "empty",
    ),
    "missing folder": (None, lambda g: ["train", g.tmp / "absent"], "absent"),
    "a file for a folder": (None, lambda g: ["train", g.image], "synth_000.tif"),
    "segment a missing folder": (None, lambda g: ["segment", g.tmp / "absent"], "absent"),
    "segment a corrupt image": (
        lambda g: corrupt(g.data / "test" / "synth_003.tif"),
        lambda g: ["segment", g.data],
        "synth_003.tif",
    ),
    # the model
    "unknown model": (None, lambda g: train(g, "--model", "cyto9"), "'cyto9'"),
    "a folder as the model": (None, lambda g: train(g, "--model", g.tmp), "is not a file"),
    "missing weights": (None, lambda g: train(g, "--model", "absent.pth"), "absent.pth"),
    "truncated weights": (None, lambda g: train(g, "--model", truncated(g)), "cut.safetensors"),
    "text as weights": (
        None,
        lambda g: train(g, "--model", text(g, "notes.txt", "no weights")),
        "notes.txt",
    ),
    "unknown model to segment with": (
        None,
        lambda g: ["segment", g.data, "--model", "abcdef/0"],
        "'abcdef/0'",
    ),
    "a name too long": (None, lambda g: train(g, "--model", "m" * 5000), "m" * 50),
    # the options
    "unknown profile": (None, lambda g: train(g, "--profile", "gpu9"), "'gpu9'"),
    "missing profile file": (None, lambda g: train(g, "--profile", "my.yaml"), "my.yaml"),
    "bad profile file": (
        None,
        lambda g: train(g, "--profile", text(g, "my.yaml", "thread: 2")),
        "thread",
    ),
    "unknown mode": (None, lambda g: train(g, "--mode", "exact"), "'exact'"),
    "ledger": (None, lambda g: train(g, "--ledger", "everything"), "'everything'"),
    "negative seed": (None, lambda g: train(g, "--seed", -1), "seed is -1"),
    "seed too large": (None, lambda g: train(g, "--seed", 2**32), "seed is 4294967296"),
    "seed in words": (None, lambda g: train(g, "--seed", "one"), "--seed"),
    "seed with a point": (None, lambda g: train(g, "--seed", "1.5"), "--seed"),
    "data seed in words": (None, lambda g: train(g, "--data-seed", "other"), "'other'"),
    "negative data seed": (None, lambda g: train(g, "--data-seed", -3), "data_seed is -3"),
    "no epoch": (None, lambda g: train(g, "--epochs", 0), "epochs is 0"),
    "negative epochs": (None, lambda g: train(g, "--epochs", -2), "epochs is -2"),
    "epochs in words": (None, lambda g: train(g, "--epochs", "ten"), "--epochs"),
    "no repeat": (None, lambda g: train(g, "--repeats", 0), "repeats must be"),
    "negative repeats": (None, lambda g: train(g, "--repeats", -1), "repeats must be"),
    "segment no times": (None, lambda g: ["segment", g.data, "--repeats", 0], "repeats must be"),
    "batch of nothing": (None, lambda g: train(g, "--batch-size", 0), "batch_size is 0"),
    "no image an epoch": (
        None,
        lambda g: train(g, "--images-per-epoch", 0),
        "images_per_epoch is 0",
    ),
    "learning rate NaN": (None, lambda g: train(g, "--learning-rate", "nan"), "is nan"),
    "infinite learning rate": (None, lambda g: train(g, "--learning-rate", "inf"), "is inf"),
    "negative learning rate": (None, lambda g: train(g, "--learning-rate", -1), "is -1"),
    "learning rate in words": (
        None,
        lambda g: train(g, "--learning-rate", "low"),
        "--learning-rate",
    ),
    "unknown option": (None, lambda g: train(g, "--epoch-s", 2), "--epoch-s"),
    "unknown verb": (None, lambda g: ["retrain", g.data], "'retrain'"),
    "no folder": (None, lambda g: ["train"], "Missing argument"),
    # comparisons
    "compare unknown keys": (None, lambda g: ["compare", "abcdef", "fedcba/1"], "'abcdef'"),
    "compare a repeat of four parts": (
        None,
        lambda g: ["compare", "abc/laptop/0/1", "abc"],
        "'abc",
    ),
    "compare a missing file": (None, lambda g: ["compare", g.masks, g.tmp / "no.tif"], "no.tif"),
    "compare two kinds": (None, lambda g: ["compare", g.masks, g.weights], "not of one kind"),
    "compare corrupt masks": (
        lambda g: corrupt(g.masks),
        lambda g: ["compare", g.masks, g.masks],
        "synth_000_masks.tif",
    ),
    "compare truncated weights": (
        None,
        lambda g: ["compare", truncated(g), g.weights],
        "cut.safetensors",
    ),
    "compare one thing": (None, lambda g: ["compare", "abc"], "Missing argument"),
    "compare names too long": (None, lambda g: ["compare", "a" * 5000, "b"], "a" * 50),
    # grids
    "missing grid": (None, lambda g: ["grid", g.tmp / "absent.yaml"], "absent.yaml"),
    "grid that is no YAML": (None, lambda g: grid(g, "notebook: ["), "is not YAML"),
    "grid of other fields": (None, lambda g: grid(g, "notebook: a\nvaries: 3"), "varies"),
    "grid that is a list": (None, lambda g: grid(g, "- 1"), "grid.yaml is not a grid file"),
    "grid in binary": (
        None,
        lambda g: ["grid", g.image],
        "synth_000.tif cannot be read",
    ),
    "grid of an unknown notebook": (None, lambda g: grid(g, "notebook: 99_none"), "'99_none'"),
    "data set unknown": (None, lambda g: ["data", "nuclei9", "--into", g.tmp / "sets"], "nuclei9"),
}


@pytest.mark.parametrize("there", [False, True], ids=["no store yet", "a store"])
@pytest.mark.parametrize(("spoil", "arguments", "named"), BAD.values(), ids=BAD.keys())
def test_bad_input(given, small_store, invoke, no_worker, listing, spoil, arguments, named, there):
    """One message that names what was given, exit code 2, and nothing is written."""
    if spoil:
        spoil(given)
    call = [str(argument) for argument in arguments(given)]
    store = small_store.root if there else given.tmp / "outputs"
    if call[0] in ("train", "segment", "compare", "grid"):
        call += ["--store", str(store)]
    before, tree = listing(store), listing(given.tmp)
    answer = invoke(*call, *(["--json"] if call[0] != "retrain" else []))
    assert answer.code == 2, answer
    assert answer.out == ""
    assert named in answer.err
    assert "Traceback" not in answer.err
    ours = answer.err.count("cellrepro: ")
    assert (ours, "Usage: " in answer.err) in [(1, False), (0, True)], answer.err
    assert listing(store) == before
    assert listing(given.tmp) == tree


@pytest.mark.parametrize(
    "root",
    ["/proc/no/store", "/dev/null/store", "{tmp}/notes.txt", "{tmp}/" + 300 * "n"],
    ids=["in /proc", "below a device", "a file", "a name too long"],
)
@pytest.mark.parametrize("verb", ["train", "segment"])
def test_a_store_that_cannot_be_written(given, invoke, no_worker, listing, verb, root):
    text(given, "notes.txt", "mine")
    before = listing(given.tmp)
    answer = invoke(verb, given.data, "--store", root.format(tmp=given.tmp), "--json")
    assert (answer.code, answer.out) == (2, "")
    assert re.search(r"cellrepro: the store .*(--store|a name to make|name another)", answer.err)
    assert listing(given.tmp) == before


@pytest.mark.parametrize("verb", ["train", "segment"])
def test_a_full_disk(given, invoke, no_worker, monkeypatch, verb):
    def full(*_, **__):
        raise OSError(28, "No space left on device", str(given.tmp))

    monkeypatch.setattr("cellrepro.store.disk.FileLock.acquire", full)
    answer = invoke(verb, given.data, "--store", given.tmp / "outputs")
    assert (answer.code, answer.out) == (3, "")
    assert "cellrepro: no space left for the store" in answer.err
    assert not (given.tmp / "outputs").exists()


def test_a_disk_that_is_full_elsewhere(given, invoke, no_worker, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "/tmp")

    monkeypatch.setattr(process.tempfile, "TemporaryDirectory", full)
    answer = invoke("train", given.data, "--store", given.tmp / "outputs")
    assert (answer.code, answer.out) == (3, "")
    assert "cellrepro: [Errno 28] No space left on device: '/tmp'" in answer.err
    assert not (given.tmp / "outputs").exists()


def test_a_folder_that_was_an_empty_store_stays(given, invoke, no_worker, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "/tmp")

    monkeypatch.setattr(process.tempfile, "TemporaryDirectory", full)
    (given.tmp / "outputs").mkdir()
    invoke("train", given.data, "--store", given.tmp / "outputs")
    assert list((given.tmp / "outputs").iterdir()) == []


@pytest.mark.slow
def test_a_missing_device(small_data, tmp_path, command):
    """Exit code 3, and no trace of the attempt, nor of the folders on the way to the store."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    store = tmp_path / "not" / "yet" / "there"
    answer = command("train", small_data, "--profile", "cuda", "--store", store, "--json")
    assert (answer.code, answer.out) == (3, "")
    (message,) = [line for line in answer.err.splitlines() if line.startswith("cellrepro: ")]
    assert "'cuda' needs the device 'cuda'" in message
    assert "cpu-1thread" in message
    assert "Traceback" not in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", ["corrupt image", "unknown option", "compare unknown keys"])
def test_bad_input_to_a_real_process(given, command, case):
    spoil, arguments, named = BAD[case]
    if spoil:
        spoil(given)
    answer = command(*arguments(given), cwd=given.tmp)
    assert (answer.code, answer.out) == (2, "")
    assert named in answer.err
    assert "Traceback" not in answer.err
    assert not (given.tmp / "outputs").exists()


def test_ctrl_c_is_no_traceback(invoke, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cellrepro.lab.compare_results.compare", interrupted)
    answer = invoke("compare", "a", "b")
    assert (answer.code, answer.err) == (130, "cellrepro: interrupted; what was finished is kept\n")


def test_memory_that_is_short_is_no_traceback(invoke, monkeypatch):
    def too_large(*_, **__):
        raise MemoryError("Unable to allocate 20 GiB")

    monkeypatch.setattr("cellrepro.lab.compare_results.compare", too_large)
    answer = invoke("compare", "a", "b")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == "cellrepro: memory is short: Unable to allocate 20 GiB\n"


def test_a_faulty_program_is_not_hidden(invoke, monkeypatch):
    """Only the user's mistakes become messages; a fault of ours keeps its traceback."""

    def faulty(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("cellrepro.lab.compare_results.compare", faulty)
    with pytest.raises(ZeroDivisionError):
        invoke("compare", "a", "b")


def test_stored_runs_of_the_small_store_are_whole(small_store, wholeness):
    assert wholeness(small_store.root) == [f"{small_store.key}/0", f"{small_store.key}/1"]
    assert len(Store(small_store.root).runs()) == 1
