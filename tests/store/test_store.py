"""The store: whole or absent, never overwritten, equal content once, nothing left behind."""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.store import store as store_module
from cellrepro.store.digests import array_digest
from cellrepro.store.store import MANIFEST, NOTEBOOK, WEIGHTS, Repeat, Store


@pytest.fixture
def fill(made_up):
    """Put the files of one made-up repeat into a folder."""

    def put(folder, spec, *, repeat=0, weights=b"weights", label=1, machine=None):
        folder.mkdir()
        (folder / "masks").mkdir()
        (folder / "data").mkdir()
        manifest = made_up.manifest(spec, repeat=repeat, machine=machine or made_up.machine())
        manifest.weights.digest = hashlib.sha256(weights).hexdigest()
        (folder / WEIGHTS).write_bytes(weights)
        masks = np.zeros((4, 5), np.uint16)
        masks[1:3, 1:3] = label
        manifest.masks["cell"].digest = array_digest(masks.astype(np.uint32))
        tifffile.imwrite(folder / "masks" / "cell.tif", masks)
        tifffile.imwrite(folder / "data" / "cell.tif", np.full((4, 5), 9, np.uint8))
        tifffile.imwrite(folder / "data" / "cell_masks.tif", masks.astype(np.int32))
        (folder / MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
        return folder

    return put


@pytest.fixture
def keep(fill):
    """Store one made-up repeat."""

    def commit(store, spec, **content):
        with store.staging() as area:
            return store.commit(fill(area / "repeat", spec, **content), spec)

    return commit


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


# -- one repeat ----------------------------------------------------------------------------


def test_keeps_a_repeat_whole(store, keep, made_up, wholeness):
    spec = made_up.spec()
    repeat = keep(store, spec)
    machine = made_up.machine().name
    assert repeat.folder == store.root / "runs" / spec.key / machine / "0"
    assert (repeat.index, repeat.name) == (0, f"{spec.key}/{machine}/0")
    assert repeat.weights.read_bytes() == b"weights"
    assert repeat.masks("cell").sum() == 4
    assert repeat.manifest.files.keys() == {WEIGHTS, "masks/cell.tif"}
    assert wholeness(store.root) == [f"{spec.key}/0"]
    assert {item.name for item in store.root.iterdir()} == {"runs", "data"}


def test_masks_that_were_changed_afterwards_are_refused(store, keep, made_up):
    repeat = keep(store, made_up.spec())
    path = repeat.folder / "masks" / "cell.tif"
    path.unlink()
    tifffile.imwrite(path, np.ones((4, 5), np.uint16))
    with pytest.raises(BadInput, match=r"cell\.tif are others than were stored: .* copy the store"):
        repeat.masks("cell")
    masks, digest = repeat.masks_on_disk("cell")
    assert masks.all()
    assert digest == array_digest(np.ones((4, 5), np.uint32))


def test_two_references_are_two_repeats(store, keep, made_up):
    spec, other = made_up.spec(), made_up.spec(seed=1)
    keep(store, spec)
    keep(store, other)
    with pytest.raises(BadInput, match=r"no machine has repeat 0 and 1 .* --repeats 2"):
        store.find_two(spec.key, spec.key[:8])
    keep(store, spec, repeat=1)

    def found(a, b):
        return [(run.spec.seed, repeat.index) for run, repeat in store.find_two(a, b)]

    assert found(spec.key, spec.key[:8]) == [(0, 0), (0, 1)]
    assert found(f"{spec.key}/1", spec.key) == [(0, 1), (0, 0)]
    assert found(f"{spec.key}/1", f"{spec.key}/1") == [(0, 1), (0, 1)]
    assert found(other.key, spec.key) == [(1, 0), (0, 0)]


def test_keeps_the_images_once_for_all_runs(store, keep, made_up, listing):
    spec = made_up.spec()
    keep(store, spec)
    before = listing(store.root / "data")
    keep(store, made_up.spec(seed=1), label=2)
    assert listing(store.root / "data") == before
    assert store.image(spec.data_digest, "cell").tolist() == [[9] * 5] * 4
    assert store.truth(spec.data_digest, "cell").dtype == np.int32
    assert store.image(spec.data_digest, "other") is None
    assert store.image("e" * 64, "cell") is None


def test_what_is_stored_is_read_only(store, keep, made_up):
    folder = keep(store, made_up.spec()).folder
    for path in [folder.parent / "spec.json", *folder.rglob("*")]:
        if path.is_file():
            assert path.stat().st_mode & 0o777 == 0o444, path


def test_never_overwrites(store, keep, made_up, listing):
    spec = made_up.spec()
    first = keep(store, spec, weights=b"first")
    before = listing(store.root / "runs"), listing(store.root / "data")
    second = keep(store, spec, weights=b"second")
    assert second.folder == first.folder
    assert second.weights.read_bytes() == b"first"
    assert (listing(store.root / "runs"), listing(store.root / "data")) == before


def test_repeats_of_one_spec_stand_side_by_side(store, keep, made_up):
    spec = made_up.spec()
    for index in (10, 2, 0):
        keep(store, spec, repeat=index)
    run = store.run(spec.key)
    assert run.spec == spec
    assert [repeat.index for repeat in run.repeats] == [0, 2, 10]


def test_the_clock_names_nothing(store, keep, made_up, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    spec = made_up.spec()
    keep(store, spec)
    names = {path.name for path in (store.root / "runs").rglob("*")}
    machine = made_up.machine().name
    assert names == {spec.key, "spec.json", machine, "0", MANIFEST, WEIGHTS, "masks", "cell.tif"}


# -- equal content once --------------------------------------------------------------------


def test_equal_content_is_stored_once(store, keep, made_up):
    spec = made_up.spec()
    a, b = (keep(store, spec, repeat=index) for index in (0, 1))
    c = keep(store, made_up.spec(seed=1), weights=b"other weights")
    assert a.weights.stat().st_ino == b.weights.stat().st_ino
    inodes = {(repeat.folder / "masks" / "cell.tif").stat().st_ino for repeat in (a, b, c)}
    assert len(inodes) == 1
    assert c.weights.stat().st_ino != a.weights.stat().st_ino
    assert (a.folder / MANIFEST).stat().st_ino != (b.folder / MANIFEST).stat().st_ino


def test_a_tampered_twin_is_never_linked(store, keep, made_up):
    spec = made_up.spec()
    first = keep(store, spec)
    first.weights.chmod(0o644)
    first.weights.write_bytes(b"tampere")
    second = keep(store, spec, repeat=1)
    assert second.weights.read_bytes() == b"weights"
    assert second.weights.stat().st_nlink == 1


def test_without_hard_links_copies_are_kept(store, keep, made_up, monkeypatch, wholeness):
    def refuse(*_):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    spec = made_up.spec()
    a, b = (keep(store, spec, repeat=index) for index in (0, 1))
    assert a.weights.stat().st_ino != b.weights.stat().st_ino
    assert len(wholeness(store.root)) == 2


def test_a_damaged_run_does_not_cost_the_next_one(store, keep, made_up, wholeness):
    damaged = keep(store, made_up.spec(seed=1)).folder / MANIFEST
    damaged.chmod(0o644)
    damaged.write_text("")
    spec = made_up.spec()
    assert keep(store, spec).weights.read_bytes() == b"weights"
    shutil.rmtree(damaged.parents[1])
    assert wholeness(store.root) == [f"{spec.key}/0"]


# -- found again ---------------------------------------------------------------------------


def test_finds_by_key_and_by_its_first_digits(store, keep, made_up):
    spec = made_up.spec()
    for index in (0, 1):
        keep(store, spec, repeat=index)
    for reference in (spec.key, spec.key[:3], f"{spec.key}/0", f"{spec.key}/aba"):
        assert store.find(reference)[1].index == 0
    for reference in (f"{spec.key}/1", f"{spec.key}/{made_up.machine().name}/1"):
        assert store.find(reference)[1].index == 1


@pytest.mark.parametrize("reference", ["", "/", "/0", "zzz", "zzz/0", ".."])
def test_finds_nothing(store, keep, made_up, reference):
    key = keep(store, made_up.spec()).manifest.key
    with pytest.raises(BadInput, match=rf"names 0 runs .* of one of its 1 runs: {key}"):
        store.find(reference)


@pytest.mark.parametrize("rest", ["1", "-1", "zero", "abacus/1", "zero/0", "abacus/x", "a/0/0"])
def test_finds_no_such_repeat(store, keep, made_up, rest):
    repeat = keep(store, made_up.spec())
    with pytest.raises(BadInput, match=rf"expected .*KEY/MACHINE/REPEAT.* {repeat.machine}/0"):
        store.find(f"{repeat.manifest.key}/{rest}")


def test_without_a_machine_the_only_one_is_meant_else_this_one(store, keep, made_up, monkeypatch):
    """Refused, with the list, only where neither decides."""
    spec, there, here = made_up.spec(), made_up.machine("there"), made_up.machine("here")
    keep(store, spec, machine=there, repeat=0)
    keep(store, spec, machine=there, repeat=1)
    keep(store, spec, machine=here, repeat=0)

    def found(*references):
        return [repeat.machine for _, repeat in store.find_two(*references)]

    assert found(spec.key, spec.key) == [there.name] * 2
    assert found(f"{spec.key}/1", f"{spec.key}/here") == [there.name, here.name]
    with pytest.raises(BadInput, match=rf"several machines have .*{there.name}/0, 1"):
        store.find(spec.key)
    monkeypatch.setattr(store_module.platform, "numeric_versions", lambda: here.versions)
    monkeypatch.setenv("CELLREPRO_MACHINE", "here")
    assert store.find(spec.key)[1].machine == here.name
    keep(store, spec, machine=here, repeat=1)
    assert found(spec.key, spec.key) == [here.name] * 2
    monkeypatch.setattr(store_module.platform, "numeric_versions", lambda: {"torch": "3.0"})
    with pytest.raises(BadInput, match="several machines have repeat 0 and 1"):
        found(spec.key, spec.key)  # an upgrade makes this another machine


def test_an_ambiguous_beginning_is_refused(store, keep, made_up):
    specs, n = {}, 0
    while not any(len(group) > 1 for group in specs.values()):
        spec = made_up.spec(seed=n)
        specs.setdefault(spec.key[0], []).append(spec)
        n += 1
    pair = next(group for group in specs.values() if len(group) > 1)
    for spec in pair:
        keep(store, spec)
    with pytest.raises(BadInput, match=r"names 2 runs") as refusal:
        store.find(pair[0].key[0])
    assert all(spec.key in str(refusal.value) for spec in pair)


def test_an_empty_store_says_what_to_do(store):
    assert store.runs() == []
    assert store.run("abc") is None
    assert store.failures() == []
    with pytest.raises(BadInput, match=r"one of its 0 runs; train one first"):
        store.find("abc")
    assert not store.root.exists()


def test_what_a_desktop_leaves_in_the_folder_is_no_run(store, keep, made_up):
    key = keep(store, made_up.spec()).manifest.key
    (store.root / "runs" / ".DS_Store").write_text("")
    (store.root / "runs" / "empty").mkdir()
    (store.root / "runs" / key / ".DS_Store").write_text("")
    assert [run.key for run in store.runs()] == [key]
    assert len(store.run(key).repeats) == 1
    with pytest.raises(BadInput, match=rf"of one of its 2 runs: {key}, empty$"):
        store.find(".")


def change_manifest(repeat, change):
    """What somebody who prepares a store can write."""
    path = repeat.folder / MANIFEST
    content = json.loads(path.read_text())
    change(content)
    path.chmod(0o644)
    path.write_text(json.dumps(content))
    return Repeat(repeat.folder)


def renamed(name):
    return lambda content: content["masks"].update({name: content["masks"].pop("cell")})


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["masks"]["cell"].update(file="../../../../secret.tif"),
        lambda content: content["masks"]["cell"].update(file="{outside}/secret.tif"),
        renamed("../../../secret"),
        renamed("{outside}/secret"),
        lambda content: content["files"].update({"../../../../secret.tif": "0" * 64}),
        lambda content: content["data"].update(digest="../../.."),
    ],
    ids=["masks", "masks, absolute", "image", "image, absolute", "files", "data"],
)
def test_a_manifest_that_names_a_file_elsewhere_is_refused(store, keep, made_up, tmp_path, change):
    """Else a store that somebody prepared pulls a file of yours into a report."""
    tifffile.imwrite(tmp_path / "secret.tif", np.ones((4, 5), np.uint16))
    repeat = keep(store, made_up.spec())

    def spelt(content):
        change(content)
        text = json.dumps(content).replace("{outside}", str(tmp_path))
        content.clear()
        content.update(json.loads(text))

    with pytest.raises(BadInput, match=rf"{repeat.folder / MANIFEST} is not a manifest"):
        _ = change_manifest(repeat, spelt).manifest


