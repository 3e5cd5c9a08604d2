"""`fsck`: every flipped bit, missing or extra file is found; content comes back where it can."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from cellrepro.exchange.folder_check import NOT_OURS, FilesOnDisk
from cellrepro.exchange.kept_passports import attestations_of, keep_attestations
from cellrepro.exchange.passport_files import export_passports
from cellrepro.exchange.store_check import check_store
from cellrepro.store.manifest import Manifest
from cellrepro.store.seal import SUMS
from cellrepro.store.store import Store
from cellrepro.store.unsent_files import note_not_sent
from cellrepro.store.whole_files import Owner
from stores import add_run, planted, squares, three

WEIGHTS = "weights.safetensors"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.fixture
def twins(store):
    """Two repeats of one run; equal files share their content on the disk."""
    return [one.folder for one in add_run(store, [(1.0, three(squares(grown=3)))] * 2).repeats]


@pytest.fixture
def separate(store, twins):
    """The same, as on a file system without hard links."""
    for path in [*twins[0].rglob("*")]:
        if path.is_file():
            shutil.copy(path, path.with_name("copy"))
            path.with_name("copy").replace(path)
    return twins


def write(path, content):
    """Change a file in place, as a failing disk does, whoever shares it."""
    path.chmod(0o644)
    path.write_bytes(content)


def kinds(store):
    return [problem.kind for problem in check_store(store).problems]


def places(store):
    return [problem.where for problem in check_store(store).problems]


def repaired(store):
    """Repair, and check that a second look finds what the first one left."""
    check = check_store(store, repair=True)
    assert check_store(store).problems == check.problems
    return check


def test_a_clean_store_has_no_problem(tmp_path):
    planted(tmp_path)
    check = check_store(tmp_path)
    assert (check.problems, check.notes, check.repeats) == ([], [], 10)
    assert "is whole" in str(check)
    assert check_store(tmp_path, repair=True).repaired == []


def test_a_single_file_is_as_it_was(store, tmp_path):
    """The passport of a run that is elsewhere."""
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    other = Store(tmp_path / "other")
    keep_attestations(other, repeat.name, attestations_of(store, repeat))
    assert "1 file of 0 repeats is as it was stored" in str(check_store(other))


@pytest.mark.slow
def test_each_of_a_thousand_flipped_bits_is_found(store, twins):
    """Over all bytes of runs and images, the seals among them; whole again after each."""
    files = [path for area in ("runs", "data") for path in (store.root / area).rglob("*.*")]
    files += store.root.rglob(SUMS)
    files = sorted(path for path in files if path.is_file())
    sizes = [path.stat().st_size for path in files]
    chance = random.Random(35)
    unfound = []
    for path in chance.choices(files, weights=sizes, k=1000):
        content = path.read_bytes()
        changed = bytearray(content)
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        changed[place] ^= 1 << bit
        write(path, bytes(changed))
        if not check_store(store).problems:
            unfound.append((path, place, bit))
        write(path, content)
    assert unfound == []
    assert kinds(store) == []


def test_a_changed_seal_does_not_pass_for_what_it_says(store, twins):
    """A bit of every byte."""
    for path in (twins[0] / SUMS, twins[0].parents[1] / SUMS):
        content = path.read_bytes()
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 1 << (place % 8)
            write(path, bytes(changed))
            assert kinds(store) == ["damaged"], place
            write(path, content)
    assert kinds(store) == []


def test_damage_is_repaired_from_equal_content(store, separate):
    whole = (separate[0] / WEIGHTS).read_bytes()
    write(separate[0] / WEIGHTS, whole[:-1] + b"?")
    write(separate[1] / "masks" / "img_a.tif", b"")
    assert kinds(store) == ["damaged", "damaged"]
    source = (separate[1] / WEIGHTS).relative_to(store.root).as_posix()
    remedy = check_store(store).problems[0].remedy
    command = f"cellrepro fsck --repair --store {store.root}"
    assert remedy == f"`{command}` brings its content back from {source}"
    check = repaired(store)
    assert (check.problems, len(check.repaired)) == ([], 2)
    assert (separate[0] / WEIGHTS).read_bytes() == whole
    assert not (separate[0] / WEIGHTS).stat().st_mode & 0o222


def test_a_change_through_shared_content_is_found_in_both(store, twins):
    """And is repaired from nothing, as there is nothing."""
    write(twins[0] / WEIGHTS, b"changed")
    assert places(store) == [
        path.relative_to(store.root).as_posix() + f"/{WEIGHTS}" for path in twins
    ]
    check = repaired(store)
    assert ([one.kind for one in check.problems], check.repaired) == (["damaged"] * 2, [])
    assert "copy it again" in check.problems[0].remedy


def test_exchanged_files_are_exchanged_again(store):
    """Two of equal size: each is where the other one's content lies."""
    add_run(store, [(1.0, three())])
    add_run(store, [(2.0, three())], seed=1)
    a, b = sorted(store.root.rglob(WEIGHTS))
    contents = a.read_bytes(), b.read_bytes()
    a.rename(a.with_name("c"))
    b.rename(a)
    a.with_name("c").rename(b)
    assert kinds(store) == ["damaged", "damaged"]
    assert repaired(store).problems == []
    assert (a.read_bytes(), b.read_bytes()) == contents


