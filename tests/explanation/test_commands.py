"""Each printed command is taken by the program that it is for, and says what was recorded."""

import argparse
import ast
import functools
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from cellpose_options import parser_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cellrepro.command_lines import words_of
from cellrepro.explanation.cellpose_call import CellposeCall
from cellrepro.explanation.condition_commands import LabSetup, commands_for
from cellrepro.explanation.recorded_commands import recorded_commands
from cellrepro.explanation.recorded_settings import RecordedSettings, generation_number, of_file
from cellrepro.model.weight_sources import ModelSource
from cellrepro.run.masks_folder import write_sidecar
from cellrepro.spec.segmentation_settings import NAMES, Settings
from cellrepro.store.store import Store
from command_line import command_named
from samebits.errors import BadInput
from stores import add_run, squares, three

VERSIONS = ("2.3.2", "3.1.1.2", "4.0.9", "4.2.1.1")
NUMBERS = (0, 1, -1, 30, 100.0, 0.4, -1.5, -1e-05, 1e-05, math.nan)
LISTS = ([1.0, 99.5], (1.0, 99.5), [2, 1, 1], (2.0, 1.0, 1.0), [], [None, 1])
ANY_VALUE = (None, True, False, *NUMBERS, *LISTS, "text", {"a": 1})


def parsed(shell, version):
    """What Cellpose's parser makes of a line."""
    words = words_of(shell, windows=False)
    assert words[:3] == ["python", "-m", "cellpose"]
    try:
        return parser_of(version).parse_args(words[3:])
    except (SystemExit, argparse.ArgumentError) as error:
        raise AssertionError(f"{version} refuses {shell}") from error


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_recorded_of_a_setting_is_said_so_or_said_to_be_unsaid(version):
    for name, value in itertools.product(NAMES, ANY_VALUE):
        generation = generation_number(version)
        call = CellposeCall(generation, version, "net.pth", {name: value}, "a b.tif")
        found = parsed(call.shell(), version)
        assert (found.image_path, found.pretrained_model) == ("a b.tif", "net.pth")
        assert not undefined_names(call.python())
        option = {"normalize.percentile": "norm_percentile"}.get(name, name)
        if f"--{option}" not in call.shell():
            continue
        assert name not in call.unsaid()
        said = getattr(found, option)
        if isinstance(said, bool):
            assert said is value
        else:
            assert numbers(said) == numbers(value)


def undefined_names(lines):
    """The names that lines of Python use and do not define."""
    nodes = list(ast.walk(ast.parse(lines)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    imported = {
        alias.asname or alias.name for node in nodes for alias in getattr(node, "names", ())
    }
    defined = imported | {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return {each.id for each in names} - defined - {"float", "nan"}  # which no record has


def numbers(value):
    """One number, or several, as a list; none is 0, as Cellpose has it."""
    return [float(each or 0) for each in (value if isinstance(value, list | tuple) else [value])]


RECORDED = st.dictionaries(
    st.sampled_from([*NAMES, "channels", "device", "restore"]), st.sampled_from(ANY_VALUE)
)


@settings(max_examples=100, deadline=None)
@given(values=RECORDED, version=st.sampled_from(VERSIONS))
def test_a_record_of_anything_gives_a_command_that_is_taken(values, version):
    record = RecordedSettings(
        of_file("a_seg.npy", {**values, "cellpose": version, "filename": "-a b.tif"}),
        generation=generation_number(version),
    )
    commands = recorded_commands(record)
    filled = commands.shell.command.replace(" DIAMETER", " 30").replace(" CHAN ", " 1 ")
    found = parsed(filled.replace("--chan2 CHAN2", "--chan2 0"), version)
    assert found.image_path == "-a b.tif"
    assert f"with Cellpose {version}" in commands.shell.notes


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"flow_threshold": None}, "--flow_threshold 0"),
        ({"cellprob_threshold": -1e-05}, "--cellprob_threshold=-1e-05"),
        ({"flow3D_smooth": (1.0, 2.0, 1.0), "do_3D": True}, "--flow3D_smooth 1.0 2.0 1.0 --do_3D"),
        ({"normalize.percentile": (1.0, 99.5)}, "--norm_percentile 1.0 99.5"),
        ({"min_size": 100.0}, "--min_size 100"),
        ({"resample": False}, "--no_resample"),
    ],
)
def test_values_have_the_words_of_the_installed_cellpose(said, words):
    call = CellposeCall("4", "4.2.1.1", "net.pth", said)
    assert call.shell().endswith(f"--pretrained_model net.pth {words}")
    assert call.unsaid() == []


