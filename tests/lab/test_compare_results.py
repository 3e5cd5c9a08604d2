"""Two named things compared: runs, masks, folders, weights; and refusals."""

import json
import shutil
import weakref

import numpy as np
import pytest
import tifffile
from safetensors.numpy import load_file, save_file

from cellrepro.errors import BadInput
from cellrepro.images.reading import read_labels
from cellrepro.lab import compare_results
from cellrepro.lab.compare_results import compare, compare_repeats
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Store
from stores import SIZE, add_run

HALVES = np.array([[1, 1, 0, 2, 2]] * 4, np.uint16)
RENUMBERED = np.array([[2, 2, 0, 1, 1]] * 4, np.uint16)
ONE_LOST = np.array([[1, 1, 0, 0, 0]] * 4, np.uint16)
NOTHING = np.zeros_like(HALVES)


@pytest.fixture
def masks(tmp_path):
    """Write a label image; returns its path as text."""

    def write(name, labels):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, labels)
        return str(path)

    return write


# -- mask files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "verdict", "differs"),
    [
        (HALVES, "identical", ()),
        (HALVES.astype(np.int32), "identical", ()),
        (RENUMBERED, "same-objects", ("masks",)),
        (ONE_LOST, "different", ("masks",)),
    ],
    ids=["equal", "another dtype", "renumbered", "one lost"],
)
def test_mask_files(masks, labels, verdict, differs):
    result = compare(masks("a.tif", HALVES), masks("b.tif", labels))
    assert (result.verdict, result.differs) == (verdict, differs)
    assert result.weights is None


def test_counts_and_ppm(masks):
    result = compare(masks("a.tif", HALVES), masks("b.tif", ONE_LOST))
    counts = {"a": 2, "b": 1, "matched": 1, "kept": 1, "lost": 1}
    none = dict.fromkeys(("moved", "gained", "split", "merged", "renumbered"), 0)
    assert result.n_objects == counts | none
    assert result.n_unmatched == 1
    assert result.ppm == pytest.approx(1e6 * 8 / 20)


def test_every_kind_is_counted_over_all_images(masks, tmp_path):
    joined = np.array([[1, 1, 1, 1, 1]] * 4, np.uint16)
    cut = np.array([[1, 1, 1, 2, 2]] * 4, np.uint16)
    for name, a, b in (("x", HALVES, RENUMBERED), ("y", joined, cut), ("z", cut, joined)):
        masks(f"a/{name}.tif", a)
        masks(f"b/{name}.tif", b)
    found = compare(str(tmp_path / "a"), str(tmp_path / "b")).n_objects
    assert {name: n for name, n in found.items() if n} == {
        "a": 5, "b": 5, "matched": 4, "kept": 2, "split": 1, "merged": 1, "renumbered": 2,
    }  # fmt: skip


def test_masks_of_two_shapes_are_refused_by_name(masks):
    with pytest.raises(BadInput, match=r"cells.tif: label images differ in shape: .*\(4, 5\)"):
        compare(masks("cells.tif", HALVES), masks("b.tif", HALVES.T.copy()))


# -- folders -------------------------------------------------------------------------------


def test_the_largest_label_is_a_label_like_any_other(masks):
    large = np.where(HALVES == 2, np.uint32(2**32 - 1), HALVES)
    result = compare(masks("a.tif", HALVES), masks("b.tif", large))
    assert result.verdict == "same-objects"
    assert [change.labels_b for change in result.masks["a.tif"].objects] == [(1,), (2**32 - 1,)]


def test_stacks_are_compared_whole(masks, tmp_path):
    """An object that two planes share is one, and has a position in three dimensions."""
    stack = np.zeros((5, 8, 9), np.uint16)
    stack[1:3, 2:6, 2:6] = 4
    more = stack.copy()
    more[4, 0, 0] = 5
    np.save(tmp_path / "b.npy", more)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, stack, metadata={"axes": "ZYX"})
    (found,) = compare(str(path), str(tmp_path / "b.npy")).masks.values()
    assert [(change.kind, change.position) for change in found.objects] == [
        ("kept", (1.5, 3.5, 3.5)),
        ("gained", (4, 0, 0)),
    ]


