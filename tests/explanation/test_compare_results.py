"""Two named things compared: runs, masks, folders, weights; and refusals."""

import itertools
import os
import shutil
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from safetensors.numpy import load_file, save_file
from scipy import ndimage

from cellrepro.explanation.baseline_check import check_baseline
from cellrepro.explanation.baseline_saving import save_baseline
from cellrepro.explanation.compare_files import compare
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.explanation.explain import explain
from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Store
from samebits.digests import array_digest, file_digest
from samebits.errors import BadInput
from stores import SIZE, add_run

HALVES = np.array([[1, 1, 0, 2, 2]] * 4, np.uint16)
RENUMBERED = np.array([[2, 2, 0, 1, 1]] * 4, np.uint16)
ONE_LOST = np.array([[1, 1, 0, 0, 0]] * 4, np.uint16)
_ROWS, _COLUMNS = np.mgrid[:60, :80]
WHOLE = np.where(
    (_ROWS % 12 < 8 + _COLUMNS // 30) & (_COLUMNS % 11 < 6 + _ROWS // 24),
    8 * (_ROWS // 12) + _COLUMNS // 11 + 1,
    0,
).astype(np.uint16)

TOUCHING = np.zeros((20, 30), np.uint16)
TOUCHING[2:9, 2:27] = np.repeat([1, 2, 3, 4, 5], 5)
TOUCHING[11:16, 20:29] = 6

TWO_CELLS = np.zeros((SIZE, SIZE), np.uint16)
TWO_CELLS[2:9, 2:9] = 1
TWO_CELLS[2:9, 12:20] = 2


@pytest.fixture
def masks(tmp_path):
    """Write a label image; returns its path as text."""

    def write(name, labels, **options):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, labels, **options)
        return str(path)

    return write


# -- files ---------------------------------------------------------------------------------


def test_mask_files(masks):
    """The dtype of labels does not count; nothing is a difference, too."""
    a, others = masks("a.tif", HALVES), (HALVES.astype(np.int32), RENUMBERED, 0 * HALVES)
    found = [compare(a, masks("b.tif", labels)) for labels in others]
    assert [each.verdict for each in found] == ["identical", "same-objects", "different"]
    assert [each.differs for each in found] == [(), ("masks",), ("masks",)]


@pytest.mark.parametrize(
    ("labels", "other", "confirmed"),
    [
        (HALVES, HALVES > 0, True),
        (TOUCHING, TOUCHING > 0, False),
        (TOUCHING, ndimage.label(TOUCHING)[0], False),
    ],
    ids=["cells apart", "a map of the foreground", "touching cells as one"],
)
def test_numbers_that_are_lost_are_the_cause_and_no_setting(masks, labels, other, confirmed):
    cause = compare(masks("a.tif", labels), masks("b.tif", other.astype(np.uint16))).cause
    assert (cause.name, cause.confirmed) == ("numbers", confirmed)


def test_masks_with_exchanged_axes_are_no_two_images(masks):
    a, b = masks("a.tif", TOUCHING), masks("b.tif", TOUCHING.T)
    with pytest.raises(BadInput, match=r"one size. Reasons may be\n  - B is A transposed, y and x"):
        compare(a, b)
    assert explain(a, b).why.cause.name == "position"
    assert (
        explain(a, masks("b.tif", np.kron(TOUCHING, np.ones((2, 2))))).why.cause.name
        == "image.shape"
    )


def test_every_kind_is_counted_over_all_images(masks, tmp_path):
    joined = np.array([[1, 1, 1, 1, 1]] * 4, np.uint16)
    cut = np.array([[1, 1, 1, 2, 2]] * 4, np.uint16)
    pairs = {"w": (HALVES, ONE_LOST), "x": (HALVES, RENUMBERED), "y": (joined, cut)}
    for name, (a, b) in {**pairs, "z": (cut, joined)}.items():
        masks(f"a/{name}.tif", a)
        masks(f"b/{name}.tif", b)
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert {name: n for name, n in result.n_objects.items() if n} == {
        "a": 7, "b": 6, "matched": 5, "kept": 3, "lost": 1, "split": 1, "merged": 1,
        "renumbered": 2,
    }  # fmt: skip
    assert result.ppm == pytest.approx(1e6 * (8 + 8 + 8) / 80)


def test_masks_older_than_the_file_of_the_gui_beside_them_are_named(masks, tmp_path, invoke):
    for folder, age in (("a", -60), ("b", 60)):
        path = tmp_path / masks(f"{folder}/x_masks.tif", HALVES)
        seg = path.with_name("x_seg.npy")
        np.save(seg, {"masks": RENUMBERED}, allow_pickle=True)
        changed = path.stat().st_mtime + age
        os.utime(seg, (changed, changed))
    notes = invoke("compare", tmp_path / "a", tmp_path / "b", "--json").json["notes"]
    named = [note for note in notes if "x_seg.npy" in note]
    assert len(named) == 1
    assert named[0].startswith("B: x_masks.tif was compared")


def test_folders_of_masks(masks, tmp_path):
    for folder, labels in (("a", HALVES), ("b", RENUMBERED)):
        masks(f"{folder}/x_masks.tif", HALVES)
        masks(f"{folder}/y_masks.tif", labels)
        masks(f"{folder}/x.tif", np.full((4, 5), 7, np.uint16))  # the image is not compared
        (tmp_path / folder / "._x_masks.tif").write_text("left by a desktop")
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    verdicts = {name: str(each.verdict) for name, each in result.masks.items()}
    assert verdicts == {"x": "identical", "y": "same-objects"}
    assert result.verdict == "same-objects"
    masks("b/z_masks.tif", HALVES)
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (result.verdict, result.differs) == ("different", ("masks",))
    assert result.notes == ("only B has masks of z",)
    of_one = compare(str(tmp_path / "a" / "x_masks.tif"), str(tmp_path / "b")).lines()
    assert of_one[:2] == [
        "different: masks, as one side has images that the other lacks",
        "  masks: of the images that both have: A and B have the same 2 cells, pixel for pixel.",
    ]


def test_a_side_without_cells_and_a_crop_are_told_what_to_look_at(masks, invoke):
    halves = masks("a.tif", HALVES)
    empty = masks("b.tif", np.zeros_like(HALVES))
    assert (
        "note: B has no cell. Usual reasons: a network that" in invoke("compare", halves, empty).out
    )
    whole = masks("whole.tif", WHOLE)
    crop = masks("c.tif", WHOLE[5:35, 15:55])
    refusal = invoke("compare", crop, whole).err
    assert "A shows a part of B, about rows 5 to 34 and columns 15 to 54" in refusal
    assert f"`cellrepro explain {crop} {whole}` compares what both show" in refusal
    enlarged = masks("e.tif", np.kron(WHOLE[:20, :30], np.ones((2, 2), np.uint16)))
    assert (
        "enlarged or reduced, too, which is not looked for"
        in invoke("compare", whole, enlarged).err
    )


NAMES = ("x_masks.tif", "x_cp_masks.png", "x_seg.npy", "x.tif", "x")


@pytest.mark.parametrize(("a", "b"), [*itertools.combinations(NAMES, 2)], ids="-".join)
def test_one_rule_for_names(a, b, masks, tmp_path, masks_named_as_cellpose_does):
    """Folders of files as Cellpose, its GUI and people name them, and a run of the image x."""
    sides = [masks_named_as_cellpose_does(folder, name) for folder, name in (("a", a), ("b", b))]
    result = compare(*sides, store=tmp_path / "outputs")
    assert {name: str(one.verdict) for name, one in result.masks.items()} == {
        "x": "identical",
        "y": "identical",
    }
    assert (result.verdict, result.notes) == ("identical", ())
    save_baseline(sides[0], tmp_path / "a.baseline", store=tmp_path / "outputs")
    assert check_baseline(tmp_path / "a.baseline", sides[1], store=tmp_path / "outputs").ok


@pytest.fixture
def masks_named_as_cellpose_does(tmp_path):
    """Two images' masks in a folder, named like the one given; of ``x`` alone: a stored run."""

    def write(folder, name):
        if name == "x":
            store = Store(tmp_path / "outputs")
            add_run(store, [(1, {"x": TWO_CELLS, "y": TWO_CELLS})])
            return store.runs()[0].key
        (tmp_path / folder).mkdir()
        for image in "xy":
            path = tmp_path / folder / name.replace("x", image, 1)
            if name.endswith("_seg.npy"):
                np.save(path, {"masks": TWO_CELLS, "filename": "x.tif"}, allow_pickle=True)
            elif path.suffix == ".png":
                path.write_bytes(imagecodecs.png_encode(TWO_CELLS))
            else:
                tifffile.imwrite(path, TWO_CELLS)
        return str(tmp_path / folder)

    return write


def test_masks_of_the_gui_count_for_images_without_others(masks, tmp_path):
    """Cellpose's GUI writes NAME_seg.npy beside the masks that it exports."""
    for image in "xy":
        seg = {"masks": HALVES, "filename": f"{image}.tif"}
        (tmp_path / "gui").mkdir(exist_ok=True)
        np.save(tmp_path / "gui" / f"{image}_seg.npy", seg, allow_pickle=True)
        masks(f"now/{image}.tif", HALVES)
    masks("gui/x_masks.tif", RENUMBERED)
    result = compare(str(tmp_path / "gui"), str(tmp_path / "now"))
    found = {name: str(each.verdict) for name, each in result.masks.items()}
    assert found == {"x": "same-objects", "y": "identical"}


def test_a_picture_is_no_masks_and_a_foreground_map_gets_a_word(masks, invoke, tmp_path):
    made = nuclei(0)
    cells = masks("x_masks.tif", made.masks)
    refused = invoke("compare", cells, masks("x.tif", made.image))
    assert (refused.code, "a picture, no label image" in refused.err) == (2, True)
    two_channels = tmp_path / "two.ome.tif"
    tifffile.imwrite(two_channels, np.stack([made.image] * 2), metadata={"axes": "CYX"})
    assert invoke("describe", masks("x.tif", made.image)).out.startswith("image: ")
    assert "2 channels" in invoke("describe", two_channels).out
    assert invoke("describe", masks("y_masks.tif", made.image)).code == 2  # its name says masks
    foreground = masks("f.tif", (made.masks > 0).astype(np.uint8))
    assert "every number counts as one object; if it is a foreground map" in (
        invoke("describe", foreground).out
    )
    compared = invoke("compare", cells, foreground).out
    assert "cells that touch are one in it" in compared
    assert "counts as one object" not in compared
    apart = masks("apart.tif", ndimage.label(made.masks)[0].astype(np.uint16))
    assert "if it is a foreground map" in invoke("compare", apart, foreground).out


def test_weights_files(tmp_path):
    import torch

    a, b = (str(tmp_path / name) for name in ("a.safetensors", "cpsam"))
    torch.save({"w": torch.ones(4)}, b)  # as Cellpose's, without an ending
    for last, expected in ((1, ("identical", ())), (2, ("different", ("weights",)))):
        save_file({"w": np.array([1, 1, 1, last], np.float32)}, a)
        assert (compare(a, b).verdict, compare(a, b).differs) == expected


def test_networks_without_numbers_prove_nothing(tmp_path, invoke):
    """As a training leaves them that has diverged; what it never changed is still there."""
    given = {"trained": np.full(8, np.nan, np.float32), "fixed": np.ones(4, np.float32)}
    paths = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
    for path in paths:
        save_file(given, path)
    answer = invoke("compare", *paths)
    assert answer.code == 1
    assert answer.out.startswith("vacuous\n")
    assert "vacuous: 8 of 12 parameters are NaN or infinite in A or B" in answer.out


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("a.tif", "turned.tif", "(?s)^A has masks of 4 × 5 pixels .*two different images"),
        ("a.tif", "absent.tif", r"absent\.tif: no such file; check its spelling"),
        ("a.tif", "masks/monday", r"masks/monday: no such file; expected a file, a folder"),
        (
            "a.tif",
            "notes.txt",
            r"notes\.txt is a text; it holds nothing that the lab compares",
        ),
        ("a.tif", "absent.pth", r"absent\.pth: no such file; check its spelling"),
        ("notes.txt", "notes.txt", r"notes\.txt is a text; it holds nothing"),
        ("folder", "empty", "empty is a folder without masks; expected"),
        ("twice", "folder", r"x_masks\.tif and x_masks\.tiff, which are all masks of"),
        ("both", "folder", r"both holds x_cp_masks\.tif and x_masks\.tif, .*; expected one file"),
    ],
)
def test_refusals(masks, tmp_path, a, b, message):
    masks("a.tif", HALVES)
    masks("turned.tif", HALVES.T.copy())
    (tmp_path / "notes.txt").write_text("notes")
    of_one_image = ("twice/x_masks.tif", "twice/x_masks.tiff", "both/x_masks.tif")
    for file in ("folder/x.tif", *of_one_image, "both/x_cp_masks.tif"):
        masks(file, HALVES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=message):
        compare(str(tmp_path / a), str(tmp_path / b))


