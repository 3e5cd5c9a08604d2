"""What a script's own calls of Cellpose record, and that recording leaves them as they are."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from cellpose import models

from cellrepro import record
from cellrepro.images.image_file import read_image
from cellrepro.model.evaluator import evaluator
from cellrepro.model.network import build
from cellrepro.model.weight_sources import find_model
from cellrepro.record import masks_digest, recorded
from cellrepro.store.store import Store
from samebits.digests import array_digest, file_digest

SOURCE = Path(record.__file__)
SCHEMA = json.loads(SOURCE.with_name("record_schema.json").read_text(encoding="utf-8"))

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture(scope="module")
def image(small_store):
    (file,) = (f for f in (small_store.data / "test").iterdir() if "_masks" not in f.name)
    pixels = read_image(file)
    pixels.setflags(write=False)
    return pixels


@pytest.fixture
def model(small_store, tmp_path):
    """Cellpose's own model around the small network, with a weights file that it names."""
    source = find_model(str(small_store.weights), Store(tmp_path / "none"))
    network = build(source, seed=0, device=torch.device("cpu"), dtype="float32")
    model = models.CellposeModel.__new__(models.CellposeModel)
    model.__dict__.update(evaluator(network).model.__dict__, net=network)
    model.pretrained_model = str(shutil.copy(small_store.weights, tmp_path / "mine"))
    return model


def read(path):
    """A record, checked by the schema."""
    found = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    return found


def test_what_is_recorded(model, image, tmp_path):
    masks, *_ = recorded(model, tmp_path).eval(
        image, 4, flow_threshold=0.6, normalize={"percentile": [2, 98]}, record_as="a.tif"
    )
    found = read(tmp_path / "a_masks.json")
    assert found["model"] == "cellpose.models.CellposeModel"
    passed = {"batch_size": 4, "flow_threshold": 0.6, "normalize": {"percentile": [2, 98]}}
    assert found["arguments"]["passed"] == passed
    assert found["arguments"]["defaults"]["cellprob_threshold"] == 0.0
    assert not passed.keys() & found["arguments"]["defaults"].keys()
    assert found["normalize"] == {**models.normalize_default, "percentile": [2, 98]}
    assert found["image"]["digest"] == array_digest(image)
    assert (found["image"]["axes"], found["image"]["shape"]) == ("YX", [*image.shape])
    assert found["masks"]["digest"] == masks_digest(masks.astype(np.int64))
    assert found["masks"]["largest_label"] == masks.max() > 5
    assert (found["device"]["name"], found["precision"]) == ("cpu", "float32")
    assert found["versions"]["torch"] == torch.__version__
    (network,) = found["networks"]
    assert network["files"][0]["digest"] == file_digest(tmp_path / "mine")
    assert network["n_parameters"] == sum(t.numel() for t in model.net.state_dict().values())


def test_recording_changes_no_bit(model, image, tmp_path, generators_free):
    """Neither the result nor what it was made of: pixels, weights, generators, settings."""
    expected = model.eval(image, diameter=25)
    pixels, attributes = image.copy(), dict(model.__dict__)
    weights = {name: tensor.clone() for name, tensor in model.net.state_dict().items()}
    np.random.seed(3)
    torch.manual_seed(3)
    usual = dict(models.normalize_default)
    masks, flows, styles = recorded(model, tmp_path).eval(image, diameter=25)
    assert np.random.random() == np.random.RandomState(3).random_sample()
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(3))
    assert np.array_equal(masks, expected[0])
    assert masks.dtype == expected[0].dtype
    assert all(map(np.array_equal, flows, expected[1]))
    assert np.array_equal(styles, expected[2])
    assert np.array_equal(image, pixels)
    assert model.__dict__ == attributes
    assert all(torch.equal(weights[n], t) for n, t in model.net.state_dict().items())
    assert models.normalize_default == usual


