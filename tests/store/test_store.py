"""The store: whole or absent, never overwritten, equal content once, nothing left behind."""

import contextlib
import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tifffile
import torch

from cellrepro.store import machine_identity, removal
from cellrepro.store.references import short_reference
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, NOTEBOOK, WEIGHTS, Repeat
from samebits.digests import array_digest, file_digest
from samebits.errors import BadInput, NotPossibleHere
from stores import add_run, some_machine, squares, three


@pytest.fixture
def keep(made_up):
    """Store one made-up repeat."""

    def commit(store, spec, *, repeat=0, weights=b"weights", label=1, machine=None):
        masks = np.zeros((4, 5), np.uint16)
        masks[1:3, 1:3] = label
        manifest = made_up.manifest(spec, repeat=repeat, machine=machine or made_up.machine())
        manifest.weights.digest = hashlib.sha256(weights).hexdigest()
        manifest.masks["cell"].digest = array_digest(masks.astype(np.uint32))
        with store.staging() as area:
            folder = area / "repeat"
            for name in ("masks", "data"):
                (folder / name).mkdir(parents=True)
            (folder / WEIGHTS).write_bytes(weights)
            tifffile.imwrite(folder / "masks" / "cell.tif", masks)
            tifffile.imwrite(folder / "data" / "cell.tif", np.full((4, 5), 9, np.uint8))
            tifffile.imwrite(folder / "data" / "cell_masks.tif", masks.astype(np.int32))
            (folder / MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
            return store.commit(folder, spec)

    return commit


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


FORK = multiprocessing.get_context("fork")
# Python 3.12 warns of every fork of a process with threads.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def rewrite(path, text):
    """What somebody who prepares a store can do to its files."""
    path.chmod(0o644)
    path.write_text(text)


def test_keeps_a_repeat_whole_and_read_only(store, keep, made_up, wholeness):
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
    for path in [repeat.folder.parents[1] / "spec.json", *repeat.folder.rglob("*")]:
        assert path.is_dir() or path.stat().st_mode & 0o777 == 0o444, path


def test_masks_and_images_that_were_changed_afterwards_are_refused(store, keep, made_up):
    spec = made_up.spec()
    repeat = keep(store, spec)
    path = repeat.folder / "masks" / "cell.tif"
    path.unlink()
    tifffile.imwrite(path, np.ones((4, 5), np.uint16))
    with pytest.raises(BadInput, match=r"cell\.tif is damaged: .* copy the store"):
        repeat.masks("cell")
    path.write_bytes(b"II*")
    with pytest.raises(BadInput, match=r"cell\.tif is damaged"):
        repeat.masks("cell")
    path = store.root / "data" / spec.data_digest[:16] / "cell.tif"
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=path.parent, check=True)
    path.unlink()
    for _ in range(2):
        with pytest.raises(BadInput, match=rf"{path} is not as it was stored"):
            store.image(spec.data_digest, "cell")
        tifffile.imwrite(path, np.zeros((4, 5), np.uint8))


def test_never_overwrites_and_keeps_the_images_once(store, keep, made_up, listing):
    spec = made_up.spec()
    first = keep(store, spec, weights=b"first")
    before = listing(store.root / "runs"), listing(store.root / "data")
    second = keep(store, spec, weights=b"second")
    assert (second.folder, second.weights.read_bytes()) == (first.folder, b"first")
    assert (listing(store.root / "runs"), listing(store.root / "data")) == before
    keep(store, made_up.spec(seed=1), label=2)
    assert listing(store.root / "data") == before[1]
    assert store.image(spec.data_digest, "cell").tolist() == [[9] * 5] * 4
    assert store.truth(spec.data_digest, "cell").dtype == np.int32
    assert store.image(spec.data_digest, "other") is store.image("e" * 64, "cell") is None