# -- runs ----------------------------------------------------------------------------------


@pytest.fixture
def first(small_store):
    """The first repeat of the small store."""
    return Store(small_store.root).find(f"{small_store.key}/0")


@pytest.fixture
def compare_changed(small_store, tmp_path):
    """Compare the small store's repeats after something was changed in the second."""
    root = tmp_path / "outputs"
    shutil.copytree(small_store.root, root)
    folder = root / "runs" / small_store.key / small_store.machine / "1"

    def change(*, labels=None, tensors=None, **fields):
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        files = dict(manifest.files)
        if labels is not None:
            path = folder / "masks" / "synth_003.tif"
            tifffile.imwrite(path, labels)
            files["masks/synth_003.tif"] = file_digest(path)
            manifest.masks["synth_003"].digest = array_digest(labels.astype(np.uint32))
        if tensors is not None:
            path = folder / "weights.safetensors"
            save_file(tensors, path)
            files["weights.safetensors"] = file_digest(path)
        changed = manifest.model_copy(update={"files": files, **fields})
        (folder / "manifest.json").write_text(changed.model_dump_json())
        # Without repeats the two of the key are meant; the first with itself would be equal.
        return compare(small_store.key, small_store.key, store=root)

    return change


def test_two_repeats_are_identical(small_store, compare_changed, first):
    result = compare(f"{small_store.key}/0", f"{small_store.key}/1", store=small_store.root)
    assert (result.verdict, result.differs) == ("identical", ())
    assert result.weights.equal
    assert result.ap50[0] == result.ap50[1] is not None
    assert (result.environment, result.spec) == ({}, {})
    untrained = first.manifest.weights.model_copy(update={"n_changed": 0})
    assert compare_changed(weights=untrained).verdict == "vacuous"