def test_a_list_of_images_gives_a_record_of_each(model, image, tmp_path):
    images = [image[:64, :64], image[:100, :80], image[:80, :100].astype(np.float32)]
    digests = [array_digest(pixels) for pixels in images]
    names = ["one", tmp_path / "more" / "two.tif", "three_cp_masks.png"]
    masks, *_ = recorded(model, tmp_path).eval(images, diameter=[20, 30, 40], record_as=names)
    paths = ("one_masks.json", "more/two_masks.json", "three_cp_masks.json")
    for i, path in enumerate(paths):
        found = read(tmp_path / path)
        assert found["image"]["digest"] == digests[i]
        assert found["image"]["changed_by_eval"] is (i == 2)  # float32, by Cellpose 4.2.1.1
        assert found["masks"]["digest"] == masks_digest(masks[i])
        assert (found["image"]["index"], found["diameter_used"]) == (i, [20, 30, 40][i])
        assert found["arguments"]["passed"]["diameter"] == [20, 30, 40][i]
    recorded(model, tmp_path, name="all").eval(images[:2])
    assert {"all_0_masks.json", "all_1_masks.json"} <= {p.name for p in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="record_as has 2 names for 3 images"):
        recorded(model, tmp_path).eval(images, record_as=["one", "two"])


def test_without_a_name_no_two_are_confused(model, image, tmp_path):
    """Equal calls give one file; another setting, or another image, a file of its own."""
    watched = recorded(model, tmp_path)
    piece = image[:64, :64]
    for diameter, pixels in ((30, piece), (30, piece), (25, piece), (30, image[:60, :64])):
        watched.eval(pixels, diameter=diameter)
    found = [read(path) for path in tmp_path.glob("cellpose-*_masks.json")]
    assert len(found) == 3
    assert {one["diameter_used"] for one in found} == {25, 30}


def test_a_record_of_different_pixels_is_never_replaced(model, image, tmp_path):
    watched = recorded(model, tmp_path, name="a")
    piece = image[:64, :64]
    watched.eval(piece, diameter=20)
    watched.eval(piece, diameter=25)
    assert read(tmp_path / "a_masks.json")["diameter_used"] == 25
    with pytest.warns(UserWarning, match="a_masks.json is of different pixels"):
        watched.eval(image[:64, :60])
    assert read(tmp_path / "a_masks.json")["image"]["digest"] == array_digest(piece)
    assert len([*tmp_path.glob("a_????????_masks.json")]) == 1


def test_what_an_earlier_call_left_in_the_defaults_is_recorded(model, image, tmp_path, monkeypatch):
    """A plain stack sets norm3D to false for all later calls (Cellpose 4.2.1.1)."""
    monkeypatch.setitem(models.normalize_default, "norm3D", True)
    watched = recorded(model, tmp_path)
    stack = np.stack([image[:64, :64]] * 2)[..., None]
    watched.eval(stack, channel_axis=-1, record_as="stack")
    watched.eval(image[:64, :64], record_as="later")
    assert read(tmp_path / "stack_masks.json")["normalize"]["norm3D"] is True
    assert read(tmp_path / "later_masks.json")["normalize"]["norm3D"] is False


def test_weights_are_digested_again_once_they_changed(model, image, tmp_path):
    watched = recorded(model, tmp_path)

    def digest(name):
        watched.eval(image[:64, :64], record_as=name)
        return read(tmp_path / f"{name}_masks.json")["networks"][0]["digest"]

    usual = digest("usual")
    assert digest("again") == usual
    with torch.no_grad():
        model.net.out.bias.add_(1)
    changed = digest("changed")
    assert changed != usual
    model.net.out.bias.data = model.net.out.bias.data - 1
    assert digest("back") != changed


class CellposeModel:
    """What Cellpose's model is to the recorder: a network, and an ``eval`` that gives masks."""

    def __init__(self):
        self.net = torch.nn.Linear(100, 60)

    def eval(self, x, diameter=None, cellprob_threshold=0.0):
        return np.ones(x.shape, np.uint16), [], []


@pytest.mark.usefixtures("generators_free")
def test_a_record_stays_in_its_folder(tmp_path):
    """Also of an image that lies elsewhere: its folder may be one of raw data."""
    folder = tmp_path / "results"
    raw = tmp_path / "raw" / "img.tif"
    raw.parent.mkdir()
    for name in (raw, f"../raw/{raw.name}", folder / "day 2" / raw.name):
        recorded(CellposeModel(), folder).eval(np.zeros((4, 4)), record_as=name)
    records = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json"))
    assert records == ["results/day 2/img_masks.json", "results/img_masks.json"]