def test_equal_repeats_are_stored_once_and_a_tampered_twin_is_never_linked(store, keep, made_up):
    a, b = (keep(store, made_up.spec(), repeat=index) for index in (0, 1))
    c = keep(store, made_up.spec(seed=1), weights=b"different weights")
    assert a.weights.samefile(b.weights)
    assert not a.weights.samefile(c.weights)
    assert not a.weights.stat().st_mode & 0o222
    rewrite(a.weights, "tampere")
    third = keep(store, made_up.spec(), repeat=2)
    assert (third.weights.read_bytes(), third.weights.stat().st_nlink) == (b"weights", 1)


def test_storing_and_finding_read_no_more_the_more_runs_there_are(
    store, keep, made_up, monkeypatch
):
    reads = []
    read_bytes = Path.read_bytes

    def noted(path):
        reads.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", noted)

    def manifests_read(do):
        reads.clear()
        return do(), reads.count("manifest.json")

    for seed in range(6):
        repeat, n_read = manifests_read(lambda seed=seed: keep(store, made_up.spec(seed=seed)))
        assert n_read == 1  # its own
    key = repeat.folder.parents[1].name
    assert manifests_read(lambda: store.find(key[:9])) == (repeat, 0)
    for index in range(1, 5):
        _, n_read = manifests_read(lambda i=index: keep(store, made_up.spec(seed=5), repeat=i))
        assert n_read == 2  # its own, and that of repeat 0


def test_finds_by_key_and_by_its_first_digits(store, keep, made_up):
    spec = made_up.spec()
    for index in (10, 1, 0):
        keep(store, spec, repeat=index)
    assert [repeat.index for repeat in store.run(spec.key).repeats] == [0, 1, 10]
    for rest, index in (("", 0), ("/aba", 0), ("/1", 1), (f"/{made_up.machine().name}/10", 10)):
        assert store.find(spec.key[:3] + rest).index == index


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        *((text, "names no run .* of one of its 2 runs: {}") for text in ("", "..")),
        ("f", "names 2 runs .*{}"),
        *((f"{{}}/{n}", "expected .*KEY/MACHINE/REPEAT.*/0") for n in ("1", "a/0/0")),
    ],
)
def test_finds_nothing_or_too_much(store, keep, made_up, reference, message):
    key, _ = (keep(store, made_up.spec(seed=seed)).manifest.key for seed in (5, 6))  # both: f…
    with pytest.raises(BadInput, match=message.format(key[:4])):
        store.find(reference.format(key))


def test_two_references_are_two_repeats(store, keep, made_up):
    spec, other = made_up.spec(), made_up.spec(seed=1)
    keep(store, spec)
    keep(store, other)
    with pytest.raises(BadInput, match=r"no machine has repeat 0 and 1 .*--repeats 2"):
        store.find_two(spec.key, spec.key[:8])
    keep(store, spec, repeat=1)
    for a, b, expected in (
        (spec.key, spec.key[:8], [(0, 0), (0, 1)]),
        (f"{spec.key}/1", spec.key, [(0, 1), (0, 0)]),
        (f"{spec.key}/1", f"{spec.key}/1", [(0, 1), (0, 1)]),
        (other.key, spec.key, [(1, 0), (0, 0)]),
    ):
        found = store.find_two(a, b)
        assert [(repeat.spec.seed, repeat.index) for repeat in found] == expected


def test_without_a_machine_the_only_one_is_meant_else_this_one(store, keep, made_up, monkeypatch):
    """Refused, with the list, only where neither decides."""
    monkeypatch.setenv(machine_identity.MACHINE_VARIABLE, "here")
    spec, there = made_up.spec(), made_up.machine("there")
    here = machine_identity.machine(torch.device("cpu"), "0a")
    for machine, repeat in ((there, 0), (there, 1), (here, 0)):
        keep(store, spec, machine=machine, repeat=repeat)
    pair = store.find_two(spec.key, spec.key)
    assert [(one.machine, one.index) for one in pair] == [(there.name, 0), (there.name, 1)]
    assert store.find(f"{spec.key}/there").machine == there.name
    assert store.find(spec.key).machine == here.name
    monkeypatch.setenv(machine_identity.MACHINE_VARIABLE, "another")
    with pytest.raises(BadInput, match=rf"on 2 machines.*{there.name}/0, 1"):
        store.find(spec.key)


