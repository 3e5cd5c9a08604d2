"""The network: the same start on every machine, loaded whole or refused."""

import hashlib
import http.client
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
from unittest.mock import Mock

import numpy as np
import pytest
import safetensors.numpy
import torch
from cellpose.vit import CPSAM
from segment_anything import sam_model_registry

from cellrepro.model import encoders
from cellrepro.model import network as module
from cellrepro.model.network import build, seeded_network
from cellrepro.model.weight_sources import ModelSource, find_model
from cellrepro.model.weights_file import save_weights, weights_digest
from cellrepro.store.store import Store
from samebits.errors import BadInput, NotPossibleHere
from samebits.generator_digests import generator_digests
from samebits.tensor_digests import tensor_digest
from small_training import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

# Of the file that `save_weights` writes of tiny's start with seed 0. Whoever changes how tiny is
# drawn changes every stored run of it; then, and only then, this digest changes too.
TINY_DIGEST = "50b3a9aa3f1fdc603866fe30ca9bfcb687a11f986fef801230e0307a8924c3e4"

PRINT_DIGEST = """
import sys, torch
from pathlib import Path
from cellrepro.model.encoders import TINY
from cellrepro.model.network import build
from cellrepro.model.weights_file import save_weights
from cellrepro.model.weight_sources import ModelSource
from cellrepro.profiles.profiles import cpu_capability
network = build(ModelSource(TINY, TINY), seed=0, device=torch.device("cpu"), dtype="float32")
print(cpu_capability())
print(save_weights(network, Path(sys.argv[1]), architecture=TINY))
"""


def bits(network):
    """Digests of every parameter, by name."""
    return {name: tensor_digest(tensor) for name, tensor in network.state_dict().items()}


# -- tiny's start --------------------------------------------------------------------------


def test_the_start_is_pinned(tmp_path):
    network = tiny()
    assert save_weights(network, tmp_path / "w.safetensors", architecture="tiny") == TINY_DIGEST


@pytest.mark.slow  # the portable trainings begin with such weights, too
def test_and_does_not_depend_on_the_instruction_set(tmp_path):
    """PyTorch's own initial weights do (torch 2.15)."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST, str(tmp_path / "w.safetensors")],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["DEFAULT", TINY_DIGEST]


def test_equal_seeds_agree_and_different_seeds_differ():
    a, b, c = bits(tiny(5)), bits(tiny(5)), bits(tiny(6))
    assert a == b
    assert sum(a[name] != c[name] for name in a) > 10


def test_it_is_cellposes_own_class_and_the_process_is_left_as_it_was():
    """Two blocks, layer drop; neither the generators nor SAM's registry are moved."""
    before = generator_digests(), dict(sam_model_registry)
    network = tiny(dtype="bfloat16")
    assert (generator_digests(), dict(sam_model_registry)) == before
    assert type(network) is CPSAM
    assert (len(network.encoder.blocks), network.rdrop) == (2, 0.4)
    assert {network.dtype, *(p.dtype for p in network.parameters())} == {torch.bfloat16}


SMALL_DIGEST = "3a2a0a6ca3b2c6eeef62b4b56c48619d4d99d9c038a03c64e1a8e19b8453d4d0"


def test_the_large_encoders_start_is_pinned(monkeypatch, tmp_path):
    """Of an encoder drawn as the large ones are, in a hundredth of their time."""
    sizes = encoders.Encoder(96, 3, 2, 2.0, (2,), patch=8)
    monkeypatch.setitem(encoders.ENCODERS, "small", sizes)
    network = seeded_network("small", seed=0)
    assert save_weights(network, tmp_path / "w.safetensors", architecture="tiny") == SMALL_DIGEST


@pytest.mark.parametrize(("name", "n_blocks"), [("tiny-4", 4), ("tiny-8", 8), ("tiny-12", 12)])
def test_deeper_ones_start_from_the_seed_and_come_back(tmp_path, name, n_blocks):
    store, cpu = Store(tmp_path), torch.device("cpu")
    network = build(find_model(name, store), seed=3, device=cpu, dtype="float32")
    assert len(network.encoder.blocks) == n_blocks
    assert bits(network) == bits(seeded_network(name, seed=3))
    save_weights(network, tmp_path / "w.safetensors", architecture=name)
    source = find_model(str(tmp_path / "w.safetensors"), store)
    assert (source.architecture, source.untrained) == (name, False)
    assert bits(build(source, seed=0, device=cpu, dtype="float32")) == bits(network)


# -- saved ---------------------------------------------------------------------------------


def test_saved_weights_come_back_bit_for_bit(tmp_path):
    network = tiny(1)
    path = tmp_path / "mine.safetensors"
    digest = save_weights(network, path, architecture="tiny")
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    source = find_model(str(path), Store(tmp_path))
    assert source == ModelSource("mine.safetensors", "tiny", path, digest)
    assert bits(tiny(2, path=path)) == bits(network)
    assert save_weights(tiny(1), tmp_path / "another name", architecture="tiny") == digest
    assert weights_digest(tiny(1), architecture="tiny") == digest, "without a file"