def test_what_is_missing_is_brought_back(store, separate):
    (separate[0] / WEIGHTS).unlink()
    shutil.rmtree(separate[1] / "masks")
    assert kinds(store) == ["missing"] * 4
    assert repaired(store).problems == []
    assert len(list(store.root.rglob("img_*.tif"))) == 2 * 3 + 2 * 3  # of repeats, of images


def test_a_manifest_that_is_missing_or_torn_is_named(store, twins):
    """It differs from repeat to repeat, so nothing else vouches for it."""
    write(twins[0] / "manifest.json", b"{")
    (twins[1] / "manifest.json").unlink()
    problems = repaired(store).problems
    assert [(one.kind, Path(one.where).name) for one in problems] == [
        ("damaged", "manifest.json"),
        ("missing", "manifest.json"),
    ]


def test_what_was_not_stored_is_named_and_stays(store, twins):
    """Nothing that somebody may miss is touched."""
    for path in (
        store.root / "runs" / "notes.txt",
        twins[0].parents[1] / "notes.txt",
        twins[0].parent / "old" / "notes.txt",
        twins[0] / "masks" / "notes.txt",
        next((store.root / "data").iterdir()) / "notes.txt",
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (twins[1] / "link").symlink_to(store.root)
    assert kinds(store) == ["extra"] * 6
    check = repaired(store)
    assert (len(check.problems), check.repaired) == (6, [])
    assert {problem.remedy for problem in check.problems} == {NOT_OURS}


def test_a_project_keeps_images_of_its_own_beside_those_of_the_store(store, twins):
    """A store in the folder of a project, whose images lie in its data/."""
    folder = store.root / "data" / "train"
    folder.mkdir()
    for path in (folder / "cells.tif", store.root / "data" / "README.md"):
        path.write_text("mine")
    assert kinds(store) == []
    (store.root / "data" / ("0" * 16)).write_text("a name of the lab")
    assert kinds(store) == ["extra"]


def test_what_lies_beside_passports_and_networks_is_named(store, twins):
    """What the lab has not put there, and what it was writing when it was stopped."""
    repeat = twins[0].relative_to(store.root / "runs")
    key = repeat.parts[0]
    export_passports(key, store.root.with_name("a.intoto.jsonl"), store=store.root)
    kept = store.root / "passports" / repeat
    note = store.root / "received" / repeat
    network = store.root / "networks" / "0.safetensors"
    note.parent.mkdir(parents=True)
    network.parent.mkdir()
    for path in (kept.with_name("notes.txt"), note.with_name("0.csv"), network):
        path.write_text("mine")
    kept.with_name(".0.intoto.jsonl.part").touch()
    note.with_name(".0.txt.part").touch()
    network.with_name(".0.safetensors.part").touch()
    assert sorted(kinds(store)) == ["extra"] * 3 + ["leftover"] * 3


def test_renamed_folders_are_named_with_their_right_place(store):
    """Of a run, a machine and a repeat, one in the other."""
    run = add_run(store, [(1.0, three())] * 2)
    folder = run.repeats[0].folder
    folder.rename(folder.with_name("7"))
    folder.parent.rename(folder.parents[1] / "laptop")
    folder.parents[1].rename(store.root / "runs" / "best")
    assert set(kinds(store)) == {"misplaced"}
    (of_run, of_repeat, _) = repaired(store).problems
    assert f"rename it to {run.key}" in of_run.remedy
    assert f"move it to runs/{run.key}/" in of_repeat.remedy


def test_a_copy_of_a_repeat_is_not_another_repeat(store, twins):
    """Two equal repeats would be evidence where there is one."""
    shutil.copytree(twins[0], twins[0].with_name("2"))
    (problem,) = repaired(store).problems
    assert (problem.kind, problem.remedy.partition(":")[0]) == ("misplaced", "remove it")


def test_a_repeat_in_the_folder_of_a_different_run_is_misplaced(store):
    a = add_run(store, [(1.0, three())])
    b = add_run(store, [(2.0, three())] * 2, seed=1)
    moved = b.repeats[1].folder
    moved.rename(a.repeats[0].folder.with_name("1"))
    (problem,) = repaired(store).problems
    assert problem.kind == "misplaced"
    assert f"move it to {moved.relative_to(store.root).as_posix()}" in problem.remedy


def test_what_stopped_work_left_is_named(store, twins):
    """What a living process has in hand is no problem."""
    dead = Owner(Owner.here().host, 2**22 + 1).new_name()
    (store.root / ".staging" / dead).mkdir(parents=True)
    (store.root / ".staging" / f"{dead}.lock").touch()
    (store.root / ".claims").mkdir()
    (store.root / ".claims" / "some-repeat-0.lock").touch()
    (twins[0] / ".notebook.ipynb.part").touch()
    (twins[0].parents[1] / ".spec.json.part").touch()
    (store.root / "runs" / "empty" / "machine").mkdir(parents=True)
    with store.staging() as in_hand, store.alone("key", "machine", 0, lambda: None):
        (store.root / ".staging" / dead).mkdir(parents=True, exist_ok=True)
        assert set(kinds(store)) == {"leftover"}
        assert in_hand.name not in " ".join(places(store))
        assert {Path(place).name for place in places(store)} >= {dead, ".notebook.ipynb.part"}


def test_a_run_of_a_version_before_has_no_seal(store, twins):
    """So what changed in its manifest cannot be found, which is said."""
    for folder in twins:
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        manifest.format = 2
        write(folder / "manifest.json", manifest.model_dump_json().encode())
        (folder / SUMS).unlink()
    (twins[0].parents[1] / SUMS).unlink()
    check = check_store(store)
    assert check.problems == []
    assert "2 repeats of an earlier version" in check.notes[0]
    write(twins[0] / WEIGHTS, b"")
    assert set(kinds(store)) == {"damaged"}


def test_a_seal_that_a_sealed_repeat_lacks_is_missing(store, twins):
    """It says that it was sealed; without the seal its manifest may be another one."""
    (twins[0] / SUMS).unlink()
    spec_seal = twins[0].parents[1] / SUMS
    content = spec_seal.read_bytes()
    spec_seal.unlink()
    assert sorted(kinds(store)) == ["missing", "missing"]
    of_run = next(one for one in check_store(store).problems if "sha256sum" in one.remedy)
    command = of_run.remedy.partition("`")[2].rstrip("`")
    subprocess.run(command, shell=True, check=True, cwd=spec_seal.parent)
    assert spec_seal.read_bytes() == content


def test_weights_that_were_not_sent_are_not_missing(store, twins):
    for folder in twins:
        (folder / WEIGHTS).unlink()
    assert kinds(store) == ["missing", "missing"]
    for folder in twins:
        note_not_sent(store.root, folder.relative_to(store.root / "runs").as_posix(), [WEIGHTS])
    check = check_store(store)
    assert check.problems == []
    assert "2 files did not come with runs that were sent" in check.notes[0]


def test_a_note_does_not_excuse_missing_masks(store, twins):
    """Masks always come; a note that says otherwise was written by somebody else."""
    name = twins[0].relative_to(store.root / "runs").as_posix()
    (twins[0] / "masks" / "img_a.tif").unlink()
    note_not_sent(store.root, name, ["masks/img_a.tif"])
    assert places(store) == [f"runs/{name}/masks/img_a.tif"]


def test_masks_without_a_digest_are_a_fault_of_the_manifest(store, twins):
    """Sealed, so that nothing else is wrong: whoever prepares a store can write a seal."""
    path = twins[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"]["masks/img_a.tif"]
    write(path, json.dumps(manifest).encode())
    assert "damaged" in kinds(store)


def test_the_command(store, twins, invoke):
    write(twins[0] / WEIGHTS, b"")
    answer = invoke("fsck", "--store", store.root, "--json")
    assert (answer.code, answer.json["repaired"]) == (1, [])
    assert answer.json["problems"][0].keys() == {"kind", "what", "where", "remedy"}
    lines = invoke("fsck", "--store", store.root)
    assert lines.code == 1
    assert f"damaged {answer.json['problems'][0]['where']}: it has changed" in lines.out
    nowhere = invoke("fsck", "--store", store.root / "nowhere")
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "no such folder; expected that of a store" in nowhere.err


def test_a_network_that_cannot_be_read_is_one_problem_of_several(store, twins, monkeypatch):
    network = store.root / "networks" / f"{'0' * 64}.safetensors"
    network.parent.mkdir()
    network.write_bytes(b"x")
    (twins[0] / "notes.txt").write_text("mine")
    digest = FilesOnDisk.digest

    def refused(self, path):
        if path == network:
            raise PermissionError(13, "Permission denied")
        return digest(self, path)

    monkeypatch.setattr(FilesOnDisk, "digest", refused)
    assert sorted(kinds(store)) == ["damaged", "extra"]