def test_an_empty_store_says_what_to_do_and_what_a_desktop_leaves_is_no_run(store, keep, made_up):
    assert (store.runs(), store.run("abc"), store.failures()) == ([], None, [])
    with pytest.raises(
        BadInput, match=r"no such file or folder, and it names no run, as the store .* is not there"
    ):
        store.find("abc")
    assert not store.root.exists()
    run = keep(store, made_up.spec()).folder.parents[1]
    for folder in (run, run.parent):
        (folder / ".DS_Store").write_text("")
    assert [len(run.repeats) for run in store.runs()] == [1]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["masks"]["cell"].update(file="/etc/secret.tif"),
        lambda content: content["masks"].update({"../secret": content["masks"].pop("cell")}),
        lambda content: content["data"].update(digest="../../.."),
    ],
)
def test_a_manifest_that_names_a_file_elsewhere_is_refused(store, keep, made_up, change):
    """Else a store that somebody prepared pulls a file of yours into a report."""
    path = keep(store, made_up.spec()).folder / MANIFEST
    content = json.loads(path.read_text())
    change(content)
    rewrite(path, json.dumps(content))
    with pytest.raises(BadInput, match=rf"{path} is not a manifest"):
        _ = Repeat(path.parent).manifest


@pytest.mark.parametrize("place", ["runs/{key}/{machine}/0/masks", "data/{data}/cell.tif"])
def test_a_link_out_of_the_store_is_refused(store, keep, made_up, tmp_path, place):
    spec = made_up.spec()
    repeat = keep(store, spec)
    names = {"key": spec.key, "machine": repeat.machine, "data": spec.data_digest[:16]}
    path, outside = store.root / place.format(**names), tmp_path / "elsewhere"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(BadInput, match=rf"{path.name}.* leads out of .*, to {outside}"):  # noqa: PT012
        repeat.masks("cell")
        store.image(spec.data_digest, "cell")


def test_what_is_damaged_is_refused_with_its_path_and_costs_no_other_run(store, keep, made_up):
    damaged = keep(store, made_up.spec(seed=1)).folder
    rewrite(damaged / MANIFEST, "{")
    assert keep(store, made_up.spec()).weights.read_bytes() == b"weights"
    spec = damaged.parents[1] / "spec.json"
    rewrite(spec, '{"task": "train"}')
    with pytest.raises(BadInput, match=rf"{spec} is not a spec"):
        store.run(spec.parent.name)


def test_stores_are_united_by_copying(tmp_path, keep, made_up, wholeness):
    """Of a machine before and after an upgrade: the union holds every repeat of each."""
    shared, alone = made_up.spec(), made_up.spec(seed=1)
    machines = (made_up.machine(), made_up.machine(versions={"torch": "2.16.0"}))
    stores = [Store(tmp_path / machine.name) for machine in machines]
    for label, (place, machine) in enumerate(zip(stores, machines, strict=True), 1):
        for index in range(2):
            keep(place, shared, repeat=index, machine=machine, label=label)
    keep(stores[1], alone)
    first, other = stores
    subprocess.run(["cp", "-rn", other.root / "runs", other.root / "data", first.root])
    assert len(wholeness(first.root)) == 5
    held = first.run(shared.key).machines
    found = {name: [int(one.masks("cell").max()) for one in held[name].values()] for name in held}
    assert found == {machine.name: [n, n] for n, machine in enumerate(machines, 1)}
    assert keep(first, shared, repeat=2).index == 2