def test_another_environment_is_named(compare_changed, first):
    """The machine's numeric class and versions are told by themselves."""
    moved = {"label": "laptop", "identity": "laptop", "driver": "580.1"}
    probes = first.manifest.numeric_class["probes"]
    probe = min(probes)
    result = compare_changed(
        threads=1,
        versions=first.manifest.versions | {"torch": "2.14.0"},
        machine=first.manifest.machine.model_copy(update=moved),
        numeric_class={"name": "another", "probes": probes | {probe: "0" * 64}},
    )
    assert (result.verdict, result.differs) == ("identical", ("environment",))
    assert result.environment["threads"] == (2, 1)
    assert {name: pair[1] for name, pair in result.environment.items()} == {
        "threads": 1,
        "versions.torch": "2.14.0",
        "numeric_class": "another",
        **{f"machine.{name}": value for name, value in moved.items()},
    }
    assert any(probe in note and "the machines compute" in note for note in result.notes)
    same = compare_changed(machine=first.manifest.machine)  # the other changes stay
    said = "this one computer, with 2 threads and with 1, computes different bits in 1 probe"
    assert any(note.startswith(said) for note in same.notes)


def test_other_data_and_another_start_are_named(compare_changed, first):
    result = compare_changed(
        data=first.manifest.data.model_copy(update={"digest": "0" * 64}),
        model=first.manifest.model.model_copy(update={"initial_weights": "0" * 64}),
    )
    assert result.differs == ("data", "weights-init")
    (record,) = first.manifest.masks.values()
    with pytest.raises(BadInput, match=r"/0 and .*/1: 1 and 1 masks, and no image of the"):
        compare_changed(masks={"another": record})