def test_names_with_dots_and_spaces_stay_inside(store, keep, made_up):
    for seed, name in enumerate(("..cell", "my cell..", "t:0 <b>", "cell$x_1$")):
        spec = made_up.spec(seed=seed)
        repeat = change_manifest(keep(store, spec), renamed(name))
        assert repeat.masks(name).any()
        assert store.image(spec.data_digest, name) is None


@pytest.mark.parametrize(
    ("place", "read"),
    [
        ("runs/{key}/{machine}/0/masks/cell.tif", lambda store, repeat, _: repeat.masks("cell")),
        ("runs/{key}/{machine}/0/masks", lambda store, repeat, _: repeat.masks("cell")),
        ("runs/{key}/{machine}/0/weights.safetensors", lambda store, repeat, _: repeat.weights),
        ("data/{data}/cell.tif", lambda store, _, data: store.image(data, "cell")),
        ("data/{data}/cell_masks.tif", lambda store, _, data: store.truth(data, "cell")),
        ("data/{data}", lambda store, _, data: store.image(data, "cell")),
    ],
)
def test_a_link_out_of_the_store_is_refused(store, keep, made_up, tmp_path, place, read):
    spec = made_up.spec()
    repeat = keep(store, spec)
    path = store.root / place.format(
        key=spec.key, machine=repeat.machine, data=spec.data_digest[:16]
    )
    outside = tmp_path / "elsewhere"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(BadInput, match=rf"{path.name}.* leads out of .*, to {outside}"):
        read(store, repeat, spec.data_digest)