def digest_of_network(model, folder, name):
    recorded(model, folder).eval(np.zeros((4, 4)), record_as=name)
    text = (folder / f"{name}_masks.json").read_text(encoding="utf-8")
    return json.loads(text)["networks"][0]["digest"]


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.data.mul_(0.5).add_(1e-3),
        lambda weight: weight.data.neg_(),
        lambda weight: weight.data.copy_(weight.data.flip(0)),
        lambda weight: np.copyto(weight.detach().numpy()[:1], 5),
    ],
    ids=["averaged", "signs", "rows", "by NumPy"],
)
@pytest.mark.usefixtures("generators_free")
def test_writes_that_pytorch_does_not_count_make_another_digest(change, tmp_path):
    model = CellposeModel()
    watched = recorded(model, tmp_path)
    digests = []
    for name in ("before", "again", "after"):
        if name == "after":
            change(model.net.weight)
        watched.eval(np.zeros((4, 4)), record_as=name)
        text = (tmp_path / f"{name}_masks.json").read_text(encoding="utf-8")
        digests.append(json.loads(text)["networks"][0]["digest"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.usefixtures("generators_free")
def test_a_network_of_inference_mode_is_recorded(tmp_path):
    usual, frozen = CellposeModel(), CellposeModel()
    with torch.inference_mode():
        frozen.net = torch.nn.Linear(100, 60)
        frozen.net.load_state_dict(usual.net.state_dict())
    assert frozen.net.weight.is_inference()
    digests = {digest_of_network(m, tmp_path, n) for m, n in ((usual, "usual"), (frozen, "frozen"))}
    assert len(digests) == 1


def test_masks_come_back_whatever_happens_to_the_record(model, image, tmp_path):
    piece = image[:64, :64]
    expected, *_ = model.eval(piece)
    (tmp_path / "file").write_text("a folder cannot be made here")
    with pytest.warns(UserWarning, match="this call of eval is not recorded") as warned:
        masks, *_ = recorded(model, tmp_path / "file").eval(piece)
    assert np.array_equal(masks, expected)
    assert warned[0].filename == __file__
    with pytest.raises(TypeError, match="unexpected keyword argument 'diametre'"):
        recorded(model, tmp_path).eval(piece, diametre=30)
    with pytest.raises(TypeError, match="whose eval gives no masks"):
        recorded(model.net, tmp_path)


def test_it_stands_in_front_of_the_model(model, image, tmp_path):
    watched = recorded(recorded(model, tmp_path), tmp_path)
    assert watched.pretrained_model == model.pretrained_model
    watched.pretrained_model = "other"
    assert model.pretrained_model == "other"
    watched.eval(image[:64, :64], record_as="once")
    assert [path.name for path in tmp_path.glob("*.json")] == ["once_masks.json"]


_COPIED = """
import sys
import numpy as np
from record import recorded

class CellposeModel:
    def eval(self, x, diameter=None, cellprob_threshold=0.0):
        return np.ones((4, 4), np.uint16), [], []

recorded(CellposeModel(), name="a").eval(np.zeros((4, 4)), 12)
print(*{name.split(".")[0] for name in sys.modules} & {"cellrepro", "torch", "cellpose"})
"""


def test_a_copy_works_beside_a_script(tmp_path):
    """It is one file, which Python 3.8 reads, and imports NumPy alone."""
    ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 8))
    shutil.copy(SOURCE, tmp_path)
    (tmp_path / "script.py").write_text(_COPIED)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert read(tmp_path / "a_masks.json")["arguments"]["passed"] == {"diameter": 12}


@pytest.mark.parametrize("masks", [np.array([[1.7]]), np.array([[-1]]), np.array([[2**32]])])
def test_what_is_no_label_image_has_no_digest(masks):
    with pytest.raises(ValueError, match=r"masks (of dtype|hold numbers)"):
        masks_digest(masks)