def test_what_a_generation_cannot_say_is_named():
    smooth = {"flow3D_smooth": (1.0, 2.0, 1.0), "do_3D": True}
    assert CellposeCall("3", "3.1.1.2", "cyto3", smooth).unsaid() == ["flow3D_smooth"]
    tile = {"tile_overlap": 0.2, "normalize.sharpen": 2.0}
    assert CellposeCall("4", "4.2.1.1", "cpsam", tile).unsaid() == [*tile]
    inverted = {"normalize.invert": True, "normalize.normalize": False}
    of_2 = CellposeCall("2", "2.3.2", "cyto2", inverted)
    assert "model_type='cyto2').eval(image, invert=True, normalize=False)" in of_2.python()


# -- of the lab ------------------------------------------------------------------------------


def lab_options(line):
    """What the lab's own command line makes of a line: the verb's parameters by name."""
    program, verb, *words = words_of(line, windows=False)
    assert program == "cellrepro"
    return command_named(verb).read(words)


SOURCES = {"tiny.safetensors": ModelSource("tiny.safetensors", "tiny", None)}
SOME = {name: st.just(value) for name, value in Settings().by_name().items()} | {
    "diameter": st.sampled_from([None, 20.5, 1e-05, 1e22]),
    "flow_threshold": st.sampled_from([None, 0.0, 1e-07]),
    "cellprob_threshold": st.sampled_from([-6.0, -1e-05, 0.0]),
    "min_size": st.sampled_from([-1, 15]),
    "normalize.percentile": st.sampled_from([None, (1.0, 99.5), (1e-05, 50.0)]),
    "resample": st.booleans(),
}


@settings(max_examples=30, deadline=None)
@given(condition=st.fixed_dictionaries(SOME), seed=st.sampled_from([None, 0, 7]))
def test_the_labs_line_is_taken_by_the_lab_and_says_all(condition, seed):
    try:
        expected = Settings().replaced(**condition)
    except BadInput:
        return
    whole = {**condition, "model": "tiny.safetensors", "precision": "bfloat16", "cellpose": "4.0.9"}
    setup = LabSetup("cuda", "float32", "fast", seed)
    commands = commands_for("some cells.tif", whole, SOURCES, setup)
    found = lab_options(commands.lab.command)
    assert Settings().replaced(**found["settings"] or {}) == expected
    named = {name: found[name] for name in ("data", "model", "cellpose", "seed", "mode", "profile")}
    assert named == {
        "data": "some cells.tif",
        "model": "tiny.safetensors",
        "cellpose": "4.0.9",
        "seed": seed,
        "mode": "fast",
        "profile": "cpu-bfloat16",
    }
    assert not commands.shell  # Cellpose loads no such network
    assert not commands.python


def test_how_the_image_was_read_is_said_beside_every_line():
    condition = {"model": "cpsam", "precision": "bfloat16", "image.depth": "8 bit"}
    commands = commands_for("cells.tif", condition, {}, LabSetup())
    for line in (commands.shell, commands.lab):
        assert "save the image so first, and give that file: bit depth of the image: 8 bit" in str(
            line
        )
    assert "eval((image >> 8)" in commands.python
    stretched = {**condition, "image.depth": "stretched"}
    assert not undefined_names(commands_for("cells.tif", stretched, {}, LabSetup()).python)