def test_a_store_behind_a_link_is_a_store(store, keep, made_up, tmp_path):
    """People keep what is large on another disk."""
    spec = made_up.spec()
    keep(store, spec)
    for name in ("runs", "data"):
        (store.root / name).rename(tmp_path / name)
        (store.root / name).symlink_to(tmp_path / name)
    (tmp_path / "link").symlink_to(store.root)
    linked = Store(tmp_path / "link")
    (repeat,) = linked.run(spec.key).repeats
    assert repeat.masks("cell").any()
    assert repeat.weights is not None
    assert linked.image(spec.data_digest, "cell") is not None


def test_a_damaged_manifest_is_refused_with_its_path(store, keep, made_up):
    spec = made_up.spec()
    path = keep(store, spec).folder / MANIFEST
    path.chmod(0o644)
    path.write_text(path.read_text()[:-40])
    _, repeat = store.find(f"{spec.key}/0")
    with pytest.raises(BadInput, match=rf"{path} is not a manifest"):
        _ = repeat.manifest


def test_a_damaged_spec_is_refused_with_its_path(store, keep, made_up):
    folder = keep(store, made_up.spec()).folder.parent.parent
    (folder / "spec.json").chmod(0o644)
    (folder / "spec.json").write_text('{"task": "train"}')
    with pytest.raises(BadInput, match=rf"{folder / 'spec.json'} was written by another version"):
        store.runs()


