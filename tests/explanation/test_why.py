"""Why two results differ, as it is said first: the likely cause, the found one, and none."""

import itertools
import re
import shlex

import numpy as np
import pytest
import tifffile

from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.fit import Fit
from cellrepro.explanation.recorded_cause import FileEvidence, why_from_files
from cellrepro.explanation.settings_of_both import SettingOfBoth
from cellrepro.explanation.trials import Gap
from cellrepro.run.masks_folder import write_sidecar
from cellrepro.store.store import Store
from samebits.words import amount
from stores import TRUTH, add_run, squares, three

A = np.zeros((60, 60), np.uint16)
A[4:20, 4:20] = 1
A[30:50, 8:40] = 2
B = A.copy()
B[30:50, 24:40] = 3
USUAL = {
    "diameter": None,
    "flow_threshold": 0.4,
    "cellprob_threshold": 0.0,
    "normalize_params": {"normalize": True, "percentile": [1.0, 99.0]},
    "restore": None,
    "ratio": 1.0,
}


@pytest.fixture
def gui(tmp_path):
    """Write a file as Cellpose's GUI does; returns its path."""

    def write(name, masks, **fields):
        content = {
            "masks": masks,
            "outlines": np.zeros_like(masks),
            "filename": f"{name}.tif",
            "ismanual": np.zeros(int(masks.max()), bool),
            "manual_changes": [],
            "model_path": "/home/me/.cellpose/models/cpsam",
        }
        path = tmp_path / f"{name}_seg.npy"
        np.save(path, content | USUAL | fields, allow_pickle=True)
        return path

    return write


@pytest.fixture
def script(tmp_path):
    """Write masks as a script does, which records nothing of how they were made."""

    def write(name, masks, **tags):
        path = tmp_path / f"{name}_masks.tif"
        tifffile.imwrite(path, masks, **tags)
        return path

    return write


@pytest.fixture
def compared(invoke):
    """Compare two files; returns the second line and the cause."""

    def ask(a, b):
        line = invoke("compare", a, b).out.splitlines()[1].strip()
        return line, invoke("compare", a, b, "--json").json["cause"]

    return ask


# -- from files ------------------------------------------------------------------------------


def test_a_value_that_one_side_records_and_is_not_usual_is_likely(gui, script, compared, invoke):
    sides = gui("a", A, diameter=42.4), script("b", B)
    line, cause = compared(*sides)
    assert line == "likely: diameter; A records 42.4, B nothing (the usual value is 30)"
    told = {"cells": None, "images": None}
    assert cause == {"name": "diameter", "a": 42.4, "b": "?", "confirmed": False} | told
    assert "B records 42.4" in compared(*sides[::-1])[0]
    lines = invoke("compare", *sides).out.splitlines()
    assert lines[2].startswith("    to find out: cellrepro compare ")
    assert lines[2].endswith(" --image IMAGE --model MODEL")
    assert "IMAGE" in lines[3]
    assert "MODEL" in lines[3]
    explained = invoke("explain", *sides)
    assert explained.out.splitlines()[0] == line
    assert invoke("explain", *sides, "--json").json["cause"] == cause


@pytest.mark.parametrize("is_here", [True, False], ids=["here", "moved"])
def test_the_command_names_image_and_network_that_are_recorded_and_here(
    tmp_path, monkeypatch, invoke, is_here
):
    """As a user in the folder of the images would type them."""
    monkeypatch.chdir(tmp_path)
    image, network = tmp_path / "raw" / "cells.tif", tmp_path / "mine.safetensors"
    if is_here:
        image.parent.mkdir()
        tifffile.imwrite(image, A)
        network.write_bytes(b"weights")
    of_both = {"filename": str(image), "model": network.name, "model_path": str(network)}
    for name, masks, diameter in (("a", A, 30), ("b", B, 40)):
        path = tmp_path / f"{name}_masks.tif"
        tifffile.imwrite(path, masks)
        write_sidecar(path, {"settings": {"diameter": diameter}, **of_both})
    command = invoke("compare", "a_masks.tif", "b_masks.tif").out.splitlines()[2]
    given = "raw/cells.tif --model mine.safetensors" if is_here else "IMAGE --model MODEL"
    assert command.endswith(f" --image {given}")