def test_other_masks_and_weights_are_found_in_the_files(compare_changed, first):
    labels = first.masks("synth_003").copy()
    labels[labels == labels.max()] = 0
    result = compare_changed(labels=labels)
    assert (result.verdict, result.differs) == ("different", ("masks",))
    assert result.n_objects["lost"] == 1
    tensors = load_file(first.weights)
    tensors["out.bias"] = np.nextafter(tensors["out.bias"], np.float32(9))
    result = compare_changed(labels=first.masks("synth_003"), tensors=tensors)
    assert (result.verdict, result.differs) == ("different", ("weights",))
    assert result.weights.n_differing == tensors["out.bias"].size


# -- beside what seeds do ------------------------------------------------------------------


def cells(*without, pixels=0):
    """Sixteen squares, some left out, and some pixels beside the first."""
    labels = np.zeros((SIZE, SIZE), np.uint16)
    for i in set(range(16)) - set(without):
        y, x = 12 * (i // 4) + 2, 12 * (i % 4) + 2
        labels[y : y + 6, x : x + 6] = i + 1
    labels[8, 26 : 26 + pixels] = 3
    return labels


@pytest.fixture
def seeds(tmp_path):
    """A store of runs with given seeds, each missing two cells of its own on four images."""
    store = Store(tmp_path / "outputs")

    def made(*numbers):
        for n in numbers:
            images = {f"img_{i}": cells(2 * n + 4, 2 * n + 5, *[n] * (i % 2)) for i in range(4)}
            add_run(store, [(1.0 + n, images)], seed=n)
        return store

    return made


def on_one_thread(store, masks):
    """The run of seed 0 again on a different profile; returns both names."""
    settings = {"name": "cpu-1thread", "threads": 1}
    other = add_run(store, [(1.01, masks)], profile="cpu-1thread", profile_settings=settings)
    (run,) = (r for r in store.runs() if r.spec.seed == 0 and r.spec.profile == "cpu")
    return f"{run.key}/0", f"{other.key}/0"


SLIGHTLY = {f"img_{i}": cells(4, 5, *[0] * (i % 2), pixels=2) for i in range(4)}
WIDELY = {f"img_{i}": cells(*range(4, 13)) for i in range(4)}


@pytest.mark.parametrize(
    ("n_seeds", "masks", "verdict", "told"),
    [
        (3, SLIGHTLY, "within-spread", "0 % of the cells have no match, between seeds 19 %"),
        (3, WIDELY, "different", "more than between any two seeds, which is at most 19 %"),
        (2, SLIGHTLY, "different", "only 2 seeds: not enough to say"),
    ],
    ids=["slightly", "widely", "two seeds"],
)
def test_a_difference_beside_what_seeds_do(seeds, n_seeds, masks, verdict, told):
    store = seeds(*range(n_seeds))
    names = on_one_thread(store, masks)
    found = compare(*names, store=store.root)
    assert found.verdict == verdict
    assert {"spec", "weights", "masks"} <= set(found.differs)
    (note,) = (note for note in found.notes if "beside other random seeds? " in note)
    assert told in note
    assert compare_repeats(*map(store.find, names)).verdict == "different"  # without a store


def test_images_that_one_side_lacks_are_not_within_spread(seeds):
    store = seeds(0, 1, 2)
    fewer = {name: masks for name, masks in SLIGHTLY.items() if name != "img_3"}
    assert compare(*on_one_thread(store, fewer), store=store.root).verdict == "different"


def test_a_terminal_shows_the_first_cells_and_counts_the_others(masks):
    """With the image of each, though the first ones all lie in one image."""
    many = np.kron(np.arange(36).reshape(6, 6), np.ones((4, 4), np.uint16)).astype(np.uint16)
    for image in ("one", "two"):
        masks(f"A/{image}_masks.tif", many)
        path = masks(f"B/{image}_masks.tif", np.where(many > 15, 0, many).astype(np.uint16))
    folder = Path(path).parent.parent
    lines = compare(folder / "A", folder / "B").as_text().splitlines()
    shown = [line for line in lines if " lost " in line]
    assert (len(shown), {line.split()[0] for line in shown}) == (12, {"one"})
    assert "    and 28 more; --json names them all" in lines