# -- moved and united ----------------------------------------------------------------------


def copy_new(source, target):
    """What ``cp -rn`` does."""
    if not Path(target).exists():
        shutil.copy2(source, target)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_stores_are_united_by_copying(tmp_path, keep, made_up, wholeness, order):
    """Of three machines, one of them after an upgrade: the union holds every repeat of each."""
    shared, alone = made_up.spec(), made_up.spec(seed=1)
    laptop, gpu = made_up.machine("laptop"), made_up.machine("a100", driver="575.1")
    upgraded = made_up.machine("laptop", versions={"torch": "2.16.0"})
    stores = [Store(tmp_path / machine.name) for machine in (laptop, upgraded, gpu)]
    for label, (place, machine) in enumerate(zip(stores, (laptop, upgraded, gpu), strict=True)):
        for index in range(2):
            keep(place, shared, repeat=index, machine=machine, label=label + 1)
    keep(stores[2], alone, machine=gpu)
    first, *rest = (stores[index] for index in order)
    for part, other in itertools.product(("runs", "data"), rest):
        shutil.copytree(
            other.root / part, first.root / part, copy_function=copy_new, dirs_exist_ok=True
        )
    union = Store(first.root)
    assert len(wholeness(union.root)) == 7
    run = union.run(shared.key)
    assert {name: list(repeats) for name, repeats in run.machines.items()} == {
        machine.name: [0, 1] for machine in (laptop, upgraded, gpu)
    }
    assert [
        int(run.machines[machine.name][1].masks("cell").max())
        for machine in (laptop, upgraded, gpu)
    ] == [1, 2, 3]
    assert union.truth(shared.data_digest, "cell") is not None
    assert keep(union, shared, repeat=2, machine=gpu).index == 2