@pytest.mark.parametrize(
    ("labels", "metadata", "message"),
    [
        (np.zeros((4, 8, 9), np.uint16), {"axes": "TYX"}, "each image of a series on its own"),
        (np.zeros((4, 8, 9), np.uint16), {"axes": "CYX"}, "colours or channels"),
        (np.zeros((2, 4, 8, 9), np.uint16), {"axes": "TZYX"}, "each image of a series"),
        (np.full((8, 9), 0.5, np.float32), {}, "72 labels are fractions"),
        (np.full((8, 9), -1, np.int16), {}, "negative labels down to -1"),
    ],
    ids=["series", "channels", "series of stacks", "fractions", "negative"],
)
def test_other_images_than_labels_are_refused(tmp_path, labels, metadata, message):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, labels, photometric="minisblack", metadata=metadata)
    with pytest.raises(BadInput, match=message):
        compare(str(path), str(path))


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"], ids=repr)
def test_a_damaged_array_is_refused(tmp_path, content):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.npy"):
        compare(str(path), str(path))


def test_an_array_of_objects_is_refused(tmp_path):
    """It would run code that the file brings along."""
    np.save(tmp_path / "a.npy", np.array([print, None]), allow_pickle=True)
    with pytest.raises(BadInput, match=r"numpy\.save"):
        compare(str(tmp_path / "a.npy"), str(tmp_path / "a.npy"))


def test_folders_of_masks(masks, tmp_path):
    for folder in "ab":
        masks(f"{folder}/x_masks.tif", HALVES)
        masks(f"{folder}/x.tif", np.full((4, 5), 7, np.uint16))  # the image is not compared
    masks("a/y_masks.tif", HALVES)
    masks("b/y_masks.tif", RENUMBERED)
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert {name: str(each.verdict) for name, each in result.masks.items()} == {
        "x_masks": "identical",
        "y_masks": "same-objects",
    }
    assert result.verdict == "same-objects"
    assert result.n_objects["a"] == 4


def test_a_mask_that_one_side_lacks_is_a_difference(masks, tmp_path):
    for name in ("a/x.tif", "b/x.tif", "b/y.tif"):
        masks(name, HALVES)
    result = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (result.verdict, result.differs) == ("different", ("masks",))
    assert result.notes == ("only one side has y",)


def test_folders_that_share_nothing(masks, tmp_path):
    masks("a/x.tif", HALVES)
    (tmp_path / "b").mkdir()
    with pytest.raises(BadInput, match=r"/a \(1 mask files\) and .*/b \(0\) share no file name"):
        compare(str(tmp_path / "a"), str(tmp_path / "b"))


# -- weights -------------------------------------------------------------------------------


def test_weights_files(tmp_path):
    save_file({"w": np.ones(4, np.float32)}, tmp_path / "a.safetensors")
    save_file({"w": np.ones(4, np.float32)}, tmp_path / "b.safetensors", metadata={"other": "x"})
    save_file({"w": np.array([1, 1, 1, 2], np.float32)}, tmp_path / "c.safetensors")
    a, b, c = (str(tmp_path / f"{name}.safetensors") for name in "abc")
    assert (compare(a, b).verdict, compare(a, b).differs) == ("identical", ())
    result = compare(a, c)
    assert (result.verdict, result.differs) == ("different", ("weights",))
    assert result.weights.n_differing == 1


# -- refusals ------------------------------------------------------------------------------


def test_one_path_and_something_else(masks, tmp_path):
    a = masks("a.tif", HALVES)
    with pytest.raises(BadInput, match=rf"absent.tif is not there, but {a} is a path"):
        compare(a, str(tmp_path / "absent.tif"))


def test_two_kinds(masks, tmp_path):
    a = masks("a.tif", HALVES)
    for other in (tmp_path, tmp_path / "b.safetensors", tmp_path / "notes.txt"):
        if not other.exists():
            other.write_text("")
        with pytest.raises(BadInput, match=r"are not of one kind; expected two mask files"):
            compare(a, str(other))