def test_weights_of_another_network_do_not_fit(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(tiny(), path, architecture="tiny")
    held = safetensors.numpy.load_file(path)
    held.popitem()
    safetensors.numpy.save_file(held, path)
    with pytest.raises(BadInput, match=r"w.safetensors does not fit the network 'tiny'"):
        tiny(path=path)


def test_a_repeat_of_the_store(small_store):
    store = Store(small_store.root)
    source = find_model(small_store.key[:6], store)
    name = f"{small_store.key}/{small_store.machine}/0"
    assert (source.label, source.architecture) == (name, "tiny")
    assert source.digest == small_store.answer.json["repeats"][0]["weights"]
    with pytest.raises(BadInput, match=f"no machine has repeat 9 of {small_store.key}"):
        find_model(f"{small_store.key[:6]}/9", store)


@pytest.mark.parametrize("reference", ["/no.pth", "/", "no/0"])
def test_a_path_is_no_repeat_of_the_only_run(reference, small_store):
    with pytest.raises(BadInput, match=f"unknown model '{reference}'"):
        find_model(reference, Store(small_store.root))


@pytest.mark.parametrize("reference", ["cyto3", "abc/0", "", "/no.pth", "a/b/c/d"])
def test_an_unknown_reference_is_never_replaced(reference, tmp_path):
    with pytest.raises(BadInput, match=f"unknown model '{reference}'; expected 'tiny', 'tiny-4'"):
        find_model(reference, Store(tmp_path / "outputs"))


def halved(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_another(path):
    held = {"cellrepro": '{"architecture": "huge"}'}
    safetensors.numpy.save_file({"w": np.ones(3)}, path, metadata=held)


@pytest.mark.parametrize("spoil", [halved, of_another, lambda path: path.write_text("no weights")])
def test_a_spoilt_file(tmp_path, spoil):
    path = tmp_path / "w.safetensors"
    save_weights(tiny(), path, architecture="tiny")
    spoil(path)
    with pytest.raises(BadInput, match=r"w.safetensors is not a whole weights file"):
        find_model(str(path), Store(tmp_path / "outputs"))


# -- Cellpose's own way of loading ---------------------------------------------------------


@pytest.fixture
def small_cellpose(monkeypatch, tmp_path, generators_free):
    """Cellpose with an encoder a thousand times smaller; yields one of its checkpoints."""
    with module.encoder_in_place(encoders.ENCODERS["tiny"]):
        small = sam_model_registry["vit_l"]
    monkeypatch.setitem(sam_model_registry, "vit_l", small)
    monkeypatch.setattr("cellpose.models.MODEL_DIR", tmp_path / "models")
    # Cellpose's download switches off the check of certificates in the whole process.
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_default_https_context)
    network = CPSAM()  # 8 pixels a patch, as CPSAM itself
    network.save_model(tmp_path / "mine.pth")
    return tmp_path / "mine.pth", bits(network)


def load(source):
    return build(source, seed=0, device=torch.device("cpu"), dtype="float32")


def test_loads_a_checkpoint_of_cellpose_and_the_same_weights_as_safetensors(
    small_cellpose, tmp_path
):
    path, expected = small_cellpose
    source = find_model(str(path), Store(tmp_path / "outputs"))
    assert (source.label, source.architecture) == ("mine.pth", "cellpose")
    assert bits(load(source)) == expected
    converted = tmp_path / "mine.safetensors"
    save_weights(load(source), converted, architecture="cellpose")
    source = find_model(str(converted), Store(tmp_path))
    assert source.architecture == "cellpose"
    assert bits(load(source)) == expected


def without_one(state):
    del state["encoder.blocks.0.attn.qkv.weight"]
    return state


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_one, "lacks 1 parameter .*encoder.blocks.0.attn.qkv.weight"),
        (lambda state: {"weight": state["W2"]}, "does not appear to be a CP4 model"),
        (lambda state: {**state, "out.bias": state["out.bias"][:-1]}, "size mismatch|Error"),
        (lambda state: list(state.values()), "'list' object"),
    ],
    ids=["one missing", "Cellpose 3", "a different shape", "list"],
)
def test_a_checkpoint_of_something_else(small_cellpose, tmp_path, change, expected):
    path, _ = small_cellpose
    torch.save(change(torch.load(path)), path)
    with pytest.raises(BadInput, match=rf"(?s)mine.pth.*({expected})"):
        load(find_model(str(path), Store(tmp_path / "outputs")))


NAMED = ModelSource("cpsam_v2", "cellpose")


def test_a_named_network_is_downloaded_once(small_cellpose, tmp_path, monkeypatch):
    """Cellpose 4.2.1.1 keeps a file that came by half: what to remove is said."""
    path, expected = small_cellpose
    served = tmp_path / "served"
    served.mkdir()
    monkeypatch.setattr("cellpose.models._MODEL_URL", f"{served.as_uri()}/")
    shutil.copy(path, served / "cpsam_v2")
    assert bits(load(NAMED)) == expected
    (served / "cpsam_v2").unlink()
    assert bits(load(NAMED)) == expected
    cached = tmp_path / "models" / "cpsam_v2"
    halved(cached)
    with pytest.raises(BadInput, match=rf"cannot load 'cpsam_v2': .*remove {cached} to have it"):
        load(NAMED)


@pytest.mark.parametrize(
    "fault", [urllib.error.URLError("Name or service not known"), http.client.IncompleteRead(b"")]
)
def test_a_connection_that_breaks(small_cellpose, monkeypatch, fault):
    monkeypatch.setattr("cellpose.utils.download_url_to_file", Mock(side_effect=fault))
    with pytest.raises(NotPossibleHere, match=r"'cpsam_v2' are not on this machine"):
        load(NAMED)