@pytest.mark.parametrize("is_here", [True, False], ids=["in the store", "elsewhere"])
def test_a_network_of_a_store_becomes_a_file_of_cellpose_first(tmp_path, invoke, is_here):
    """Cellpose knows no run by its key: what names one is this lab's own command."""
    run = add_run(Store(tmp_path / "outputs"), [(1, three())])
    (repeat,) = run.repeats
    masks = tmp_path / "cells_masks.tif"
    tifffile.imwrite(masks, squares())
    digest = repeat.manifest.weights.digest
    write_sidecar(masks, {"settings": {}, "model": repeat.name, "model_digest": digest})
    store = tmp_path / ("outputs" if is_here else "other")
    answer = invoke("describe", masks, "--command", "--store", store)
    lines = [line.strip() for line in answer.out.splitlines()]
    segment = next(line for line in lines if line.startswith("cellrepro segment"))
    if is_here:
        (shell,) = (line for line in lines if line.startswith("python -m cellpose"))
        network = parsed(shell, "4.2.1.1").pretrained_model
        assert repeat.name not in shell
        assert not any(repeat.name in line for line in lines if line.startswith("masks = "))
        export = lines[lines.index(shell) - 1]
        assert lab_options(export)["store"]
        words = words_of(export, windows=False)
        assert words[1:4] == ["export", repeat.name, network]
        assert Path(lab_options(segment)["model"]).samefile(repeat.weights)
    else:  # it may be a small network, which Cellpose does not load
        assert lab_options(segment)["model"] == "MODEL"
        assert not any(line.startswith(("python", "masks = ")) for line in lines)


@pytest.mark.parametrize("is_here", [True, False], ids=["in the store", "elsewhere"])
def test_explain_asks_for_a_network_that_is_in_no_store_here(tmp_path, invoke, is_here):
    run = add_run(Store(tmp_path / "outputs"), [(1, three())])
    (repeat,) = run.repeats
    sides = [tmp_path / "a_masks.tif", tmp_path / "b_masks.tif"]
    without_first = np.where(squares() == 1, 0, squares())
    made = ((squares(), 30), (without_first, 45))
    for masks, (labels, diameter) in zip(sides, made, strict=True):
        tifffile.imwrite(masks, labels)
        settings = {"diameter": diameter}
        digest = repeat.manifest.weights.digest
        write_sidecar(masks, {"settings": settings, "model": repeat.name, "model_digest": digest})
    store = tmp_path / ("outputs" if is_here else "other")
    answer = invoke("explain", *sides, "--store", store)
    (hint,) = (line for line in answer.out.splitlines() if "to find out: " in line)
    assert ("--model MODEL" in hint) != is_here


# -- carried out -----------------------------------------------------------------------------


def test_a_network_of_this_folders_store_is_named_by_its_run(small_store, tmp_path, monkeypatch):
    """As a user types it; of any other store by the path that holds it."""
    condition = {"model": "net", "precision": "float32"}
    sources = {"net": ModelSource("net", "tiny", small_store.weights)}

    def network():
        command = commands_for("cells.tif", condition, sources, LabSetup()).lab.command
        words = words_of(command, windows=False)
        return words[words.index("--model") + 1]

    monkeypatch.chdir(small_store.root.parent)
    assert network() == f"{small_store.key[:8]}/0"
    assert Store("outputs").find(network()).weights.samefile(small_store.weights)
    monkeypatch.chdir(tmp_path)
    assert network() == str(small_store.weights)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of Cellpose's own steps
def test_both_lines_of_cellpose_make_the_same_masks(
    small_store, tmp_path, monkeypatch, generators_free
):
    """By Cellpose's own command line, in whose network a small encoder stands."""
    from cellpose import __main__ as command_line
    from cellpose import models
    from safetensors.torch import load_file

    from cellrepro.model import encoders, network

    monkeypatch.chdir(tmp_path)
    torch.save(load_file(small_store.weights), "net.pth")
    (file,) = (f for f in (small_store.data / "test").iterdir() if "_masks" not in f.name)
    tifffile.imwrite("cells.tif", tifffile.imread(file))
    chosen = {"diameter": 24.0, "flow_threshold": None, "cellprob_threshold": -1e-05}
    condition = {**chosen, "min_size": 5, "model": "net.pth", "precision": "bfloat16"}
    source = ModelSource("net.pth", "cellpose", tmp_path / "net.pth")
    commands = commands_for("cells.tif", condition, {"net.pth": source}, LabSetup())
    words = words_of(commands.shell.command, windows=False)
    names = {}
    tiny = encoders.ENCODERS["tiny"]
    monkeypatch.setattr(models, "CPSAM", functools.partial(models.CPSAM, ps=tiny.patch))
    with network.encoder_in_place(tiny):
        exec(commands.python, names)
        monkeypatch.setattr("sys.argv", ["cellpose", *words[3:], "--save_tif"])
        command_line.main()
    by_shell = tifffile.imread("cells_cp_masks.tif")
    assert names["masks"].max() > 3
    assert np.array_equal(by_shell, names["masks"])
