"""What a file is said to be, and that Cellpose itself does with it what is said."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from safetensors.torch import save_file

from cellrepro.exchange.export import export_runs
from cellrepro.explanation.compare_files import compare
from cellrepro.explanation.describe import describe
from cellrepro.images.seg_file import read_seg
from cellrepro.model import encoders, known_weights, network
from cellrepro.store.store import Store
from samebits.digests import file_digest
from samebits.errors import BadInput
from samebits.generator_states import generators_kept
from stores import add_run, three

MASKS = np.zeros((20, 30), np.uint16)
MASKS[2:6, 3:9], MASKS[10:14, 20:24] = 4, 9
SIZES = encoders.Encoder(192, 2, 1, 2.0, (1,), patch=8)


@pytest.fixture
def small_cellpose(monkeypatch, one_thread):
    """Cellpose with a small encoder in place of its own; gives the network's parameters."""
    monkeypatch.setitem(encoders.ENCODERS, "small", SIZES)
    monkeypatch.setattr(known_weights, "_SHIPPED", "small")
    network.parameter_shapes.cache_clear()
    held = network.seeded_network("small", seed=0).state_dict()
    with network.encoder_in_place(SIZES):
        yield {name: tensor.clone() for name, tensor in held.items()}
    network.parameter_shapes.cache_clear()


def without(held, *names):
    return {name: tensor for name, tensor in held.items() if name not in names}


CPNET = {
    "downsample.down.res_down_0.conv.conv_0.0.weight": torch.ones(2),
    "diam_mean": torch.ones(1),
}
DINO = {"encoder.cls_token": torch.ones(1), "encoder.patch_embed.proj.weight": torch.ones(1024, 1)}
NETWORKS = {
    "whole": (lambda held: held, "4 (SAM)", "itself", ""),
    "half precision": (
        lambda held: {n: t.to(torch.bfloat16) for n, t in held.items()},
        "4 (SAM)",
        "itself",
        "",
    ),
    "of several GPUs": (
        lambda held: {f"module.{n}": t for n, t in held.items()},
        "4 (SAM)",
        None,
        "looks for W2 before",
    ),
    "a parameter missing": (
        lambda held: without(held, "out.bias"),
        "4 (SAM)",
        "a partly random network",
        "1 parameter missing",
    ),
    "more than it takes": (
        lambda held: held | {"more": torch.ones(1)},
        "4 (SAM)",
        "itself",
        "ignores 1 parameter",
    ),
    "other sizes": (
        lambda held: held | {"out.bias": torch.ones(7)},
        "4 (SAM)",
        None,
        r"out\.bias has the shape \(7,\)",
    ),
    "Cellpose 3": (lambda held: CPNET, "2 or 3", None, "refuses networks of Cellpose 2 and 3"),
    "Cellpose 3, transformer": (
        lambda held: {"net.encoder.patch_embed1.w": torch.ones(1), "diam_mean": torch.ones(1)},
        "3",
        None,
        "refuses networks of Cellpose 2 and 3",
    ),
    "DINO": (lambda held: DINO, "4 (DINO)", None, "dinov3"),
    "something else": (lambda held: {"w": torch.ones(3)}, None, None, "no network of Cellpose"),
}


@pytest.mark.parametrize(
    ("change", "generation", "loads_as", "note"), NETWORKS.values(), ids=NETWORKS
)
def test_weights_and_what_cellpose_does_with_them(
    change, generation, loads_as, note, small_cellpose, tmp_path
):
    from cellpose.models import CellposeModel

    held, path = change(small_cellpose), tmp_path / "cpsam_mine"
    torch.save(held, path)
    actual = describe(str(path))
    assert (actual.kind, actual.generation, actual.loads_as) == ("weights", generation, loads_as)
    assert re.search(note, actual.note)
    assert actual.n_parameters == sum(tensor.numel() for tensor in held.values())
    assert actual.digest == file_digest(path)
    loaded = None
    with generators_kept(), contextlib.suppress(Exception):
        loaded = CellposeModel(pretrained_model=str(path), use_bfloat16=False).net.state_dict()
    assert (loaded is None) == (loads_as is None)
    if loaded is not None:
        same = [torch.equal(tensor, small_cellpose[n]) for n, tensor in loaded.items()]
        rounded = actual.dtype == "BF16"
        assert all(same) == (loads_as == "itself" and not rounded)
    plain = {name.removeprefix("module."): tensor for name, tensor in held.items()}
    save_file(plain, tmp_path / "same.safetensors")  # which Cellpose does not read
    other = describe(str(tmp_path / "same.safetensors"))
    assert (other.generation, other.loads_as) == (generation, None)
    assert compare(str(path), str(tmp_path / "same.safetensors")).verdict == "identical"