@pytest.mark.parametrize("name", ["q" * 5000, "a\0b", "/"], ids=["too long", "a zero", "a folder"])
def test_a_recorded_path_that_is_none_takes_no_answer_away(tmp_path, invoke, name):
    for side, masks, diameter in (("a", A, 30), ("b", B, 40)):
        path = tmp_path / f"{side}_masks.tif"
        tifffile.imwrite(path, masks)
        record = {"settings": {"diameter": diameter}, "filename": name, "model": "mine"}
        write_sidecar(path, {**record, "model_path": name})
    sides = (tmp_path / "a_masks.tif", tmp_path / "b_masks.tif")
    for command in ("compare", "explain"):
        answer = invoke(command, *sides)
        assert (answer.code, answer.err) == (1, "")
        assert " --image IMAGE" in answer.out


def test_of_two_recorded_images_none_is_proposed(gui, script, invoke, tmp_path):
    a, b = gui("a", A, diameter=42.4), gui("b", B, diameter=30.0)
    tifffile.imwrite(tmp_path / "a.tif", A)
    one = invoke("compare", a, script("c", B)).out.splitlines()[2]
    assert f" --image {tmp_path / 'a.tif'} " in one
    explained = invoke("explain", a, tmp_path / "c_masks.tif").out.splitlines()[1]
    assert f" --image {tmp_path / 'a.tif'} " in explained
    tifffile.imwrite(tmp_path / "b.tif", A)
    assert " --image IMAGE " in invoke("compare", a, b).out.splitlines()[2]


def test_what_both_record_comes_before_what_one_records(gui, compared, invoke):
    a = gui("a", A, diameter=42.4, cellprob_threshold=0.0, flow_threshold=0.4)
    b = gui("b", B, diameter=30.0, cellprob_threshold=-2.0, flow_threshold=0.4)
    line, cause = compared(a, b)
    assert line == "likely: diameter; A records 42.4, B 30"
    assert "\n    what else may be the cause: cellprob_threshold\n" in invoke("compare", a, b).out
    assert (cause["a"], cause["b"], cause["confirmed"]) == (42.4, 30.0, False)


def test_of_folders_the_command_is_of_the_image_that_is_given(tmp_path, script, invoke):
    """Also where another image differs most; a network without it gets a ready command."""
    least = A.copy()
    least[10, 10] = 0
    for folder, masks in (("a", (A, A)), ("b", (B, least))):
        (tmp_path / folder).mkdir()
        for name, labels in zip(("most", "least"), masks, strict=True):
            script(f"{folder}/{name}", labels)
    image = tmp_path / "least.tif"
    tifffile.imwrite(image, np.where(A, 200, 20).astype(np.uint8))
    sides = tmp_path / "a", tmp_path / "b"
    words = [str(folder / "least_masks.tif") for folder in sides]
    for_one = shlex.join([*words, "--image", str(image), "--model"])
    assert f"cellrepro compare {for_one} MODEL" in invoke("compare", *sides, "--image", image).out
    refused = invoke("compare", *sides, "--model", "cpsam", "--image", tmp_path)
    assert f"cellrepro compare {for_one} cpsam" in refused.err


NO_CAUSE = {
    "another file name": {"filename": "elsewhere.tif"},
    "another path of one network": {"model_path": "C:\\models\\cpsam"},
    "Cellpose's usual diameter, written": {"diameter": 30.0},
    "its usual percentiles, not written": {"normalize_params": {"normalize": True}},
}


@pytest.mark.parametrize("fields", NO_CAUSE.values(), ids=NO_CAUSE)
def test_what_changes_no_cell_is_no_cause(gui, compared, fields):
    line, cause = compared(gui("a", A), gui("b", B, **fields))
    assert (line, cause) == ("why: not known, as nothing that is recorded tells", None)


def test_two_programs_that_saved_files_are_no_cause(script, compared):
    sides = script("a", A, software="Fiji"), script("b", B, description="masks of Tuesday")
    assert compared(*sides) == ("why: not known, as neither file records its settings", None)


def test_usual_values_of_one_side_are_no_cause(gui, script, compared):
    assert compared(gui("a", A), script("b", B)) == (
        "why: not known, as nothing that is recorded tells",
        None,
    )


def test_of_two_folders_the_image_that_differs_most_tells(gui, tmp_path, invoke):
    for folder, diameter, masks in (("gui", 42.4, A), ("script", 30.0, B)):
        (tmp_path / folder).mkdir()
        for name, labels in (("same", A), ("other", masks)):
            path = gui(f"{folder}/{name}", labels, diameter=diameter)
            assert path.is_file()
    answer = invoke("compare", tmp_path / "gui", tmp_path / "script")
    assert answer.out.splitlines()[1].startswith("  likely: diameter; ")
    assert answer.out.splitlines()[1].endswith("; A records 42.4, B 30")
    assert "other_seg.npy" in answer.out.splitlines()[2]


