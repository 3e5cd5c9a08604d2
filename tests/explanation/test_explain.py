"""Planted differences between two results of one image: each is named, and what is none is not."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest
import tifffile
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy.ndimage import minimum_filter

from cellrepro.explanation.image_readings import as_read
from cellrepro.explanation.search import Search
from cellrepro.explanation.trials import Trials, Usual
from cellrepro.images.image_file import read_image
from cellrepro.model.evaluator import evaluator
from cellrepro.model.network import build
from cellrepro.model.weight_sources import find_model
from cellrepro.record import recorded
from cellrepro.run.masks_folder import sidecar_of, write_sidecar
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.store.store import Store
from conftest import options
from samebits.digests import file_digest
from samebits.modes import mode_in_force

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")


@pytest.fixture(scope="module")
def made(small_store, tmp_path_factory):
    """Label images of one image, as somebody made them."""
    folder = tmp_path_factory.mktemp("made")
    source = find_model(str(small_store.weights), Store(folder))
    (file,) = (f for f in (small_store.data / "test").iterdir() if "_masks" not in f.name)
    grey = read_image(file)
    images = {
        "grey": grey,
        "colour": np.stack([grey, grey[::-1] // 2, grey.T // 3], axis=-1),
    }
    for name, image in images.items():
        (folder / name).mkdir()
        tifffile.imwrite(folder / name / f"{name}.tif", image)

    def make(name, *, of="grey", dtype="float32", edit=None, read=None, **settings):
        network = build(source, seed=0, device=torch.device("cpu"), dtype=dtype)
        image = as_read(images[of], read or {})
        with mode_in_force("strict", device="cpu"):
            masks = evaluator(network)(image, **Settings(**settings).arguments()).masks
        masks = masks.astype(np.uint16)
        path = folder / f"{name}.tif"
        tifffile.imwrite(path, masks if edit is None else edit(masks))
        return path

    make.folder = folder
    make.image = lambda of: folder / of / f"{of}.tif"
    return make


@pytest.fixture
def explained(made, small_store, invoke):
    def ask(a, b, *, of="grey", code=1, **more):
        given = options(model=small_store.weights, image=made.image(of), **more)
        answer = invoke("explain", a, b, *given, "--json")
        assert answer.code == code, answer.err
        return answer.json

    return ask


CROP = {"image.crop": ((5, 225), (20, 240))}
PLANTED = {"crop": ({"read": CROP}, ["image.crop"])}
LONG = {
    "flow_threshold": ({"flow_threshold": 0.8}, ["flow_threshold"]),
    "diameter": ({"diameter": 20.0}, ["diameter"]),
    "percentile": ({"normalize.percentile": (3.0, 97.0)}, ["normalize.percentile"]),
    "niter": ({"niter": 20}, ["niter"]),
    "least size": ({"min_size": 173}, ["min_size"]),
    "bfloat16": ({"dtype": "bfloat16"}, ["precision"]),
    "8 bit": ({"read": {"image.depth": "8 bit over its range"}}, ["image.depth"]),
    "channels": ({"of": "colour", "read": {"image.channels": "1"}}, ["image.channels"]),
    "two": ({"diameter": 20.0, "min_size": 100}, ["diameter", "min_size"]),
}


@pytest.mark.parametrize(
    "planted", [*PLANTED, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_what_nobody_recorded_is_found(made, explained, planted):
    asked, causes = {**PLANTED, **LONG}[planted]
    of = asked.get("of", "grey")
    usual, other = made(f"usual {of}", of=of), made(planted, **asked)
    found = explained(usual, other, of=of)
    first = found["causes"][0]
    of_masks = {"confirmed": True, "cells": None, "images": None}
    assert found["cause"] == {key: first[key] for key in ("name", "a", "b")} | of_masks
    assert sorted(cause["name"] for cause in found["causes"]) == causes
    assert found["unexplained"] == 0
    if planted == "crop":  # to the pixel, though the masks show only about where
        rows, columns = CROP["image.crop"]
        assert (found["part"]["rows"], found["part"]["columns"]) == ([*rows], [*columns])


def test_a_script_is_made_again_with_the_network_and_the_pixels_that_it_recorded(
    made, small_store, invoke, tmp_path
):
    source = find_model(str(small_store.weights), Store(tmp_path))
    network = build(source, seed=0, device=torch.device("cpu"), dtype="float32")
    model = recorded(evaluator(network).model, tmp_path)
    image = made.image("grey")
    weights = {"path": str(small_store.weights), "digest": file_digest(small_store.weights)}
    for name, flow_threshold in (("a", 0.4), ("b", 0.8)):
        with mode_in_force("strict", device="cpu"):
            masks = model.eval(read_image(image), flow_threshold=flow_threshold, record_as=name)[0]
        tifffile.imwrite(tmp_path / f"{name}_masks.tif", masks)
        record = json.loads((tmp_path / f"{name}_masks.json").read_text(encoding="utf-8"))
        record["networks"][0]["files"] = [weights]
        (tmp_path / f"{name}_masks.json").write_text(json.dumps(record), encoding="utf-8")
    sides = [tmp_path / f"{name}_masks.tif" for name in "ab"]
    found = invoke("explain", *sides, *options(image=image), "--json").json
    assert [cause["name"] for cause in found["causes"]] == ["flow_threshold"]
    assert (found["unexplained"], found["reproduced"]["b"]["pixels_left"]) == (0, 0)
    assert any("is the one that eval received" in remark for remark in found["a"]["remarks"])


def test_compare_with_a_network_puts_the_cause_first(made, small_store, invoke, tmp_path):
    """The same search as that of `explain`, with B made again on the page."""
    usual, other = made("usual grey"), made("flow_threshold", flow_threshold=0.8)
    html = tmp_path / "page.html"
    given = options(model=small_store.weights, image=made.image("grey"), html=html)
    answer = invoke("compare", usual, other, *given)
    _, second, third, fourth, *lines = answer.out.splitlines()
    assert second.startswith("  found: flow_threshold; 0.4 in A, ")
    assert third == "    A's settings with B's flow_threshold make B exactly"
    assert "in B was found by trying" in fourth  # 0.0 does what 0.8 did
    assert lines[0].startswith("  masks: ")
    again = next(line for line in lines if line.startswith("  B again: cellrepro segment "))
    page = html.read_text(encoding="utf-8")
    top = page[page.index('id="why"') : page.index('id="picture"')]
    assert "flow_threshold; 0.4 in A, " in top
    assert "with B&#39;s flow_threshold make B exactly." in top
    assert "What still differs: nothing" in top
    assert "--set flow_threshold=" in re.sub("<[^>]+>", "", top)
    assert "--set flow_threshold=" in again


@pytest.mark.slow
def test_a_window_is_replayed_alone(made, explained, invoke, small_store):
    usual, other = made("usual grey"), made("flow_threshold", flow_threshold=0.8)
    found = explained(usual, other, crop="auto")
    assert [cause["name"] for cause in found["causes"]] == ["flow_threshold"]
    assert found["unexplained"] == 0
    (top, bottom), (left, right) = found["window"]["rows"], found["window"]["columns"]
    assert (bottom - top, right - left) == (200, 200)
    assert 0 < found["reproduced"]["a"]["of_cells"] < 2 * 25
    given = options(model=small_store.weights, image=made.image("grey"))
    for crop, message in (("9", "expected Y,X or Y,X,SIZE"), ("900,9", "expected a place in")):
        refused = invoke("explain", usual, other, *given, *options(crop=crop))
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.err


@pytest.mark.slow
def test_two_changes_that_hide_each_other_are_found(made, small_store):
    """The best diameter beside the usual threshold is another than beside the right one."""
    image = read_image(made.image("grey"))[:144, :144]
    source = find_model(str(small_store.weights), Store(made.folder))

    def trials():
        network = build(source, seed=0, device=torch.device("cpu"), dtype="float32")
        return Trials(image, lambda *_: network, Usual(model="", precision="float32"))

    truth = {"diameter": 22.0, "cellprob_threshold": 1.0}
    known = {name: value for name, value in Settings().by_name().items() if name not in truth}
    known |= {"precision": "float32", "image.depth": None, "image.channels": None}
    fit = Search(trials(), trials().masks(truth), known=known).fit(near={})
    assert {name: fit.nearest[name] for name in truth} == truth
    assert (fit.found, fit.gap) == ("made", (0, 0))


@pytest.mark.slow
def test_what_is_not_found_has_no_cause_and_no_command(made, explained):
    """Masks that lie elsewhere: some setting comes nearest to them, and made them as little."""
    usual = made("usual")
    shifted = made("shifted", edit=lambda masks: np.roll(masks, 40, axis=0))
    found = explained(usual, shifted, minutes=0.05)
    assert found["causes"] == []
    assert found["unexplained"] > 0.5
    assert found["reproduced"]["b"]["found"] == "not found"
    assert found["commands"]["a"] is not None
    assert found["commands"]["b"] is None


def test_a_command_makes_its_side_where_it_was_printed(
    made, small_store, invoke, tmp_path, monkeypatch
):
    """Beside the image, as most people stand."""
    shutil.copy(made.image("grey"), tmp_path / "cells.tif")
    monkeypatch.chdir(tmp_path)
    settings = {"flow_threshold": 0.8, "min_size": 100}
    usual, other = made("usual"), made("other", **settings)
    write_sidecar(other, {"settings": settings, "precision": "float32"})
    given = options(model=small_store.weights, image="cells.tif")
    commands = invoke("explain", usual, other, *given, "--json").json["commands"]["b"]
    expected = tifffile.imread(other)
    assert commands["python"] == ""  # Cellpose loads no network of this size
    words = shlex.split(commands["lab"])[1:]
    answer = invoke(*words, *options(store=tmp_path / "outputs"))
    assert answer.code == 0, answer.err
    (written,) = (tmp_path / "b_again").glob("*.tif")
    assert np.array_equal(tifffile.imread(written), expected)


def test_a_part_of_the_masks_is_no_reason_to_see_no_difference(made, explained, invoke):
    usual = made("usual")
    piece = made("piece", edit=lambda masks: masks[100:170, 60:140])
    found = explained(usual, piece)
    part = found["part"]
    assert (part["of"], part["rows"], part["columns"]) == ("b", [100, 170], [60, 140])
    (cause,) = found["causes"]
    assert (cause["name"], cause["a"]) == ("image.crop", None)
    assert cause["cells"] == part["n_outside"] + part["n_cut"] > 0
    assert cause["of_cells"] == part["n_cells"] == len(np.unique(tifffile.imread(usual))) - 1


@pytest.mark.slow
def test_masks_without_a_cell_explain_nothing(made, explained):
    usual = made("usual")
    empty = made("empty", edit=np.zeros_like)
    found = explained(usual, empty, minutes=0.1)
    assert (found["verdict"], found["causes"], found["unexplained"]) == ("vacuous", [], 1)
    assert found["commands"]["b"] is None
    assert explained(empty, empty)["verdict"] == "vacuous"


def test_stacks_are_explained_as_far_as_files_tell(made, explained):
    usual = np.stack([tifffile.imread(made("usual"))] * 3)
    for name, stack, min_size in (("a", usual, 15), ("b", usual * (usual % 4 > 0), 60)):
        path = made.folder / f"stack {name}.tif"
        tifffile.imwrite(path, stack, photometric="minisblack", metadata={"axes": "ZYX"})
        write_sidecar(path, {"settings": {"min_size": min_size}})
    found = explained(made.folder / "stack a.tif", made.folder / "stack b.tif")
    assert found["unexplained"] == found["changed"] > 0
    assert "stacks are not replayed" in found["not_replayed"]
    assert {"name": "min_size", "a": 15, "b": 60} in found["settings"]


@pytest.mark.slow
def test_what_cannot_be_varied_stays_unexplained(made, explained):
    """Cells that somebody erased, of masks whose settings stand beside them."""
    usual = made("recorded")
    edited = made("edited", edit=lambda masks: np.where(masks % 3 == 1, 0, masks), min_size=60)
    for path, settings in ((usual, {}), (edited, {"min_size": 60})):
        write_sidecar(path, {"settings": settings, "precision": "float32"})
    found = explained(usual, edited)
    assert found["unexplained"] > 0.1
    sides = found["reproduced"]
    assert (sides["a"]["found"], sides["a"]["pixels_left"]) == ("made", 0)
    assert (sides["b"]["found"], found["commands"]["b"]) == ("in part", None)
    same = explained(usual, usual, code=0)
    assert (same["causes"], same["unexplained"]) == ([], 0)


def test_what_the_gui_records_is_known(made, explained):
    masks = tifffile.imread(made("usual"))
    settings = {"flow_threshold": 0.4, "cellprob_threshold": 0.0, "diameter": 25.0, "niter": 0}
    normalize = {"percentile": [1.0, 99.0], "norm3D": True, "sharpen_radius": 2.0}
    path = made.folder / "grey_seg.npy"
    np.save(path, {"masks": masks, **settings, "normalize_params": normalize, "model_path": 0})
    found = explained(path, path, code=0)
    table = {row["name"]: row["b"] for row in found["settings"]}
    asked = {name: table[name] for name in ("diameter", "flow_threshold", "normalize.sharpen")}
    assert asked == {"diameter": 25, "flow_threshold": 0.4, "normalize.sharpen": 2}
    assert (table["niter"], table["min_size"], table["precision"]) == (None, "?", "?")
    assert table["normalize.percentile"] == [1, 99]
    assert "normalize.sharpen=2" in found["commands"]["a"]["lab"]


@pytest.mark.slow
def test_runs_say_what_they_are_and_two_changes_are_told_apart(small_store, invoke, tmp_path):
    data, store = small_store.data, options(store=tmp_path)
    asked = [data, *options(model=small_store.weights, repeats=1), *store, "--json"]
    usual = invoke("segment", *asked).json["key"]
    sets = ("--set", "diameter=20", "--set", "min_size=100", "--set", "max_size_fraction=0.9")
    other = invoke("segment", *asked, *sets).json["key"]
    (file,) = (f for f in (data / "test").iterdir() if "_masks" not in f.name)
    answer = invoke("explain", usual, other, *options(image=file), *store, "--json")
    assert answer.code == 1, answer.err
    found = answer.json
    assert sorted(cause["name"] for cause in found["causes"]) == ["diameter", "min_size"]
    assert (found["unexplained"], found["reproduced"]["b"]["pixels_left"]) == (0, 0)
    table = {row["name"]: (row["a"], row["b"]) for row in found["settings"]}
    assert table["diameter"] == (None, 20)
    commands = found["commands"]["b"]
    assert (commands["shell"], commands["python"]) == ("", "")  # Cellpose loads no such network
    line = shlex.split(commands["lab"])
    assert line[:3] == ["cellrepro", "segment", str(file)]
    assert {"diameter=20", "min_size=100"} <= {*line}


def test_a_search_that_ran_out_of_time_accuses_nobody(made, small_store, invoke):
    """A was made again, of B nearly nothing was tried: the cause may be any value that is left."""
    usual, other = made("usual"), made("diameter", diameter=20.0)
    given = options(model=small_store.weights, image=made.image("grey"), minutes=1e-6)
    answer = invoke("explain", usual, other, *given)
    first, *others = answer.out.splitlines()
    left = r"in the time given: (\d+) of (\d+) values for B were not tried \(--minutes"
    n_left, n_values = map(int, re.search(left, first).groups())
    assert 0 < n_left <= n_values
    assert f"{n_values} for B" in answer.err.replace(" values", "")
    assert f"{n_values - n_left} of {n_values} values" in answer.out or n_left == n_values
    assert "A was made again exactly, with the usual settings" in others
    assert "different network" not in answer.out
    assert "by hand" not in answer.out


@pytest.mark.slow
def test_cells_that_somebody_erased_are_said_to_be_perhaps_of_a_hand(made, small_store, invoke):
    usual = made("usual")
    edited = made("erased", edit=lambda masks: np.where(masks % 5 == 1, 0, masks))
    n_cells = len(np.unique(tifffile.imread(edited))) - 1
    drawn = tifffile.imread(edited)
    drawn[drawn == drawn.max()] = 0
    drawn[2:9, 2:9] = drawn.max() + 1
    tifffile.imwrite(edited, drawn)
    given = options(model=small_store.weights, image=made.image("grey"), minutes=1e-6)
    out = invoke("explain", usual, edited, *given).out
    assert re.search(rf"of B's {n_cells} cells .*; the other \d+ may have been .* by hand", out)
    assert "different network" not in out


@pytest.mark.slow
def test_a_network_that_a_file_records_is_no_probable_one(made, small_store, other_network, invoke):
    """One side is made again with the given network, the other records a different one."""
    settings = {"diameter": 24.0, "flow_threshold": 0.4, "cellprob_threshold": 0.0}
    settings |= {"normalize": {"percentile": [1.0, 99.0]}}
    of_another = made("of_another_network", edit=lambda masks: np.roll(masks, 40, axis=0))
    network = {"model": str(other_network), "model_digest": file_digest(other_network)}
    write_sidecar(of_another, {"settings": settings, "precision": "float32", **network})
    usual = made("usual")
    own = {"model": str(small_store.weights), "model_digest": file_digest(small_store.weights)}
    write_sidecar(usual, {"settings": {}, "precision": "float32", **own})
    given = options(model=small_store.weights, image=made.image("grey"), minutes=0.05)
    answer = invoke("explain", usual, of_another, *given)
    usual.with_suffix(".json").unlink()
    assert answer.out.startswith("likely: model; ")
    assert "probably" not in answer.out
    assert "did not confirm" not in answer.out
    (command,) = re.findall("to find out: cellrepro (.*)", answer.out)
    assert "--model" not in command
    alone = invoke("explain", usual, of_another, *given)  # the record of one side tells it, too
    assert alone.out.startswith("likely: model; ")
    assert "probably" not in alone.out


@pytest.fixture
def other_network(small_store, tmp_path):
    """The network of the store with weights that are a tenth larger or smaller."""
    with safe_open(small_store.weights, framework="pt") as file:
        metadata = file.metadata()
    generator = torch.Generator().manual_seed(0)
    changed = {
        name: tensor * (0.9 + 0.2 * torch.rand(tensor.shape, generator=generator))
        for name, tensor in load_file(small_store.weights).items()
    }
    save_file(changed, tmp_path / "other.safetensors", metadata=metadata)
    return tmp_path / "other.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize("is_turned", [False, True])
def test_settings_that_decide_and_do_not_make_it_mean_another_network(
    made, other_network, invoke, is_turned
):
    """It is said at once, and no search of hundreds of settings follows."""
    recorded = {"diameter": 24.0, "flow_threshold": 0.4, "cellprob_threshold": 0.0}
    recorded |= {"normalize": {"percentile": [1.0, 99.0]}}
    gui = made("of_another", **recorded)
    write_sidecar(gui, {"settings": recorded, "precision": "float32"})
    sides = [gui, made("usual")]
    letter = "B" if is_turned else "A"
    given = options(model=other_network, image=made.image("grey"))
    answer = invoke("explain", *(reversed(sides) if is_turned else sides), *given)
    sidecar_of(gui).unlink()  # the masks are those of other tests, too
    assert answer.code == 1, answer.err
    assert f"{letter} was probably made with a different network" in answer.out
    assert "was not searched, as the network is probably not the one" in answer.out
    assert "other.safetensors less than half of its cells are made again" in answer.err


@pytest.mark.parametrize(
    ("name", "used", "also_untrue", "is_other_recorded"),
    [
        pytest.param("diameter", 20.0, {}, False, marks=pytest.mark.slow),
        pytest.param("cellprob_threshold", 2.0, {}, True, marks=pytest.mark.slow),
        pytest.param("diameter", 20.0, {"cellprob_threshold": 1.0}, True, marks=pytest.mark.slow),
    ],
)
def test_a_value_that_was_changed_before_the_file_was_saved_is_found(
    made, invoke, small_store, name, used, also_untrue, is_other_recorded
):
    """The network makes the other side, so that it is not accused."""
    usual = {"diameter": 24.0, "flow_threshold": 0.4, "cellprob_threshold": 0.0}
    usual |= {"normalize": {"percentile": [1.0, 99.0]}}
    recorded = usual | also_untrue
    case = f"{name} of {1 + len(also_untrue)}"
    other = made(f"beside {case}", **({"diameter": 24.0} if is_other_recorded else {}))
    saved_later = made(f"saved later {case}", **{"diameter": 24.0, name: used})
    write_sidecar(saved_later, {"settings": recorded, "precision": "float32"})
    if is_other_recorded:
        write_sidecar(other, {"settings": usual, "precision": "float32"})
    given = options(model=small_store.weights, image=made.image("grey"))
    answer = invoke("explain", other, saved_later, *given).out
    assert answer.startswith("found: ")
    assert f"in B was found by trying, though B records {recorded[name]:g}" in answer
    for each, untrue in also_untrue.items():
        assert f"B was made with {each} {usual[each]:g}, though it records {untrue:g}" in answer
    assert "different network" not in answer


def test_of_equal_cells_the_network_tells_which_record_is_untrue(made, invoke, small_store):
    diameter = {"diameter": 24.0}
    true = made("true record", **diameter)
    untrue = made("untrue record", **diameter)
    write_sidecar(true, {"settings": diameter, "precision": "float32"})
    write_sidecar(untrue, {"settings": {"diameter": 18.0}, "precision": "float32"})
    given = options(model=small_store.weights, image=made.image("grey"))
    told = invoke("explain", untrue, true, *given)
    assert told.code == 0
    assert "A was made with diameter 24, though it records 18" in told.out
    cropped = invoke("explain", untrue, true, *given, "--crop", "auto")
    assert (cropped.code, cropped.out) == (told.code, told.out)


@pytest.mark.slow
def test_of_equal_cells_both_records_may_be_true(made, invoke, small_store):
    diameter = {"diameter": 24.0}
    sides = [made(f"true record {each}", **diameter) for each in "AB"]
    write_sidecar(sides[0], {"settings": diameter})
    write_sidecar(sides[1], {"settings": diameter | {"max_size_fraction": 0.9}})
    told = invoke("explain", *sides, *options(model=small_store.weights, image=made.image("grey")))
    assert "segmented again with either record, the cells are the same" in told.out
    other = options(model=small_store.weights, image=made.image("colour"))
    of_other_image = invoke("explain", *sides, *other).out
    assert "with this network and image neither record makes these cells" in of_other_image
    assert "probably" not in of_other_image


def test_no_network_is_blamed_where_time_was_up(made, invoke, small_store):
    """It made the other side, and not every value was tried."""
    recorded = {"diameter": 24.0, "flow_threshold": 0.4, "cellprob_threshold": 0.0}
    recorded |= {"normalize": {"percentile": [1.0, 99.0]}}
    sides = [made("beside short", diameter=24.0), made("saved later, short", diameter=20.0)]
    for path in sides:
        write_sidecar(path, {"settings": recorded, "precision": "float32"})
    given = options(model=small_store.weights, image=made.image("grey"), minutes=0.001)
    answer = invoke("explain", *sides, *given).out
    assert "(--minutes gives it more)" in answer
    assert "network" not in answer.partition("A: ")[0]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("usual.tif", "absent", "absent"),
        ("usual.tif", "small.tif", "no part of"),
        ("usual.tif", "half, segmented.tif", "the image is 2 times as large as the masks"),
        ("usual.tif", "half.tif", "the image is 2 times as large as the masks along Y and X"),
        ("usual.tif", "twice.tif", "the masks are 2 times as large as the image along Y and X"),
    ],
)
def test_what_is_no_result_of_the_image_is_refused(made, small_store, invoke, a, b, message):
    masks = tifffile.imread(made("usual"))
    half = masks[::2, ::2]
    tifffile.imwrite(made.folder / "half.tif", half)
    segmented = np.where((half % 4 > 0) & (minimum_filter(half, 3) == half), half, 0)
    tifffile.imwrite(made.folder / "half, segmented.tif", segmented)
    tifffile.imwrite(made.folder / "twice.tif", masks.repeat(2, axis=0).repeat(2, axis=1))
    tifffile.imwrite(made.folder / "small.tif", np.eye(90, dtype=np.uint16))
    sides = [made.folder / name if name.endswith(".tif") else name for name in (a, b)]
    given = options(model=small_store.weights, image=made.image("grey"))
    answer = invoke("explain", *sides, *given)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