@pytest.mark.parametrize("damage", ["changed", "gone", "unsealed"])
def test_stored_images_are_sealed(store, keep, made_up, damage):
    spec = made_up.spec()
    keep(store, spec)
    path = store.root / "data" / spec.data_digest[:16] / "cell.tif"
    sums = path.with_name("SHA256SUMS")
    assert (
        subprocess.run(["sha256sum", "-c", "--quiet", sums.name], cwd=path.parent).returncode == 0
    )
    assert store.image(spec.data_digest, "cell") is not None
    assert store.image(spec.data_digest, "other") is None
    if damage == "unsealed":
        sums.unlink()
    else:
        path.unlink()
    if damage == "changed":
        tifffile.imwrite(path, np.zeros((4, 5), np.uint8))
    with pytest.raises(BadInput, match=rf"{path} is not as it was stored"):
        store.image(spec.data_digest, "cell")


def test_a_store_that_was_copied_works(tmp_path, store, keep, made_up, wholeness):
    spec = made_up.spec()
    keep(store, spec)
    shutil.copytree(store.root, tmp_path / "copy")
    shutil.rmtree(store.root)
    copy = Store(tmp_path / "copy")
    assert copy.find(spec.key)[0].repeats[0].masks("cell").sum() == 4
    assert copy.truth(spec.data_digest, "cell").sum() == 4
    assert wholeness(copy.root) == [f"{spec.key}/0"]


# -- failures of the grid ------------------------------------------------------------------


def test_failures_are_kept_replaced_and_forgotten(store, made_up):
    spec = made_up.spec()
    for reason in ("first", "second"):
        with store.staging() as area:
            (area / NOTEBOOK).write_text("{}")
            kept = store.keep_failure(area, spec, machine="here", repeat=1, reason=reason)
    assert (kept / NOTEBOOK).read_text() == "{}"
    (failure,) = store.failures()
    assert (failure["key"], failure["repeat"], failure["reason"]) == (spec.key, 1, "second")
    assert failure["folder"] == str(kept)
    assert store.runs() == []
    store.forget_failure(spec.key, "here", 1)
    assert store.failures() == []
    assert not (store.root / "failed").exists()


# -- staging -------------------------------------------------------------------------------


def test_staging_leaves_no_trace(tmp_path):
    root = tmp_path / "not" / "yet" / "there"
    for fails in (False, True):
        with contextlib.suppress(KeyError), Store(root).staging() as area:
            assert area.is_dir()
            (area / "file").write_text("")
            if fails:
                raise KeyError
        assert list(tmp_path.iterdir()) == []


def test_staging_keeps_a_folder_that_was_there(tmp_path, listing):
    root = tmp_path / "outputs"
    root.mkdir()
    with Store(root).staging():
        pass
    assert root.is_dir()
    assert list(root.iterdir()) == []