def smaller(labels):
    """Cells without their outermost pixels."""
    inside = np.ones(labels.shape, bool)
    for axis in (0, 1):
        for step in (1, -1):
            inside &= np.roll(labels, step, axis) == labels
    return np.where(inside, labels, 0)


CELLS = np.zeros((96, 96), np.uint16)
for number, side in enumerate([5, 6, 7, 12, 13, 14, 15, 16, 17], start=1):
    row, column = divmod(number - 1, 3)
    CELLS[5 + 30 * row : 5 + 30 * row + side, 5 + 30 * column : 5 + 30 * column + side] = number
WITHOUT_SMALL = np.where(CELLS <= 3, 0, CELLS)
WITHOUT_LARGE = np.where(CELLS >= 8, 0, CELLS)
FOLDERS = {
    "smaller in all": ([smaller(CELLS)] * 3 + [CELLS], ("outlines", 3, 3, True)),
    "smaller in some": (
        [smaller(CELLS)] * 2 + [WITHOUT_LARGE, CELLS], ("outlines", 2, 3, True),
    ),
    "smaller in all, and cells are lost": (
        [np.where(CELLS >= 6, 0, smaller(CELLS))] * 2, ("outlines", 2, 2, False),
    ),
    "small cells lost in all": ([WITHOUT_SMALL] * 3, ("min_size", 3, 3, False)),
    "in some, and the others have none as small": (
        [WITHOUT_SMALL] * 2 + [np.where(WITHOUT_SMALL == 9, 0, WITHOUT_SMALL)],
        ("min_size", 2, 3, False),
    ),
    "in some, and an equal image keeps them": ([WITHOUT_SMALL] * 2 + [CELLS], None),
    "in others than are smaller, which keep them": (
        [smaller(CELLS)] * 2 + [WITHOUT_SMALL] * 2, ("outlines", 2, 4, True),
    ),
    "in one, and the others keep smaller ones": (
        [WITHOUT_SMALL] + [smaller(CELLS)] * 2, ("outlines", 2, 3, True),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("of_b", "expected"), FOLDERS.values(), ids=FOLDERS)
def test_a_cause_of_two_folders_is_tested_on_every_image(script, tmp_path, invoke, of_b, expected):
    """What one image shows and another one contradicts is no cause."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    for number, masks in enumerate(of_b):
        script(f"a/{number}", CELLS)
        script(f"b/{number}", masks)
    cause = invoke("compare", tmp_path / "a", tmp_path / "b", "--json").json["cause"]
    if cause is not None:
        cause = (cause["name"], cause["images"]["n"], cause["images"]["of"], cause["confirmed"])
    assert cause == expected
    if expected is None or expected[0] == "outlines":
        said = invoke("compare", tmp_path / "a", tmp_path / "b").out
        assert "min_size" not in said.splitlines()[1]  # which other images contradict
        n_without = sum(masks is WITHOUT_SMALL for masks in of_b)
        lacking = f"in {amount(n_without, 'image')} B lacks the {3 * n_without} smallest cells of A"
        assert (lacking in said) == (n_without > 0)
        assert ("so that no min_size explains it" in said) == (n_without > 0)


def test_a_setting_that_only_some_images_record_is_counted(gui, tmp_path, invoke):
    for folder, diameter, masks in (("gui", 42.4, A), ("script", 30.0, B)):
        (tmp_path / folder).mkdir()
        for name in ("0", "1", "2"):
            gui(f"{folder}/{name}", masks, diameter=30.0 if name == "2" else diameter)
    cause = invoke("compare", tmp_path / "gui", tmp_path / "script", "--json").json["cause"]
    assert (cause["name"], cause["images"]) == ("diameter", {"n": 2, "of": 3})


def test_a_long_value_is_cut(gui, compared):
    line, _ = compared(gui("a", A, model_path="x" * 5000), gui("b", B))
    assert line.startswith("likely: model; A records xxxx")
    assert len(line) < 200


def test_a_cell_that_was_split_is_not_the_same_in_every_pixel(script, invoke):
    a = np.kron(np.arange(1, 21, dtype=np.uint16).reshape(4, 5), np.pad(np.ones((8, 8), int), 2))
    b = np.where((a == 3) & (np.indices(a.shape)[0] % 12 > 5), 99, a)
    b[b == 7] = 0
    told = invoke("compare", script("a", a), script("b", b)).out
    assert "20 cells in A, 20 in B: 18 kept" in told
    assert "18 cells are the same in every pixel" in told


def test_equal_masks_have_no_cause(gui, invoke):
    sides = gui("a", A, diameter=42.4), gui("b", A, diameter=30.0)
    assert invoke("compare", *sides, "--json").json["cause"] is None
    assert "likely" not in invoke("compare", *sides).out


def test_a_diameter_of_one_side_does_not_explain_that_the_other_has_no_cell(gui, script, compared):
    assert compared(gui("a", A, diameter=42.4), script("b", 0 * A))[1] is None


def test_what_the_masks_prove_is_found(gui, script, compared):
    """Renumbered, wrapped at 8 bits, edited by hand: in spite of a diameter that differs."""
    assert compared(gui("a", A, diameter=42.4), script("b", np.where(A, 3 - A, 0)))[0] == (
        "found: numbers; the same outlines, with different numbers"
    )
    fewer = np.where(A == 2, 0, A)
    edit = ["09/22/2023, 10:03:00", "removed mask", [*np.nonzero(A == 2)]]
    line, cause = compared(gui("c", fewer, manual_changes=[edit], diameter=42.4), script("d", A))
    assert line.startswith("found: edits by hand; but for cells drawn or removed by hand")
    assert (cause["name"], cause["a"], cause["b"], cause["confirmed"]) == (
        "edits by hand",
        1,
        0,
        True,
    )
    many = np.zeros((120, 120), np.uint16)
    many[::3, ::3] = np.arange(1, 1601).reshape(40, 40)
    line, cause = compared(script("e", many), script("f", many.astype(np.uint8)))
    assert (cause["name"], "modulo 256" in line) == ("numbers", True)


def test_small_cells_that_one_side_lacks_are_named_with_their_size(script, compared):
    cells = np.zeros((60, 60), np.uint16)
    for number, side in enumerate([3, 4, 5, 8, 9, 9], start=1):
        cells[9 * number : 9 * number + side, 4 : 4 + side] = number
    without = np.where(np.isin(cells, [1, 2, 3]), 0, cells)
    said = (
        "B lacks the 3 smallest cells of A, up to 25 pixels, and no other; the smallest cell of B"
        " has 54 pixels"
    )
    line, cause = compared(script("a", cells), script("b", without))
    assert line.startswith(f"likely: min_size; {said}")
    assert not cause["confirmed"]
    others = np.where(np.isin(cells, [1, 2, 5]), 0, cells)
    assert compared(script("c", cells), script("d", others))[1] is None


def test_a_cause_says_how_many_of_the_changed_cells_it_explains(gui, script, compared):
    without_two = np.where(CELLS >= 8, 0, CELLS)
    edit = ["09/22/2023, 10:03:00", "removed mask", [*np.nonzero(CELLS == 9)]]
    line, cause = compared(gui("a", without_two, manual_changes=[edit]), script("b", CELLS))
    assert (cause["name"], cause["cells"]) == ("edits by hand", {"n": 1, "of": 2})
    assert "explains 1 of 2 changed cells" in line


def evidence(*settings, **fields):
    return FileEvidence(
        Verdict.DIFFERENT, tuple(SettingOfBoth(*setting) for setting in settings), **fields
    )


RANKED = {
    "one network under two names": (
        evidence(("model", "x", "y"), ("weights_in_memory", "0" * 64, "0" * 64)), None,
    ),
    "two networks under one name": (
        evidence(("model", "x", "x"), ("model_digest", "0" * 64, "1" * 64)), "model_digest",
    ),
    "two networks of a store": (
        evidence(("model", f"{16 * 'a'}/cpu/0", f"{16 * 'b'}/cpu/0"), ("precision", "x", "y")),
        "model",
    ),
    "two networks by name": (
        evidence(("diameter", 20, 30), ("model", "x", "y"), ("model_digest", "0", "1")), "model",
    ),
    "two generations": (
        evidence(("diameter", 20.0, 30.0), generations=("3", "4")), "cellpose",
    ),
    "30 is not none before Cellpose 4": (
        evidence(("diameter", None, 30.0), generations=("3", "3")), "diameter",
    ),
    "numbers that wrapped": (
        evidence(("diameter", 20.0, 30.0), number_rule="B = A modulo 256"), "numbers",
    ),
    "a device": (evidence(("device", "cuda", "cpu"), ("numpy", "1", "2")), "device"),
    "a device of one side": (evidence(("device", "cuda", "?"), ("model", "x", "?")), None),
    "stitched otherwise": (
        evidence(("diameter", 20.0, "?"), stitching="planes were stitched"), "stitching",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("told", "name"), RANKED.values(), ids=RANKED)
def test_what_changes_most_is_named_first(told, name):
    cause = why_from_files(told, find_out="").cause
    assert (None if cause is None else cause.name) == name


# -- of runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 1), ("profile", "cpu-1thread"), ("mode", "fast")]
)
def test_of_two_runs_the_field_that_differs_is_named(tmp_path, invoke, name, value):
    store = Store(tmp_path)
    usual = {"mode": "strict", "seed": 0}
    a = add_run(store, [(1, three())], **usual).key
    b = add_run(store, [(2, three(squares(second=False)))], **usual | {name: value}).key
    answer = invoke("compare", f"{a}/0", f"{b}/0", "--store", tmp_path, "--json")
    assert answer.json["cause"]["name"] == name
    assert not answer.json["cause"]["confirmed"]
    said = invoke("compare", f"{a}/0", f"{b}/0", "--store", tmp_path).out
    assert said.splitlines()[1].startswith(f"  likely: {name}; A records ")
    row = next(line for line in said.splitlines() if line.split()[1:2] == ["lost"])
    assert row.split()[0] == "img_a"  # of three images that were compared


LESS, LEAST = three(squares(second=False)), three(squares(second=False, grown=4))
BESIDE = {
    "nothing else": ([], None),
    "one that differs in the mode has the masks of A": ([(three(), "cpu", "fast")], "profile"),
    "one that differs in the profile has the masks of A": (
        [(three(), "cpu-bfloat16", "strict")], "mode",
    ),
    "one that differs in the profile has the masks of B": (
        [(LESS, "cpu-bfloat16", "strict")], "profile",
    ),
    "one that differs in the mode has others": ([(LEAST, "cpu", "fast")], "profile"),
    "one that differs in both is another network": ([(LEAST, "cpu-1thread", "off")], None),
}  # fmt: skip


@pytest.mark.parametrize(("others", "name"), BESIDE.values(), ids=BESIDE)
def test_of_two_settings_the_masks_of_other_runs_decide(tmp_path, invoke, others, name):
    """Masks of a run that differs in one setting alone show what that setting does."""
    store = Store(tmp_path)
    a = add_run(store, [(1, three())], mode="strict").key
    b = add_run(store, [(2, LESS)], profile="cpu-bfloat16", mode="fast").key
    keys = [
        add_run(store, [(3, masks)], profile=profile, mode=mode).key
        for masks, profile, mode in others
    ]
    answer = invoke("compare", f"{a}/0", f"{b}/0", "--store", tmp_path, "--json")
    said = invoke("compare", f"{a}/0", f"{b}/0", "--store", tmp_path).out
    said = said.partition("to find out")[0]  # a line for each statement
    cause = answer.json["cause"]
    assert (None if cause is None else cause["name"]) == name
    assert "profile" in said
    assert "mode" in said
    if name is not None:
        assert keys[0][:8] in said


def test_every_pair_of_a_store_has_one_cause_in_compare_and_in_explain(tmp_path, invoke):
    store = Store(tmp_path)
    kept = [(1, three()), (2, LESS)]
    runs = [
        add_run(store, kept, mode="fast"),
        add_run(store, kept[1:], mode="fast", seed=1),
        add_run(store, kept[1:], profile="cpu-bfloat16", epochs=4),
        add_run(store, [(None, three(LESS["img_a"], img_c=TRUTH))], task="segment"),
    ]  # fmt: skip
    names = [f"{run.key}/{each.name.rpartition('/')[2]}" for run in runs for each in run.repeats]
    causes = set()
    for a, b in itertools.combinations(names, 2):
        said = [
            invoke(verb, a, b, "--store", tmp_path, "--json").json
            for verb in ("compare", "explain")
        ]
        compared, explained = (each["cause"] for each in said)
        if said[1]["verdict"] == "different":  # the masks do, not the weights alone
            assert compared == explained, (a, b)
            causes.add(compared and compared["name"])
    assert {"chance", "seed", "model"} <= causes
    assert "task" not in causes


def test_of_repeats_of_one_run_nothing_recorded_tells(tmp_path, invoke):
    key = add_run(Store(tmp_path), [(1, three()), (2, three(squares(second=False)))]).key
    answer = invoke("compare", key, key, "--store", tmp_path)
    assert "  why: not known, as both were asked for the same, in the same" in answer.out
    (command,) = re.findall("to find out: cellrepro (diverge .*)", answer.out)
    assert invoke(*shlex.split(command)).code == 1  # in its store, which is not the default one
    explained = invoke("explain", key, key, "--store", tmp_path).out  # a key twice: repeats 0 and 1
    assert re.findall(r"^([AB]): \S+/(\d) \(", explained, re.MULTILINE) == [("A", "0"), ("B", "1")]
    assert explained.startswith("why: not known, as both were asked for the same")


@pytest.mark.parametrize(
    ("exact", "stopped", "is_doubted"), [(0, False, True), (1, False, False), (0, True, False)]
)
def test_a_network_is_doubted_where_all_was_tried_and_no_cell_made(exact, stopped, is_doubted):
    fit = Fit({}, {}, Gap(9, 99), 20, 10, exact, 100, 12, n_values=12, stopped=stopped)
    assert fit.makes_no_cell == is_doubted


# -- with a network --------------------------------------------------------------------------


def test_a_network_without_an_image_is_refused(gui, script, invoke):
    sides = gui("a", A), script("b", B)
    refused = invoke("compare", *sides, "--model", "cpsam")
    assert (refused.code, refused.out) == (2, "")
    assert "--image" in refused.err
    idle = invoke("compare", *sides, "--minutes", "3")
    assert idle.code == 2
    assert "--minutes would do nothing without --model" in idle.err


def discs(*, radius=10, cut_at=None):
    """Twenty-five round cells; with ``cut_at`` those across that column are two each."""
    rows, columns = np.mgrid[:160, :160]
    masks = np.zeros((160, 160), np.int32)
    centres = itertools.product(range(16, 160, 32), range(16, 160, 32))
    for number, (y, x) in enumerate(centres, start=1):
        masks[(rows - y) ** 2 + (columns - x) ** 2 <= (radius + number % 3) ** 2] = number
    if cut_at is not None:
        across = set(masks[:, cut_at]) & set(masks[:, cut_at - 1]) - {0}
        behind = columns >= cut_at
        for number in across:
            masks[(masks == number) & behind] = masks.max() + 1
    return masks


@pytest.mark.parametrize("cut_side", ["A", "B"])
def test_blocks_that_were_put_together_are_the_likely_cause(script, invoke, cut_side):
    """Told by the straight line at which cells of one side end; no network makes it again."""
    whole = script("whole", discs())
    blocks = script("blocks", discs(cut_at=80))
    sides = (blocks, whole) if cut_side == "A" else (whole, blocks)
    line, find_out = (line.strip() for line in invoke("compare", *sides).out.splitlines()[1:3])
    other_side = "B" if cut_side == "A" else "A"
    assert line.startswith(
        f"likely: straight cuts; 5 of {other_side}'s cells are cut in {cut_side} along one straight"
    )
    assert "(x 80)" in line
    assert find_out == f"to find out: cellrepro tiles --masks {blocks}"
    assert "x 80" in invoke(*find_out.split()[4:]).out
    explained = [line.strip() for line in invoke("explain", *sides).out.splitlines()]
    assert explained[:2] == [line, find_out]


def test_a_line_through_one_cell_is_named_where_another_line_shows_blocks(script, invoke):
    blocks = discs(cut_at=80)
    rows, _ = np.mgrid[:160, :160]
    blocks[(blocks == 1) & (rows >= 16)] = blocks.max() + 1
    line = invoke("compare", script("whole", discs()), script("blocks", blocks)).out.splitlines()[1]
    assert "; 6 of A's cells are cut in B along straight lines (x 80, y 16): B was" in line


def test_cells_that_are_split_anyhow_are_no_cuts(script, invoke):
    split = discs()
    for number in (3, 9, 14, 20, 22):  # each at a place of its own
        ys, xs = np.nonzero(split == number)
        split[ys[xs > xs.mean() + number % 4], xs[xs > xs.mean() + number % 4]] = split.max() + 1
    out = invoke("compare", script("whole", discs()), script("split", split)).out
    assert "5 split" in out
    assert "straight" not in out


def test_lost_numbers_are_not_looked_for_with_a_network(script, invoke):
    """A map of the foreground is saved after the masks were made."""
    touching = discs(radius=15)
    lost = ((touching > 0) * 255).astype(np.uint8)
    out = invoke("compare", script("touching", touching), script("lost", lost)).out
    assert "likely: numbers" in out
    assert "to find out" not in out
