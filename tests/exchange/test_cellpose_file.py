"""A network as a file that Cellpose loads: whole, the same bytes, and nothing else is written."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from made_up_records import made_up_manifest, mask_record

import cellrepro
from cellrepro.comparison.weight_reading import open_weights
from cellrepro.errors import Damaged
from cellrepro.exchange.bundle import read_bundle
from cellrepro.exchange.cellpose_check import check_cellpose_file, write_torch_file
from cellrepro.exchange.model_statement import (
    CELLPOSE_FILE,
    is_model_statement,
    read_model_statement,
    tensors_digest,
)
from cellrepro.exchange.statement import read_payload
from cellrepro.images.synthetic_sets import labelled_nuclei
from cellrepro.model import encoders, known_weights, network
from cellrepro.model.weight_sources import ModelSource
from cellrepro.model.weights_file import save_weights
from cellrepro.store.store import Store
from cellrepro.store.training_record import WeightsRecord
from samebits.digests import file_digest
from samebits.errors import BadInput
from stores import add_run, some_spec, three

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")
SIZES = encoders.Encoder(192, 2, 1, 2.0, (1,), patch=8)
CPU = torch.device("cpu")


@pytest.fixture
def small_cellpose(monkeypatch, one_thread, tmp_path):
    """Cellpose with a small encoder in place of its own; gives its weights, as stored."""
    monkeypatch.setitem(encoders.ENCODERS, "small", SIZES)
    monkeypatch.setattr(known_weights, "_SHIPPED", "small")
    network.parameter_shapes.cache_clear()
    weights = tmp_path / "weights.safetensors"
    save_weights(network.seeded_network("small", seed=0), weights, architecture="small")
    with network.encoder_in_place(SIZES):
        yield weights
    network.parameter_shapes.cache_clear()


@pytest.fixture
def checked(small_cellpose):
    """Loads a file through Cellpose and holds it to the weights."""

    def check(file, dtype="float32"):
        (image,) = labelled_nuclei(1, shape=(64, 64))
        source = ModelSource("small", "small", small_cellpose)
        return check_cellpose_file(
            file, source=source, weights=small_cellpose, image=image, device=CPU, dtype=dtype
        )

    return check


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cellpose_loads_the_same_network(small_cellpose, checked, tmp_path, dtype):
    file = tmp_path / "mine.pth"
    write_torch_file(small_cellpose, file)
    found = checked(file, dtype)
    assert found.n_tensors == len(open_weights(small_cellpose))
    assert (found.image, found.dtype) == ("synth_0", dtype)
    again = tmp_path / "another name.pth"
    write_torch_file(small_cellpose, again)
    assert file.read_bytes() == again.read_bytes()
    assert tensors_digest(open_weights(file)) == tensors_digest(open_weights(small_cellpose))


def one_bit(held):
    held["out.bias"].view(torch.int32)[0] ^= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (one_bit, r"1 tensor differs: out\.bias"),
        (lambda held: held.pop("out.bias"), r"1 tensor differs: out\.bias"),
        (lambda held: held.update({"out.bias": held["out.bias"].double()}), None),
    ],
    ids=["a bit", "missing, and so drawn at random", "the same numbers in float64"],
)
def test_another_network_is_noticed(small_cellpose, checked, tmp_path, change, message):
    from safetensors.torch import load_file

    held = load_file(small_cellpose)
    change(held)
    torch.save(held, tmp_path / "other.pth")
    if message is None:  # what Cellpose makes float32 of
        checked(tmp_path / "other.pth")
        return
    with pytest.raises(Damaged, match=rf"different network of other\.pth .*{message}"):
        checked(tmp_path / "other.pth")


def test_a_tensor_that_cellpose_leaves_out_is_named(small_cellpose, checked, tmp_path):
    from safetensors.torch import load_file, save_file

    save_file(load_file(small_cellpose) | {"more": torch.ones(1)}, small_cellpose)
    write_torch_file(small_cellpose, tmp_path / "mine.pth")
    with pytest.raises(Damaged, match=r"\(Cellpose's lacks more\)"):
        checked(tmp_path / "mine.pth")


def test_what_is_refused_leaves_nothing(small_store, tmp_path):
    """A network that Cellpose has no sizes for, by its name, with the way on."""
    key = f"{small_store.key}/0"
    file = tmp_path / "new" / "mine.pth"
    file.parent.mkdir()
    for name, message in (
        (file, r"is 'tiny', which Cellpose cannot build .* `cellrepro segment FOLDER --model"),
        (file.with_suffix(".pt"), r"a name that ends with \.pth"),
        (tmp_path / "absent" / "mine.pth", "is no folder"),
    ):
        with pytest.raises(BadInput, match=message):
            cellrepro.export_cellpose_file(key, name, store=small_store.root)
    assert list(file.parent.iterdir()) == []
    (file.parent / "mine.intoto.jsonl").touch()
    with pytest.raises(BadInput, match=r"mine\.intoto\.jsonl exists, and nothing is overwritten"):
        cellrepro.export_cellpose_file(key, file, store=small_store.root)
    store = Store(tmp_path / "segmented")
    (run,) = [add_run(store, [(None, three())], task="segment", epochs=0).repeats]
    with pytest.raises(BadInput, match="only segmented"):
        cellrepro.export_cellpose_file(run[0].name, tmp_path / "x.pth", store=store.root)


# -- from elsewhere --------------------------------------------------------------------------


def statement_in(file):
    """The statement about a model in a bundle."""
    lines = [line for line in file.read_bytes().split(b"\n") if line]
    attestations = [read_payload(line, where="here") for line in lines]
    (found,) = [each for each in attestations if is_model_statement(each.statement)]
    return read_model_statement(found, where="here")


# -- Cellpose's own size ---------------------------------------------------------------------


def stored_vit_l(root):
    """A run with a network of Cellpose's own size, whose weights a seed drew."""
    store = Store(root)
    spec = some_spec(model="vit-l", learning_rate=1e-5)
    with store.staging() as area:
        folder = area / "repeat"
        (folder / "masks").mkdir(parents=True)
        built = network.seeded_network("vit-l", seed=0)
        path = folder / "weights.safetensors"
        digest = save_weights(built, path, architecture="vit-l")
        del built
        import tifffile

        labels = np.zeros((48, 48), np.uint16)
        tifffile.imwrite(folder / "masks" / "cell.tif", labels)
        manifest = made_up_manifest(
            spec,
            {"cell": mask_record("cell", labels)},
            weights=WeightsRecord(digest=digest, n_changed=7),
        )
        manifest.model.architecture = "vit-l"
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        store.commit(folder, spec)
    return store.run(spec.key).repeats[0]