def test_a_checkpoint_of_a_training(small_cellpose, tmp_path, invoke):
    plain = tmp_path / "plain.pth"
    torch.save(small_cellpose, plain)
    path = tmp_path / "last.pt"
    torch.save({"model_state_dict": small_cellpose, "epoch": 3}, path)
    found = describe(str(path))
    assert (found.generation, found.loads_as) == ("4 (SAM)", None)
    assert found.details["found_under"] == "model_state_dict"
    assert "under 'model_state_dict'; Cellpose takes a network by itself" in found.note
    answer = invoke("compare", plain, path)
    assert (answer.code, answer.out.splitlines()[0]) == (0, "identical")
    assert "B is a checkpoint; its network was found under 'model_state_dict'" in answer.out


def test_a_name_and_what_cellpose_takes_for_it(monkeypatch, tmp_path):
    from cellpose import models

    taken = []
    monkeypatch.setattr(models, "cache_model_path", lambda name: taken.append(name) or 1 / 0)
    for name, expected in (("cyto3", "cpsam_v2"), ("cpsam", "cpsam")):
        with pytest.raises(ZeroDivisionError):
            models.CellposeModel(pretrained_model=name)
        assert taken.pop() == expected
        found = describe(name, store=tmp_path)
        assert (found.kind, found.loads_as) == ("name", "itself" if name == expected else expected)


@pytest.mark.parametrize("name", encoders.ENCODERS)
def test_a_network_of_the_lab_is_known_by_its_name(name, tmp_path):
    found = describe(name, store=tmp_path)
    assert found.kind == "name"
    assert f"`cellrepro train DATA --model {name}`" in found.details["next"]


def test_where_it_is_recorded_how_masks_were_made_is_said(tmp_path, invoke):
    """Of a PNG, too, which records nothing itself."""
    shutil.copy(Path(__file__).parent / "seg_files" / "gui_4.2.1.1_seg.npy", tmp_path / "a_seg.npy")
    masks = read_seg(tmp_path / "a_seg.npy").masks
    Image.fromarray(masks.astype(np.uint8)).save(tmp_path / "a_cp_masks.png")
    assert "recorded in a_seg.npy" in invoke("describe", tmp_path / "a_cp_masks.png").out
    assert "recorded in" not in invoke("describe", tmp_path / "a_seg.npy").out


def test_published_weights_are_known_by_their_digest(monkeypatch, tmp_path):
    torch.save({"w": torch.ones(1)}, tmp_path / "anything")
    assert describe(str(tmp_path / "anything")).official_name is None
    digest = file_digest(tmp_path / "anything")
    monkeypatch.setitem(known_weights.OFFICIAL_NAMES, digest, "cpsam")
    assert describe(str(tmp_path / "anything")).official_name == "cpsam"


def test_cellposes_own_sizes():
    """Of the network that is published: 1 218 515 720 bytes of float32 and two diameters."""
    shapes = network.parameter_shapes("vit-l")
    actual = known_weights.recognise(shapes, saved_by_torch=True)
    assert actual == known_weights.Recognised("4 (SAM)", "CPSAM (vit-l)", "itself")
    tiny = network.parameter_shapes("tiny")
    found = known_weights.recognise(tiny, saved_by_torch=True)
    assert (found.network, found.loads_as) == ("CPSAM (tiny)", None)


def test_masks_and_runs(small_store, tmp_path, invoke):
    tifffile.imwrite(tmp_path / "a.tif", MASKS)
    found = describe(str(tmp_path / "a.tif"))
    assert (found.kind, found.dtype, found.n_parameters) == ("label image", "uint16", None)
    assert found.details["n_objects"], found.details["largest_label"] == (2, 9)
    tifffile.imwrite(tmp_path / "float.tif", MASKS.astype(np.float32))
    assert describe(str(tmp_path / "float.tif")).dtype == "float32"
    seg = {"masks": MASKS, "diameter": 17.5, "ismanual": np.array([True, False])}
    np.save(tmp_path / "a_seg.npy", seg)
    found = describe(str(tmp_path / "a_seg.npy"))
    assert found.kind == "_seg.npy"
    assert found.details["settings"] == {"diameter": 17.5}
    assert found.details["n_manual"] == 1
    repeat = Store(small_store.root).find(small_store.key)
    answer = invoke("describe", small_store.key, "--store", small_store.root, "--json").json
    assert answer["kind"] == "run"
    assert answer["digest"] == repeat.manifest.weights.digest
    assert answer["n_parameters"] == repeat.manifest.model.n_parameters
    text = invoke("describe", str(tmp_path / "a_seg.npy")).out
    assert "diameter: 17.5" in text


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("trace",)


