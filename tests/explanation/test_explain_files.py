"""Why two results differ, as far as their files tell: no image, no network, nothing segmented."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from scipy.ndimage import distance_transform_edt, maximum_filter, minimum_filter, zoom
from test_recorded_settings import FILES

import cellrepro
from cellrepro.explanation.crops import part_by_masks
from cellrepro.images.image_file import read_labels
from cellrepro.images.synthetic_sets import labelled_nuclei
from cellrepro.run.masks_folder import write_sidecar
from samebits.errors import BadInput


def seg(name):
    return FILES / f"{name}_seg.npy"


def test_what_two_files_record_is_put_side_by_side(invoke):
    answer = invoke("explain", seg("script_2.3.2"), seg("gui_3.1.1.2"))
    lines = answer.out.splitlines()
    assert answer.code == 0  # the same masks in both
    table = [line.split() for line in lines if line.startswith(("differs", "only", "same"))]
    assert table[0] == ["differs", "diameter", "42.4", "30.0"]
    assert ["only", "B", "restore", "not", "recorded", "denoise_cyto3"] in table
    assert "the same in both: channels [2, 1]" in answer.out
    assert "recorded of neither" not in answer.out  # all that usually decides is recorded


def test_two_generations_share_no_network(invoke):
    said = "A is of Cellpose 3 and B of Cellpose 4: a network of one does not load in the other"
    assert said in invoke("explain", seg("gui_3.1.1.2"), seg("gui_4.2.1.1")).out
    assert "does not load" not in invoke("explain", seg("gui_2.3.2"), seg("gui_3.1.1.2")).out


COMMANDS = {
    "script_2.3.2": (
        "python -m cellpose --image_path script_2.3.2.tif --pretrained_model MODEL --chan 2 "
        "--chan2 1 --diameter 42.4",
        "models.CellposeModel(pretrained_model='MODEL')"
        ".eval(image, channels=[2, 1], diameter=42.4)",
        ["model"],
    ),
    "gui_2.3.2": (
        "python -m cellpose --image_path gui_2.3.2.tif --pretrained_model "
        r"C:\Users\me\.cellpose\models\cyto2torch_0 --chan 2 --chan2 1 --diameter DIAMETER "
        "--cellprob_threshold -1.5 --flow_threshold 0",
        r"models.CellposeModel(pretrained_model='C:\\Users\\me\\.cellpose\\models\\cyto2torch_0')"
        ".eval(image, channels=[2, 1], diameter=DIAMETER, cellprob_threshold=-1.5, "
        "flow_threshold=None)",
        ["diameter"],
    ),
    "gui_3.1.1.2": (
        "python -m cellpose --image_path gui_3.1.1.2.tif --pretrained_model "
        "/home/me/.cellpose/models/cyto3 --restore_type denoise_cyto3 --chan 2 --chan2 1 "
        "--flow_threshold 0.7 --cellprob_threshold -1.5 --diameter 30 --norm_percentile 1.0 99.5",
        "denoise.CellposeDenoiseModel(pretrained_model='/home/me/.cellpose/models/cyto3', "
        "restore_type='denoise_cyto3').eval(image, channels=[2, 1], flow_threshold=0.7, "
        "cellprob_threshold=-1.5, diameter=30, "
        "normalize={'percentile': (1.0, 99.5), 'sharpen_radius': 2.0})",
        [],
    ),
    "gui_4.2.1.1": (
        "python -m cellpose --image_path gui_4.2.1.1.tif --pretrained_model "
        "/home/me/.cellpose/models/cpsam --flow_threshold 0.7 --cellprob_threshold -1.5 "
        "--norm_percentile 1.0 99.5",
        "models.CellposeModel(pretrained_model='/home/me/.cellpose/models/cpsam').eval(image, "
        "flow_threshold=0.7, cellprob_threshold=-1.5, diameter=None, "
        "normalize={'percentile': (1.0, 99.5), 'sharpen_radius': 2.0})",
        [],
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_generation_has_its_own_words(invoke, name):
    shell, python, missing = COMMANDS[name]
    answer = invoke("describe", seg(name), "--command")
    lines = [line.strip() for line in answer.out.splitlines()]
    assert shell in lines
    assert f"masks = {python}[0]" in lines
    commands = invoke("describe", seg(name), "--json").json["commands"]
    assert commands["not_recorded"] == missing


WAYS_TO_ANOTHER_SIZE = {
    "enlarged": (
        lambda masks: np.kron(masks, np.ones((2, 2), np.uint16)),
        "B is 2 times as large as A along Y and X",
    ),
    "every third pixel": (
        lambda masks: masks[::3, ::3],
        "A is 3 times as large as B along Y and X",
    ),
    "the middle of three": (
        lambda masks: masks[1::3, 1::3],
        "A is 3 times as large as B along Y and X",
    ),
    "by SciPy": (
        lambda masks: zoom(masks, 2 / 3, order=0, mode="nearest"),
        "A is 1.5 times as large as B along Y and X",
    ),
    "enlarged by SciPy": (
        lambda masks: zoom(masks, 1.37, order=0),
        "B is 1.37 times as large as A along Y and X",
    ),
    "unevenly": (
        lambda masks: masks[np.arange(470) * 240 // 470][:, np.arange(480) // 2],
        "B has 1.96 times as many rows as A and 2 times as many columns",
    ),
    "lower and wider": (
        lambda masks: masks[np.arange(187) * 240 // 187][:, np.arange(320) * 240 // 320],
        "B has 0.779 times as many rows as A and 1.33 times as many columns",
    ),
}


@pytest.mark.parametrize(
    ("resize", "said"), WAYS_TO_ANOTHER_SIZE.values(), ids=WAYS_TO_ANOTHER_SIZE
)
def test_masks_of_two_sizes_are_compared_at_one(invoke, tmp_path, resize, said):
    """What differs beside the size is counted in both, and nothing where nothing does."""
    masks = labelled_nuclei(1, shape=(240, 240), n_nuclei=15, diameter=30.0)[0].masks
    n_cells = len(np.unique(masks)) - 1
    other = resize(masks.astype(np.uint16))
    without_two = np.where(np.isin(other, [1, 2]), 0, other)
    a, b, c = (tmp_path / f"{name}.tif" for name in "abc")
    for path, labels in ((a, masks), (b, other), (c, without_two)):
        tifffile.imwrite(path, labels.astype(np.uint16))
    answer = invoke("explain", a, b)
    same = f"found: two sizes; {said}, and holds the same {n_cells} cells"
    assert (answer.code, answer.out.splitlines()[0]) == (1, same)
    assert "cannot say" not in answer.out
    answer = invoke("explain", a, c)
    differ = f"2 cells differ besides ({n_cells} cells in A, {n_cells - 2} in B)"
    assert answer.out.splitlines()[0] == f"likely: two sizes; {said}, and {differ}"
    assert "cannot say why" not in answer.out
    assert answer.out.count("  lost ") == 2
    refused = invoke("compare", a, c)
    assert (refused.code, f"{said}, and {differ}" in refused.err) == (2, True)
    idle = invoke("explain", a, b, "--model", "cpsam")
    assert (idle.code, idle.out) == (2, "")
    assert "--model would do nothing without --image" in idle.err


@pytest.mark.parametrize(
    ("diameter", "is_other_cause"), [(15.0, False), (30.0, False), (20.0, True)]
)
def test_a_diameter_that_differs_as_the_sizes_do_is_no_other_cause(
    invoke, tmp_path, diameter, is_other_cause
):
    masks = labelled_nuclei(1, shape=(240, 240), n_nuclei=15, diameter=30.0)[0].masks
    half = np.where(np.isin(masks, [1, 2]), 0, masks)[::2, ::2]
    for name, labels, recorded in (("a", masks, 30.0), ("b", half, diameter)):
        path = tmp_path / f"{name}.tif"
        tifffile.imwrite(path, labels.astype(np.uint16))
        write_sidecar(path, {"settings": {"diameter": recorded}})
    answer = invoke("explain", tmp_path / "a.tif", tmp_path / "b.tif").out
    assert answer.startswith("likely: two sizes; A is 2 times as large")
    assert ("what else may be the cause: diameter" in answer) == is_other_cause


def test_a_size_is_said_though_most_cells_differ(invoke, tmp_path):
    """Cells that lie alike are of one image, as with a stricter threshold, though few match."""
    masks = labelled_nuclei(1, shape=(240, 240), n_nuclei=15, diameter=30.0)[0].masks
    stricter = np.where(distance_transform_edt(least_neighbour(masks)) > 6, masks, 0)
    tifffile.imwrite(tmp_path / "a.tif", masks.astype(np.uint16))
    tifffile.imwrite(tmp_path / "b.tif", np.kron(stricter, np.ones((2, 2))).astype(np.uint16))
    first = invoke("explain", tmp_path / "a.tif", tmp_path / "b.tif").out.splitlines()[0]
    assert first.startswith("likely: two sizes; B is 2 times as large as A along Y and X, and ")
    assert "cells differ besides" in first


def test_equal_cells_with_different_records_are_not_left_at_that(invoke, tmp_path):
    masks = labelled_nuclei(1, shape=(240, 240), n_nuclei=15, diameter=30.0)[0].masks
    for name, labels, threshold in (("a", masks, 0.0), ("b", masks, 2.0), ("c", 3 * masks, 0.0)):
        path = tmp_path / f"{name}.tif"
        tifffile.imwrite(path, labels.astype(np.uint16))
        write_sidecar(path, {"settings": {"cellprob_threshold": threshold}})
    a, b, c = (tmp_path / f"{name}.tif" for name in "abc")
    assert "one of the two was not made as it records" in invoke("explain", a, b).out
    renumbered = invoke("explain", a, c).out
    assert "the same cells, with different numbers" in renumbered
    assert "B = A times 3: each cell still has a number of its own" in renumbered


def least_neighbour(masks):
    """The masks without the pixels at which a cell ends."""
    return np.where(minimum_filter(masks, 3) == maximum_filter(masks, 3), masks, 0)


def test_cells_removed_at_the_edge_of_a_crop_are_told(invoke, tmp_path):
    """All that a crop lacks lies at its edge, be it cut out of masks or segmented."""
    whole = labelled_nuclei(1, shape=(256, 256), n_nuclei=40, diameter=20.0)[0].masks
    crop = whole[30:200, 20:190].copy()
    edge = np.unique(np.concatenate([crop[0], crop[-1], crop[:, 0], crop[:, -1]]))
    n_removed = np.count_nonzero(edge)
    crop[np.isin(crop, edge)] = 0
    smaller = np.where(least_neighbour(crop), crop, 0)
    for name, labels in {"whole": whole, "cut": crop, "segmented": smaller}.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", labels.astype(np.uint16))
    for a, b, cropped, whole_one in (("whole", "cut", "B", "A"), ("cut", "whole", "A", "B")):
        answer = invoke("explain", tmp_path / f"{a}.tif", tmp_path / f"{b}.tif").out
        assert answer.splitlines()[0] == (
            f"found: crop of the image; {cropped} is cut out of {whole_one}'s masks without the "
            f"{n_removed} cells at its edge, and the masks are otherwise the same"
        )
        assert f"which is y 30, x 20 of {whole_one}" in answer
    answer = invoke("explain", tmp_path / "whole.tif", tmp_path / "segmented.tif").out
    assert f"all cells that B lacks, {n_removed}, lie at its edge" in answer
    assert "is cut out of" not in answer


def test_masks_with_background_around_them_differ_in_size_alone(invoke, tmp_path):
    masks = labelled_nuclei(1, shape=(240, 240), n_nuclei=15, diameter=30.0)[0].masks
    tifffile.imwrite(tmp_path / "a.tif", masks.astype(np.uint16))
    padded = np.pad(masks, ((10, 10), (0, 40)))
    tifffile.imwrite(tmp_path / "b.tif", padded.astype(np.uint16))
    answer = invoke("explain", tmp_path / "a.tif", tmp_path / "b.tif")
    first = answer.out.splitlines()[0]
    assert (answer.code, "240 × 240 pixels, B 260 × 280" in first) == (0, True)


@pytest.mark.parametrize("whole", ["cells_seg.npy", "script_masks.tif"])
def test_masks_of_another_image_are_no_part(whole):
    """Cells of any two images match by chance where they overlap most."""
    files = Path(__file__).parents[2] / "docs" / "files"
    masks = read_labels(files / whole)
    others = sorted((files / "experiment" / "min_size_15").glob("*_masks.tif"))
    assert len(others) == 16
    for other in others:
        assert part_by_masks(masks, tifffile.imread(other)) is None, other.name


def test_only_what_matches_is_a_crop(invoke, tmp_path):
    """Where the cells of another image overlap most, a few match by chance."""
    whole, other = (
        image.masks for image in labelled_nuclei(2, shape=(256, 256), n_nuclei=40, diameter=20.0)
    )
    results = {
        "whole": whole,
        "crop": whole[30:170, 20:160],
        "crop, one cell lost": np.where(whole == whole[30:170, 20:160].max(), 0, whole)[
            30:170, 20:160
        ],
        "of other": other[30:170, 20:160],
        "other at half its size": other[::2, ::2],
        "other, unevenly": other[::2, np.arange(400) * 256 // 400],
    }
    for name, labels in results.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", labels.astype(np.uint16))

    def explained(name):
        return invoke("explain", tmp_path / "whole.tif", tmp_path / f"{name}.tif").out

    assert "B shows 30 % of the image: rows 30 to 169 and columns 20 to 159" in explained("crop")
    lacking = explained("crop, one cell lost")
    assert lacking.splitlines()[0].startswith(
        "likely: crop of the image; B is cut out of A's masks"
    )
    assert lacking.count("\n  lost ") == 1
    assert "to find out" not in lacking  # by segmenting, of which nothing was cut
    for name in ("of other", "other at half its size", "other, unevenly"):
        answer = explained(name)
        assert answer.startswith("why: not known")
        assert "they may be of two images" in answer.splitlines()[0]
        assert "B shows" not in answer
        assert "to find out" not in answer


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends the signal of Ctrl-C as POSIX does")
def test_a_search_says_how_long_and_leaves_what_it_has(tmp_path):
    masks = np.zeros((128, 128), np.uint16)
    masks[10:30, 10:30], masks[60:90, 60:90] = 1, 2
    tifffile.imwrite(tmp_path / "a.tif", masks)
    tifffile.imwrite(tmp_path / "b.tif", np.where(masks == 1, 0, masks))
    tifffile.imwrite(tmp_path / "image.tif", (50 + 150 * (masks > 0)).astype(np.uint8))
    words = ["a.tif", "b.tif", "--image", "image.tif", "--model", "tiny", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "cellrepro", "explain", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as asked:
        assert asked.stderr is not None
        said = next(line for line in asked.stderr if line.startswith("how long"))
        os.killpg(asked.pid, signal.SIGINT)
        out, said_later = asked.communicate()
    assert re.search(r"or less .* to try .* values for B of .* ends after 10:00 min", said)
    assert "the search ends with what it has found" in said_later
    assert asked.returncode == 130
    found = json.loads(out)
    assert found["interrupted"] is True
    assert found["not_replayed"] is None
    a, b = found["reproduced"]["a"], found["reproduced"]["b"]
    assert (a["stopped"], b["stopped"]) == (True, True)
    assert a["tried"] + b["tried"] < 20


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_a_file_that_is_not_there_is_said_in_the_same_words(invoke, command):
    answer = invoke(command, seg("gui_4.2.1.1"), "nowhere_masks.tif")
    assert answer.code == 2
    expected = "cellrepro: nowhere_masks.tif: no such file; check its spelling and folder\n"
    assert answer.err == expected


@pytest.mark.parametrize("command", ["explain", "compare"])
def test_a_result_is_not_taken_for_the_image_that_it_is_of(invoke, tmp_path, command):
    for name, value in (("a", 1), ("b", 2), ("again", 2)):
        labels = np.zeros((20, 20), np.uint16)
        labels[3:9, value : value + 6] = value
        tifffile.imwrite(tmp_path / f"{name}.tif", labels)
    a, b, again = (tmp_path / f"{name}.tif" for name in ("a", "b", "again"))
    answer = invoke(command, a, b, "--image", again)
    assert answer.code == 2
    assert f"image is {again}, which holds the masks of B, pixel for pixel" in answer.err


def test_a_folder_and_arrays_are_sent_to_what_takes_them(invoke, tmp_path):
    masks = np.ones((4, 4), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", masks)
    answer = invoke("explain", tmp_path, tmp_path / "a.tif")
    assert answer.code == 2
    assert "is a folder; expected one file with masks" in answer.err
    for function in (cellrepro.compare, cellrepro.explain):
        with pytest.raises(BadInput, match=r"a is of the type ndarray; .*compare_masks\(a, b\)"):
            function(masks, masks)


def test_cells_that_stay_equal_tell_which_settings_are_likely(invoke, tmp_path):
    """Where no file records any."""
    whole = labelled_nuclei(1, shape=(200, 200), n_nuclei=20, diameter=20.0)[0].masks
    larger = np.where((np.roll(whole, 2, 0) == 5) & (whole == 0), 5, whole)
    lacking = np.where(np.isin(whole, (5, 9)), 0, whole)
    one_number = 255 * (lacking > 0)
    named = {"whole": whole, "larger": larger, "lacking": lacking, "one_number": one_number}
    for name, labels in named.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", labels.astype(np.uint16))

    def hint(name, command="explain"):
        answer = invoke(command, tmp_path / "whole.tif", tmp_path / f"{name}.tif").out
        return answer.partition("more likely causes: ")[2].partition("\n")[0]

    assert "by hand" in hint("larger")
    assert "flow_threshold" not in hint("larger")  # which adds and removes whole cells alone
    assert "flow_threshold" in hint("lacking")
    assert hint("lacking", command="compare") == hint("lacking")
    assert hint("one_number") == ""  # no setting of Cellpose gives all cells one
