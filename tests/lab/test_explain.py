"""Planted differences between two results of one image: each is named, and what is none is not."""

import numpy as np
import pytest
import tifffile
import torch

from cellrepro.determinism.modes import mode_in_force
from cellrepro.images.reading import read_image
from cellrepro.images.sidecar import write_sidecar
from cellrepro.lab.replay import as_read
from cellrepro.model.inference import evaluator
from cellrepro.model.network import build, find_model
from cellrepro.store.settings import Settings
from cellrepro.store.store import Store
from conftest import options

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
        tifffile.imwrite(folder / f"{name}.tif", image)

    def make(name, *, of="grey", dtype="float32", edit=None, read=None, **settings):
        network = build(source, seed=0, device=torch.device("cpu"), dtype=dtype)
        image = as_read(images[of], read or {})
        with mode_in_force("strict", device="cpu"):
            masks, *_ = evaluator(network)(image, **Settings(**settings).arguments())
        masks = masks.astype(np.uint16)
        path = folder / f"{name}.tif"
        tifffile.imwrite(path, masks if edit is None else edit(masks))
        return path

    make.folder = folder
    return make


@pytest.fixture
def explained(made, small_store, invoke):
    def ask(a, b, *, of="grey", code=1):
        given = options(model=small_store.weights, image=made.folder / f"{of}.tif")
        answer = invoke("explain", a, b, *given, "--json")
        assert answer.code == code, answer.err
        return answer.json

    return ask


CROP = {"image.crop": ((5, 225), (20, 240))}
PLANTED = {
    "flow_threshold": ({"flow_threshold": 0.1}, ["flow_threshold"]),
    "crop": ({"read": CROP}, ["image.crop"]),
}
LONG = {
    "diameter": ({"diameter": 20.0}, ["diameter"]),
    "percentile": ({"normalize.percentile": (3.0, 97.0)}, ["normalize.percentile"]),
    "niter": ({"niter": 20}, ["niter"]),
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
    assert sorted(cause["name"] for cause in found["causes"]) == causes
    assert found["unexplained"] == 0


def test_what_cannot_be_varied_stays_unexplained(made, explained):
    """Cells that somebody erased, of masks whose settings stand beside them."""
    usual = made("recorded")
    edited = made("edited", edit=lambda masks: np.where(masks % 3 == 1, 0, masks), min_size=60)
    for path, settings in ((usual, {}), (edited, {"min_size": 60})):
        write_sidecar(path, {"settings": settings, "precision": "float32"})
    found = explained(usual, edited)
    assert found["unexplained"] > 0.1
    assert found["reproduced"]["a"] == {"cells_left": 0, "pixels_left": 0}
    assert found["reproduced"]["b"]["cells_left"] > 0
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
    assert "'sharpen_radius': 2.0" in found["commands"]["a"]["python"]


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
    assert "diameter=20.0" in found["commands"]["b"]["python"]
    assert "--diameter 20.0 --min_size 100" in found["commands"]["b"]["shell"]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("usual.tif", "absent", "absent"),
        ("usual.tif", "small.tif", "no part of"),
    ],
)
def test_what_is_no_result_of_the_image_is_refused(made, small_store, invoke, a, b, message):
    made("usual")
    tifffile.imwrite(made.folder / "small.tif", np.eye(90, dtype=np.uint16))
    sides = [made.folder / name if name.endswith(".tif") else name for name in (a, b)]
    given = options(model=small_store.weights, image=made.folder / "grey.tif")
    answer = invoke("explain", *sides, *given)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