@pytest.mark.slow
def test_a_network_of_cellposes_own_size(tmp_path):
    """Written, loaded by Cellpose under its path and, added to its models, under its name."""
    repeat = stored_vit_l(tmp_path / "store")
    file = tmp_path / "mine.pth"
    exported = cellrepro.export_cellpose_file(repeat.name, file, store=tmp_path / "store")
    assert exported.check.n_parameters > 300_000_000
    assert exported.check.peak_memory < 4 * 2**30
    assert file_digest(file) == exported.digest
    bundle = read_bundle(tmp_path / "mine.intoto.jsonl")
    assert [passport.name for passport in bundle.passports] == [repeat.name]
    statement = statement_in(tmp_path / "mine.intoto.jsonl")
    assert (statement.build_type, statement.sha256) == (CELLPOSE_FILE, exported.digest)
    assert statement.tensors == tensors_digest(open_weights(repeat.weights))
    environment = {**os.environ, "CELLPOSE_LOCAL_MODELS_PATH": str(tmp_path / "models")}
    (tmp_path / "models").mkdir()

    def python(*words):
        done = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    python("-m", "cellpose", "--add_model", str(file))
    loaded = python(
        "-c",
        "import json; from cellpose.models import CellposeModel\n"
        "net = CellposeModel(pretrained_model='mine.pth', use_bfloat16=False).net\n"
        "print(json.dumps(net.state_dict()['out.bias'].tolist()))",
    )
    expected = open_weights(repeat.weights)["out.bias"].read(0, 2**20).view("<f4")
    assert json.loads(loaded.splitlines()[-1]) == expected.tolist()