def test_two_files_that_are_nothing_of_the_kind(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(
        BadInput, match=r"notes.txt is no weights file .*expected \.safetensors, or"
    ):
        compare(str(tmp_path / "notes.txt"), str(tmp_path / "notes.txt"))


def test_weights_of_cellpose_beside_those_of_a_run(tmp_path):
    torch = pytest.importorskip("torch")
    save_file({"w": np.ones(4, np.float32)}, tmp_path / "run.safetensors")
    torch.save({"w": torch.ones(4)}, tmp_path / "cpsam")
    found = compare(str(tmp_path / "run.safetensors"), str(tmp_path / "cpsam"))
    assert (found.verdict, found.weights.n_parameters) == ("identical", 4)


def test_folders_are_read_image_by_image(masks, tmp_path, monkeypatch):
    """Two masks of one image at a time, and those before them, not all there are."""
    for side in "ab":
        (tmp_path / side).mkdir()
        for n in range(8):
            masks(f"{side}/{n}.tif", HALVES)
    alive, most = [], []

    def watched(path):
        labels = read_labels(path)
        alive.append(weakref.ref(labels))
        most.append(sum(one() is not None for one in alive))
        return labels

    monkeypatch.setattr(compare_results, "read_labels", watched)
    assert len(compare(str(tmp_path / "a"), str(tmp_path / "b")).masks) == 8
    assert max(most) <= 4


def test_what_is_passed_over_in_a_folder_is_said(masks, tmp_path):
    """Beside marked masks a plain file is an image if it has its own, and doubtful if not."""
    for folder in ("one", "two"):
        for name in ("a.tif", "b.tif", "b_masks.tif"):
            masks(f"{folder}/{name}", np.array([[0, 1]], np.uint16))
    masks("two/a.tif", np.array([[1, 0]], np.uint16))
    for name in ("one/._b_masks.tif", "two/._a.tif", "two/Thumbs.db", "two/.DS_Store"):
        (tmp_path / name).write_text("left by a desktop")
    result = compare(str(tmp_path / "one"), str(tmp_path / "two"))
    assert result.masks.keys() == {"b_masks"}
    assert result.notes == ("not compared, as others there are called NAME_masks: a.tif",)


def test_two_masks_of_one_name_are_refused(masks, tmp_path):
    for name in ("a_masks.tif", "a_masks.tiff"):
        masks(name, np.array([[0, 1]], np.uint16))
    with pytest.raises(BadInput, match=r"a_masks\.tif and a_masks\.tiff have one name"):
        compare(str(tmp_path), str(tmp_path))


def test_a_foreground_map_is_noticed(masks):
    """All cells under one number are one object; a cell in one piece is no reason to doubt."""
    blobs = np.zeros((8, 9), np.uint16)
    blobs[1:3, 1:3] = blobs[5:7, 5:7] = 255
    whole = np.where(np.arange(9) < 4, 1, 0) * np.ones((8, 1), np.uint16)
    result = compare(masks("a.tif", blobs), masks("b.tif", whole.astype(np.uint16)))
    (note,) = result.notes
    assert note.startswith("a.tif of A has one label (255) in 2 pieces, compared as one object")


def test_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(BadInput, match=r"there is no file nowhere\.tif"):
        compare("nowhere.tif", "elsewhere.tif", store=tmp_path)


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
        if labels is not None:
            (record,) = manifest.masks.values()
            tifffile.imwrite(folder / record.file, labels)
        if tensors is not None:
            save_file(tensors, folder / "weights.safetensors")
        changed = manifest.model_copy(update=fields)
        (folder / "manifest.json").write_text(changed.model_dump_json())
        return compare(f"{small_store.key}/0", f"{small_store.key}/1", store=root)

    return change


def test_two_repeats_are_identical(small_store):
    result = compare(f"{small_store.key}/0", f"{small_store.key}/1", store=small_store.root)
    assert (result.verdict, result.differs) == ("identical", ())
    assert result.weights.equal
    assert result.ap50[0] == result.ap50[1] is not None
    assert not result.environment
    assert not result.spec


def test_a_key_twice_is_its_two_repeats(compare_changed, small_store, tmp_path):
    """The first repeat compared with itself would be equal whatever the second is."""
    compare_changed(threads=1)
    root = tmp_path / "outputs"
    assert compare(small_store.key, small_store.key, store=root).environment["threads"] == (2, 1)


def test_other_surroundings_are_named(compare_changed):
    result = compare_changed(threads=1, versions={"torch": "2.14.0"})
    assert (result.verdict, result.differs) == ("identical", ("environment",))
    assert result.environment["threads"] == (2, 1)
    assert result.environment["versions.torch"][1] == "2.14.0"


def test_another_machine_is_named(compare_changed, first):
    """Also where nothing else of the environment differs; the numeric class is told by itself."""
    moved = {"label": "laptop", "identity": "laptop", "driver": "580.1"}
    result = compare_changed(machine=first.manifest.machine.model_copy(update=moved))
    assert result.differs == ("environment",)
    assert {name: pair[1] for name, pair in result.environment.items()} == {
        f"machine.{name}": value for name, value in moved.items()
    }


def test_other_data_and_another_start_are_named(compare_changed, first):
    result = compare_changed(
        data=first.manifest.data.model_copy(update={"digest": "0" * 64}),
        model=first.manifest.model.model_copy(update={"initial_weights": "0" * 64}),
    )
    assert result.differs == ("data", "weights-init")


def test_other_masks_are_found_in_the_files(compare_changed, first):
    (name,) = first.manifest.masks
    labels = first.masks(name).copy()
    labels[labels == labels.max()] = 0
    result = compare_changed(labels=labels)
    assert (result.verdict, result.differs) == ("different", ("masks",))
    assert result.n_objects["lost"] == 1
    (note,) = (note for note in result.notes if "manifest" in note)
    assert note.startswith(f"the masks of {name} in ")
    assert "/1 are others than its manifest says" in note


def test_renumbered_masks_are_the_same_objects(compare_changed, first):
    (name,) = first.manifest.masks
    labels = first.masks(name)
    result = compare_changed(labels=np.where(labels, labels.max() + 1 - labels, 0).astype("u2"))
    assert (result.verdict, result.differs) == ("same-objects", ("masks",))


def test_other_weights_are_found_in_the_files(compare_changed, first):
    tensors = load_file(first.weights)
    tensors["out.bias"] = np.nextafter(tensors["out.bias"], np.float32(9))
    result = compare_changed(tensors=tensors)
    assert (result.verdict, result.differs) == ("different", ("weights",))
    assert result.weights.n_differing == tensors["out.bias"].size


def test_equal_weights_that_were_never_trained_are_vacuous(compare_changed, first):
    untrained = first.manifest.weights.model_copy(update={"n_changed": 0})
    assert compare_changed(weights=untrained).verdict == "vacuous"


def test_runs_over_other_images_are_refused(compare_changed, first):
    (record,) = first.manifest.masks.values()
    with pytest.raises(BadInput, match=r"/0 and .*/1 segmented no image of the same name"):
        compare_changed(masks={"another": record})


def test_two_numeric_classes_are_named_and_their_probes_counted(small_store, tmp_path):
    """The machine's class stands in the environment, and a note says which operations moved."""
    shutil.copytree(small_store.root, tmp_path / "outputs")
    store = Store(tmp_path / "outputs")
    run = store.run(small_store.key)
    first, second = run.repeats
    same = compare_repeats(first, second)
    assert "numeric_class" not in same.environment
    assert first.manifest.numeric_class["probes"]
    path = second.folder / "manifest.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain["numeric_class"]["name"] = "another"
    probe = sorted(plain["numeric_class"]["probes"])[0]
    plain["numeric_class"]["probes"][probe] = "0" * 64
    path.chmod(0o644)
    path.write_text(json.dumps(plain), encoding="utf-8")
    again = Store(tmp_path / "outputs").run(small_store.key)
    found = compare_repeats(*again.repeats[:2])
    assert found.environment["numeric_class"][1] == "another"
    assert "environment" in found.differs
    assert any(probe in note and "1 of" in note for note in found.notes)


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
    """The run of seed 0 again on another profile; returns both names."""
    settings = {"name": "cpu-1thread", "threads": 1}
    other = add_run(store, [(1.01, masks)], profile="cpu-1thread", profile_settings=settings)
    (run,) = (r for r in store.runs() if r.spec.seed == 0 and r.spec.profile == "cpu")
    return f"{run.key}/0", f"{other.key}/0"


SLIGHTLY = {f"img_{i}": cells(4, 5, *[0] * (i % 2), pixels=2) for i in range(4)}
WIDELY = {f"img_{i}": cells(*range(4, 13)) for i in range(4)}


@pytest.mark.parametrize(
    ("numbers", "masks", "verdict", "told"),
    [
        (range(3), SLIGHTLY, "within-spread", "0 % of the cells changed, between seeds 19 %"),
        (range(3), WIDELY, "different", "not shown to be less than seeds do"),
        (range(2), SLIGHTLY, "different", "only 2 seeds: not enough to say"),
        (range(1), SLIGHTLY, "different", "no other seed: not enough to say"),
    ],
    ids=["slightly", "widely", "two seeds", "one seed"],
)
def test_a_difference_beside_what_seeds_do(seeds, numbers, masks, verdict, told):
    store = seeds(*numbers)
    names = on_one_thread(store, masks)
    found = compare(*names, store=store.root)
    assert found.verdict == verdict
    assert {"spec", "weights", "masks"} <= set(found.differs)
    assert found.spread is not None
    assert found.spread.within is (verdict == "within-spread")
    (note,) = (note for note in found.notes if note.startswith("beside seeds: "))
    assert told in note


def test_nothing_is_within_spread_without_a_store(seeds):
    store = seeds(0, 1, 2)
    pair = [store.find(name) for name in on_one_thread(store, SLIGHTLY)]
    found = compare_repeats(*pair)
    assert (found.verdict, found.spread) == ("different", None)


def test_two_seeds_stay_different(seeds):
    store = seeds(0, 1, 2)
    first, second = (f"{run.key}/0" for run in store.runs() if run.spec.seed < 2)
    found = compare(first, second, store=store.root)
    assert found.verdict == "different"
    assert any("3 pairs of 3 seeds changed" in note for note in found.notes)


def test_equal_runs_are_not_held_against_seeds(seeds):
    store = seeds(0, 1, 2)
    (run,) = (run for run in store.runs() if run.spec.seed == 0)
    found = compare(f"{run.key}/0", f"{run.key}/0", store=store.root)
    assert (found.verdict, found.spread, found.notes) == ("identical", None, ())


def test_found_nothing_is_not_within_spread(seeds):
    store = seeds(0, 1, 2)
    names = on_one_thread(store, {f"img_{i}": np.zeros((SIZE, SIZE), "u2") for i in range(4)})
    found = compare(*names, store=store.root)
    assert found.verdict == "different"
    assert found.spread.changed[0] == 1


def test_masks_changed_on_disk_are_not_within_spread(seeds):
    """The files are compared, not the digests that the manifests hold."""
    store = seeds(0, 1, 2)
    names = on_one_thread(store, SLIGHTLY)
    folder = store.find(names[1]).folder
    for path in (folder / "masks").iterdir():
        path.chmod(0o644)
        tifffile.imwrite(path, np.zeros((SIZE, SIZE), "u2"))
    assert compare(*names, store=store.root).verdict == "different"


def test_images_that_one_side_lacks_are_not_within_spread(seeds):
    store = seeds(0, 1, 2)
    fewer = {name: masks for name, masks in SLIGHTLY.items() if name != "img_3"}
    found = compare(*on_one_thread(store, fewer), store=store.root)
    assert (found.verdict, found.spread) == ("different", None)