STAGE_AND_WAIT = """
import sys
from cellrepro.store.store import Store
with Store(sys.argv[1]).staging() as area:
    (area / "weights").write_bytes(b"half")
    print(area, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def other_process(root):
    """Another process in the middle of its staging; yields it and its folder."""
    child = subprocess.Popen(
        [sys.executable, "-c", STAGE_AND_WAIT, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child, Path(child.stdout.readline().strip())
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_only_what_a_dead_process_left_is_swept(store):
    with other_process(store.root) as (child, left):
        with store.staging() as mine:
            assert (left / "weights").read_bytes() == b"half"
        assert left.is_dir(), "swept while its owner was alive"
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert left.is_dir()
        with store.staging() as mine:
            assert not left.exists(), "not swept after its owner was killed"
            assert mine.is_dir()
    assert list(store.root.iterdir()) == []


def test_a_folder_in_the_making_is_not_swept(store, monkeypatch):
    """Between its making and its locking, another process looks for what the dead left."""
    sweep, areas = store_module._sweep, []

    def lock_late(folder):
        sweep(folder.parent)
        descriptor = lock(folder)
        sweep(folder.parent)
        return descriptor

    lock = store_module._lock
    monkeypatch.setattr(store_module, "_lock", lock_late)
    with store.staging() as area:
        sweep(area.parent)
        areas.append(area)
        assert area.is_dir()
    assert not store.root.exists()


@pytest.mark.parametrize("name", ["new-abc", "abc"], ids=["being made", "being removed"])
def test_what_was_killed_outside_its_lock_is_swept_by_age(store, name):
    """A process may be killed before it locked its folder, or while it removed it."""
    old, young = store.root / ".staging" / name, store.root / ".staging" / f"{name}d"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    with store.staging():
        assert not old.exists()
        assert young.exists()


def test_the_area_may_vanish_at_any_moment(store, monkeypatch):
    """Another process removes the empty area just after this one has made it."""
    make, n = store_module.tempfile.mkdtemp, []

    def vanish(**options):
        n.append(1)
        if len(n) < 3:
            Path(options["dir"]).rmdir()
            store.root.rmdir()
        return make(**options)

    monkeypatch.setattr(store_module.tempfile, "mkdtemp", vanish)
    with store.staging() as area:
        assert area.is_dir()
    assert len(n) == 3


# -- refusals ------------------------------------------------------------------------------


def test_a_file_is_no_store(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(BadInput, match=rf"the store {path} is a file"):
        Store(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "root",
    ["/proc/no/store", "/dev/null/store", "{tmp}/notes.txt/store", "{tmp}/" + "n" * 300],
    ids=["in /proc", "below a device", "below a file", "a name too long"],
)
def test_an_unwritable_store(tmp_path, listing, root):
    (tmp_path / "notes.txt").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=r"the store .*(cannot be|name another)"):  # noqa: SIM117
        with Store(root.format(tmp=tmp_path)).staging():
            pytest.fail("entered")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["disk full", "over quota"])
@pytest.mark.parametrize(
    "step", ["_private_folder", "_lock", "_write_whole", "_move", "_write_spec"]
)
def test_a_full_disk(store, keep, made_up, monkeypatch, listing, step, number):
    keep(store, made_up.spec(seed=1))
    before = listing(store.root / "runs")

    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store_module, step, full)
    with pytest.raises(NotPossibleHere, match=r"no space left for the store .*--store"):
        keep(store, made_up.spec())
    assert listing(store.root / "runs") == before
    assert [run.spec.seed for run in store.runs()] == [1]


def test_another_fault_of_the_disk(store, keep, made_up, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(store_module, "_write_whole", broken)
    with pytest.raises(BadInput, match=r"the store .* cannot be written: .*Input/output error"):
        keep(store, made_up.spec())
    assert store.runs() == []


# -- several processes, and sudden ends ----------------------------------------------------

RACE = """
import json, sys
from pathlib import Path
from cellrepro.store.manifest import Manifest
from cellrepro.store.spec import Spec
from cellrepro.store.store import Store
store, me = Store(sys.argv[1]), sys.argv[2]
requests = json.loads(sys.stdin.readline())
print("ready", flush=True)
for spec, manifest in requests:
    spec = Spec(**spec)
    manifest = Manifest(**manifest)
    with store.staging() as area:
        folder = area / "repeat"
        for name in ("masks", "data"):
            (folder / name).mkdir(parents=True)
        (folder / "weights.safetensors").write_text(f"of process {me}" * 1000)
        (folder / "masks" / "cell.tif").write_text("equal in all")
        (folder / "data" / "cell.tif").write_text("image")
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        sys.stdin.readline()
        kept = store.commit(folder, spec)
        print(kept.weights.read_text()[11:12], flush=True)