def test_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Hostile()}, "cpsam")
    for name, message in (
        ("cpsam", "Weights only load failed|no weights file"),
        ("absent.tif", "no such file"),
        ("some/where", "no such file or folder, and it names no run"),
        (".", "is a folder"),
    ):
        with pytest.raises(BadInput, match=message):
            describe(name)
    assert not (tmp_path / "trace").exists()


def test_what_a_folder_holds_is_said(tmp_path):
    """Images are no masks, and masks in folders of a folder are found."""
    grey = np.random.default_rng(1).integers(0, 200, (32, 32, 3), dtype=np.uint8)
    for name in ("images", "train", "labels", "deep/er"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("a", "b"):
        tifffile.imwrite(tmp_path / "images" / f"{name}.tif", grey, photometric="rgb")
        tifffile.imwrite(tmp_path / "train" / f"{name}.tif", grey, photometric="rgb")
        labels = np.zeros((32, 32), np.uint16)
        labels[4:9, 4:9] = 3
        tifffile.imwrite(tmp_path / "train" / f"{name}_masks.tif", labels)
        tifffile.imwrite(tmp_path / "labels" / f"{name}.tif", labels)
        tifffile.imwrite(tmp_path / "deep" / "er" / f"{name}.tif", labels)
    for folder, expected in (
        ("images", "of 2 images without masks"),
        ("train", "with masks of 2 images"),
        ("labels", "with masks of 2 images"),
        ("", "they are in labels and train"),
        ("deep", "they are in er"),
    ):
        with pytest.raises(BadInput, match=expected):
            describe(str(tmp_path / folder))


def test_a_run_is_compared_with_files(small_store, tmp_path):
    """Its masks with a mask file of one image and with a folder, its weights with a file."""
    repeat = Store(small_store.root).find(small_store.key)
    names = list(repeat.manifest.masks)
    folder = tmp_path / "masks"
    folder.mkdir()
    for name in names:
        np.save(folder / f"{name}_seg.npy", {"masks": repeat.masks(name)})
    store = {"store": small_store.root}
    whole = compare(repeat.name, str(folder), **store)
    assert (whole.verdict, list(whole.masks)) == ("identical", names)
    one = compare(str(folder / f"{names[0]}_seg.npy"), repeat.name, **store)
    assert list(one.masks) == names[:1]
    assert one.masks[names[0]].verdict == "identical"
    assert (one.verdict == "identical") == (len(names) == 1)
    assert compare(str(repeat.weights), repeat.name, **store).verdict == "identical"
    with pytest.raises(BadInput, match="not of one kind"):
        compare(str(repeat.weights), str(folder), **store)


def test_what_is_handed_on_is_sent_to_verify(tmp_path):
    """An exported file holds no weights, whatever zip files else may hold."""
    store = Store(tmp_path / "store")
    run = add_run(store, [(1.0, three())])
    file = tmp_path / "run.zip"
    export_runs(run.key, file, store=store.root, quiet=True)
    with pytest.raises(BadInput, match=f"`cellrepro verify {file}` says what is in it"):
        compare(str(file), str(file))


def test_a_seg_file_says_what_its_numbers_show(tmp_path):
    wrapped = np.zeros((170, 180), np.uint8)
    for cell in range(1, 290):
        row, column = divmod(cell - 1, 18)
        wrapped[10 * row : 10 * row + 6, 10 * column : 10 * column + 6] = cell % 256
    for name, masks, expected in (
        ("wrapped_seg.npy", wrapped, "the largest is 255, the largest of 8 bit"),
        ("sound_seg.npy", np.pad(np.ones((4, 4), np.uint16), 3), ""),
    ):
        outlines = np.zeros(masks.shape, bool)
        np.save(tmp_path / name, {"masks": masks, "outlines": outlines})
        found = describe(str(tmp_path / name))
        assert expected in found.note
        assert bool(expected) == bool(found.note)


def test_a_black_and_white_mask_is_not_called_one_cell(tmp_path):
    cells = np.kron(np.arange(1, 26).reshape(5, 5), np.pad(np.ones((8, 8), int), 2))
    tifffile.imwrite(tmp_path / "map.tif", ((cells > 0) * 255).astype(np.uint8))
    tifffile.imwrite(tmp_path / "cells.tif", cells.astype(np.uint16))
    of_map, of_cells = (describe(tmp_path / f"{name}.tif").lines() for name in ("map", "cells"))
    assert of_map[0].startswith("label image: 1 number in 25 separate pieces")
    assert of_cells[0].startswith("label image: 25 cells")
    assert [any("diameters" in line for line in lines) for lines in (of_map, of_cells)] == [0, 1]