def test_failures_are_kept_replaced_and_forgotten(store, made_up):
    spec = made_up.spec()
    odd_name = os.fsdecode(b"\xff.tif")  # no UTF-8, as a message may name it
    for reason in ("first", odd_name):
        with store.staging() as area:
            (area / NOTEBOOK).write_text("{}")
            kept = store.keep_failure(area, spec, machine="here", repeat=1, reason=reason)
    (failure,) = store.failures()
    assert (failure.key, failure.repeat, failure.reason) == (spec.key, 1, odd_name)
    assert (failure.folder, (kept / NOTEBOOK).exists()) == (kept, True)
    store.forget_failure(spec.key, "here", 1)
    assert store.failures() == []
    assert not (store.root / "failed").exists()


@forks
def test_only_what_a_dead_process_left_is_swept(store):
    told = FORK.SimpleQueue()

    def stage_and_wait():
        with store.staging() as area:
            (area / "weights").write_bytes(b"half")
            told.put(area)
            time.sleep(100)

    child = FORK.Process(target=stage_and_wait)
    child.start()
    left = told.get()
    with store.staging():
        assert (left / "weights").read_bytes() == b"half", "swept while its owner was alive"
    child.kill()
    child.join()
    (left.parent / "of the version before").mkdir()  # whose lock was kept elsewhere
    with store.staging() as mine:
        assert {item.name for item in left.parent.iterdir()} == {mine.name, f"{mine.name}.lock"}
    assert list(store.root.iterdir()) == []


def test_what_another_machine_works_in_is_not_swept(store, monkeypatch):
    """Whatever this one makes of its lock: some file systems lock within one machine only."""
    with store.staging() as area:
        left = area.with_name(area.name.replace(area.name[:8], "0123abcd"))
        left.mkdir()
        of_a_dead_process = area.with_name(f"{area.name[:8]}-{2**22 + 1}-{'0' * 16}")
        of_a_dead_process.mkdir()
        of_a_living_one = area.with_name(f"{area.name[:8]}-{os.getppid()}-{'0' * 16}")
        of_a_living_one.mkdir()
        with store.staging():
            assert left.exists()
            assert area.exists(), "this process works in it: its lock says so"
            assert of_a_living_one.exists()
            assert not of_a_dead_process.exists()


@forks
def test_two_processes_at_one_repeat(store, made_up):
    """The second is told; a killed one leaves what it saved, and no lock."""
    spec, told = made_up.spec(), FORK.SimpleQueue()

    def use():
        with store.unfinished(spec, "here", 0) as folder:
            told.put(folder is None)
            if folder is not None:
                (folder / "epoch-00001").mkdir()
                os.kill(os.getpid(), signal.SIGKILL)

    def other_process():
        process = FORK.Process(target=use)
        process.start()
        process.join(60)
        return process.exitcode, told.get()

    with contextlib.suppress(ZeroDivisionError), store.unfinished(spec, "here", 0):
        1 / 0  # noqa: B018
    assert not store.root.exists()  # nothing was saved
    assert other_process() == (-signal.SIGKILL, False)
    assert store.unfinished_specs() == {f"{spec.key}/here/0": spec.model_dump(mode="json")}
    with store.unfinished(spec, "here", 0) as folder:
        with store.unfinished(spec, "here", 1) as beside:
            assert beside is not None
        assert other_process() == (0, True)
        assert (folder / "epoch-00001").is_dir()
    assert list(store.root.iterdir()) == []


@pytest.mark.parametrize("root", ["/proc/no/store", "{tmp}/notes.txt/store", "{tmp}/" + "n" * 300])
def test_an_unwritable_store_and_a_full_disk(tmp_path, listing, keep, made_up, monkeypatch, root):
    (tmp_path / "notes.txt").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=r"the store .*cannot be"):  # noqa: SIM117
        with Store(root.format(tmp=tmp_path)).staging():
            pytest.fail("entered")
    assert listing(tmp_path) == before
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(Path, "rename", Mock(side_effect=full))
    with pytest.raises(NotPossibleHere, match=r"No space left .*--store"):
        keep(Store(tmp_path / "full"), made_up.spec())
    assert not list(tmp_path.rglob("*.safetensors"))