"""


def test_of_two_processes_that_store_the_same_repeat_one_stays(store, made_up):
    n_rounds, n_processes = 12, 3
    requests = []
    for number in range(n_rounds):
        spec = made_up.spec(seed=number // 2)  # every other round the run's folder is there
        manifest = made_up.manifest(spec, repeat=number % 2)
        requests.append([spec.model_dump(mode="json"), manifest.model_dump(mode="json")])
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACE, str(store.root), str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(n_processes)
        ]
        for child in children:
            print(json.dumps(requests), file=child.stdin, flush=True)
        for child in children:
            assert child.stdout.readline() == "ready\n"
        winners = []
        for _ in range(n_rounds):
            for child in children:
                print("go", file=child.stdin, flush=True)
            winners.append([child.stdout.readline() for child in children])
    assert [child.returncode for child in children] == [0] * n_processes
    # Everybody was told of the same stored repeat, whoever made it.
    assert all(len(set(told)) == 1 for told in winners), winners
    check = []
    for run in store.runs():
        for repeat in run.repeats:
            content = repeat.weights.read_text()
            assert content == content[:12] * 1000, "files of two processes were mixed"
            check.append(content[11:12] + "\n")
    assert sorted(check) == sorted(told[0] for told in winners)
    assert not (store.root / ".staging").exists()


DIE = """
import json, os, signal, sys
from cellrepro.store.manifest import Manifest
from cellrepro.store.spec import Spec
from cellrepro.store.store import Store

spec, manifest = json.loads(sys.stdin.read())
spec, manifest = Spec(**spec), Manifest(**manifest)

def store_one(root):
    store = Store(root)
    with store.staging() as area:
        folder = area / "repeat"
        for name in ("masks", "data"):
            (folder / name).mkdir(parents=True)
        (folder / "weights.safetensors").write_text("weights")
        (folder / "masks" / "cell.tif").write_text("masks")
        (folder / "data" / "cell.tif").write_text("image")
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        store.commit(folder, spec)

TOUCHES = {"os.rename", "os.mkdir", "os.link", "os.chmod", "os.remove", "os.rmdir", "open"}
root, first_left = sys.argv[1], None
for step in range(1, 1000):
    place = f"{root}/{step}"
    child = os.fork()
    if child == 0:
        count = 0
        def watch(event, arguments):
            global count
            if event in TOUCHES and str(arguments[0]).startswith(place):
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(watch)
        store_one(place)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        print(step - 1 if os.WEXITSTATUS(status) == 0 else "failed")
        break
"""


def test_killed_at_every_single_step(tmp_path, keep, made_up, wholeness):
    """Kill -9 before the 1st, 2nd, … change that storing a repeat makes to the disk."""
    spec = made_up.spec()
    manifest = made_up.manifest(spec)
    manifest.weights.digest = hashlib.sha256(b"weights").hexdigest()
    request = [spec.model_dump(mode="json"), manifest.model_dump(mode="json")]
    done = subprocess.run(
        [sys.executable, "-c", DIE, str(tmp_path)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    n_steps = int(done.stdout)
    assert n_steps > 20
    stored = []
    for step in range(1, n_steps + 1):
        root = tmp_path / str(step)
        stored.append(len(wholeness(root)))
        keep(Store(root), spec)  # the same again works, and clears what was left
        assert wholeness(root) == [f"{spec.key}/0"]
        young = [
            item for item in root.glob(".staging/*") if time.time() - item.stat().st_mtime < 60
        ]
        assert all(item.name.startswith("new-") or not any(item.iterdir()) for item in young)
    assert 0 in stored
    assert 1 in stored