@forks
def test_of_two_processes_that_store_the_same_repeat_one_stays(store, keep, made_up):
    """Every other time of a spec that is there already."""
    both, told = FORK.Barrier(2), FORK.SimpleQueue()

    def put(name):
        for seed, repeat in itertools.product(range(4), range(2)):
            both.wait()
            kept = keep(store, made_up.spec(seed=seed), repeat=repeat, weights=name)
            told.put((seed, repeat, file_digest(kept.weights)))

    processes = [FORK.Process(target=put, args=(name * 10_000,)) for name in (b"a", b"b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    answers = {told.get() for _ in range(16)}
    # Both were told of the same stored repeat, whoever made it.
    stored = [file_digest(one.weights) for run in store.runs() for one in run.repeats]
    assert sorted(stored) == sorted(weights for *_, weights in answers)
    assert not (store.root / ".staging").exists()


TOUCHES = {"os.rename", "os.mkdir", "os.link", "os.chmod", "os.remove", "os.rmdir", "open"}


@forks
def test_killed_at_every_single_step(tmp_path, keep, made_up, wholeness):
    """Kill -9 before the 1st, 2nd, … change that storing a repeat makes to the disk."""
    spec, stored = made_up.spec(), []

    def die_at(root, step):
        left = iter(range(step - 1))

        def watch(event, arguments):
            touched = event in TOUCHES and str(arguments[0]).startswith(str(root))
            if touched and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        keep(Store(root), spec)

    for step in itertools.count(1):
        root = tmp_path / str(step)
        process = FORK.Process(target=die_at, args=(root, step))
        process.start()
        process.join(60)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        stored.append(len(wholeness(root)))
        keep(Store(root), spec)  # the same again works, and clears what was left
        assert wholeness(root) == [f"{spec.key}/0"]
        assert {item.name for item in root.iterdir()} == {"runs", "data"}
    assert len(stored) > 20
    assert set(stored) == {0, 1}


# -- different versions, other axes, other systems ----------------------------------------------


def test_a_run_of_a_newer_version_is_passed_over(store, keep, made_up, capsys):
    """Stores are united by copying: what this version cannot read closes nothing else."""
    old, new = (keep(store, made_up.spec(seed=seed)) for seed in (0, 1))
    path = new.folder.parents[1] / "spec.json"
    rewrite(path, json.dumps(json.loads(path.read_text()) | {"of_the_future": 1}))
    for _ in range(2):
        assert [run.key for run in store.runs()] == [old.spec.key]
    (note,) = capsys.readouterr().err.splitlines()  # said once
    assert note.startswith("note: passed over: ")
    assert str(path) in note
    assert "of_the_future" in note
    with pytest.raises(BadInput, match="of_the_future"):
        store.find(path.parent.name)
    with pytest.raises(BadInput, match="no such file or folder, and it names no run"):
        store.find("ffff")


@pytest.mark.parametrize("axes", [{"z_axis": 0}, {"channel_axis": 0}])
def test_images_are_kept_as_they_were_read(store, keep, made_up, axes):
    """One file is another array where an axis is named; neither takes the other's place."""
    plain, named = made_up.spec(task="segment"), made_up.spec(task="segment", settings=axes)
    assert plain.images_digest == plain.data_digest == named.data_digest
    assert named.images_digest != named.data_digest
    keep(store, plain)
    path = store.root / "data" / plain.images_digest[:16] / "cell.tif"
    assert store.image(named.images_digest, "cell") is None
    keep(store, named)
    assert path.exists()
    assert store.image(named.images_digest, "cell") is not None


def test_a_second_run_where_read_only_files_cannot_be_removed(store, keep, made_up, monkeypatch):
    """As on Windows: the images are there already, and what was staged of them goes."""
    removed = os.unlink

    def as_on_windows(path, *, dir_fd=None):
        if not os.stat(path, dir_fd=dir_fd).st_mode & 0o200:
            raise PermissionError(errno.EACCES, "Access is denied", str(path))
        removed(path, dir_fd=dir_fd)

    keep(store, made_up.spec())
    monkeypatch.setattr(os, "unlink", as_on_windows)
    keep(store, made_up.spec(seed=1))
    assert len(store.runs()) == 2


def test_a_failure_that_was_cut_off_is_still_one(store, made_up, tmp_path):
    spec = made_up.spec()
    folder = store.keep_failure(tmp_path, spec, machine="abacus-0", repeat=1, reason="no memory")
    (whole,) = store.failures()
    assert (whole.reason, whole.repeat) == ("no memory", 1)
    path = folder / "failure.json"
    path.write_bytes(path.read_bytes()[:20])
    (cut,) = store.failures()
    assert (cut.key, cut.machine, cut.repeat) == (spec.key, "abacus-0", 1)
    assert "cannot be read" in cut.reason


def test_a_damaged_unfinished_spec_hides_no_other_one(store, made_up):
    for seed in (1, 2):
        with (
            contextlib.suppress(ZeroDivisionError),
            store.unfinished(made_up.spec(seed=seed), "here", 0) as folder,
        ):
            (folder / "epoch-00001").mkdir()
            1 / 0  # noqa: B018
    damaged, whole = (f"{made_up.spec(seed=seed).key}/here/0" for seed in (1, 2))
    (store.root / "unfinished" / damaged / "spec.json").write_bytes(b"{")
    specs = store.unfinished_specs()
    assert specs == {damaged: None, whole: made_up.spec(seed=2).model_dump(mode="json")}


def test_rules_for_new_requests_are_not_asked_of_stored_runs(store, keep, made_up):
    """SGD does nothing and is refused; a run that was stored with it can still be read."""
    repeat = keep(store, made_up.spec())
    path = repeat.folder.parents[1] / "spec.json"
    document = json.loads(path.read_text()) | {"SGD": True, "train_probs": [["a", 1.0]]}
    rewrite(path, json.dumps(document | {"settings": {"diameter": 9.0}}))
    (run,) = store.runs()
    assert run.spec.SGD is True
    assert run.spec.train_probs == (("a", 1.0),)
    assert run.spec.settings.diameter == 9.0


def test_a_folder_of_read_only_files_is_removed_as_windows_asks_for(tmp_path, monkeypatch):
    unlink = os.unlink

    def as_on_windows(path, *arguments, dir_fd=None):
        if not os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode & 0o200:
            raise PermissionError(errno.EACCES, "Access is denied", path)
        unlink(path, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", as_on_windows)
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "cell.tif").write_bytes(b"pixels")
    (folder / "cell.tif").chmod(0o444)
    with pytest.raises(PermissionError):
        shutil.rmtree(folder)
    removal.remove_folder(folder)
    assert not folder.exists()


def test_a_machine_with_a_gap_has_not_all_repeats(tmp_path):
    """An import may bring repeats 1 and 2 of two: repeat 0 is still to be made."""
    store = Store(tmp_path)
    run = add_run(store, [(1.0, {"cell": squares()})] * 3)
    (machine,) = run.machines
    assert run.machine_with_all(3) == machine
    shutil.rmtree(run.machines[machine][0].folder)
    assert store.run(run.key).machine_with_all(2) is None


def test_a_short_reference_names_its_repeat_alone(tmp_path):
    """One run on two machines, another on one."""
    store = Store(tmp_path)
    for name in ("laptop", "server"):
        add_run(store, [(1.0, three())] * 2, manifest={"machine": some_machine(name)})
    add_run(store, [(1.0, three())] * 2, seed=1)
    repeats = [repeat for run in store.runs() for repeat in run.repeats]
    names = [short_reference(repeat) for repeat in repeats]
    assert [store.find(name).name for name in names] == [repeat.name for repeat in repeats]
    assert sorted(name.count("/") for name in names) == [1, 1, 2, 2, 2, 2]
