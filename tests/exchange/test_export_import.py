"""Runs exported from one store and imported into another, which then holds the same."""

import random
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import cellrepro
from cellrepro.errors import Damaged
from cellrepro.exchange.archive.contents import read_contents
from cellrepro.exchange.archive.reading import ExportedFile, opened_export
from cellrepro.exchange.archive.writing import Outgoing, write_archive
from cellrepro.exchange.input_lookup import find_images, folder_of_inputs
from cellrepro.exchange.kept_passports import kept_bundle
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.verification import verify
from cellrepro.images.folder import folder_digest, read_folder
from cellrepro.store import manifest as records
from cellrepro.store.ledger import LedgerRow
from cellrepro.store.row_tables import write_rows
from cellrepro.store.seal import MOST_SUMS_BYTES, seal_repeat
from cellrepro.store.store import Store
from cellrepro.torch_files import PICKLE
from conftest import listing, wholeness
from samebits.digests import file_digest
from samebits.errors import BadInput
from stores import add_run, planted, some_machine, three


def exported(store, file, runs=(), **options):
    where = None if runs else {"task": "train"}
    return cellrepro.export_runs(runs, file, where=where, store=store.root, quiet=True, **options)


def imported(file, root):
    return cellrepro.import_runs(file, store=root, quiet=True)


@pytest.fixture
def planted_store(tmp_path):
    planted(tmp_path / "theirs")
    return Store(tmp_path / "theirs")


@pytest.fixture
def store(tmp_path):
    """One run of two equal repeats."""
    made = Store(tmp_path / "theirs")
    add_run(made, [(1.0, three())] * 2)
    return made


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.cellrepro.zip"


# -- what is exported is what is imported ----------------------------------------------------------


def test_a_store_travels_whole(planted_store, file, tmp_path):
    made = exported(planted_store, file, weights=True, images=True)
    got = imported(file, tmp_path / "ours")
    assert tuple(repeat.name for repeat in got.runs) == made.runs
    assert len(got.runs) == 10
    assert wholeness(tmp_path / "ours") == wholeness(planted_store.root)
    ours = Store(tmp_path / "ours")
    for mine, theirs in zip(ours.runs(), planted_store.runs(), strict=True):
        assert mine.spec == theirs.spec
        for a, b in zip(mine.repeats, theirs.repeats, strict=True):
            assert a.manifest == b.manifest
            assert (a.masks("img_a") == b.masks("img_a")).all()
    digest = mine.spec.images_digest
    assert (ours.image(digest, "img_b") == planted_store.image(digest, "img_b")).all()
    assert not cellrepro.check_store(ours.root).problems


def test_equal_runs_give_equal_bytes(store, file, tmp_path):
    """Also of the store into which they were imported, and of a file that lies there again."""
    first = exported(store, file, weights=True, images=True)
    time.sleep(0.01)
    again = exported(store, tmp_path / "again.zip", weights=True, images=True)
    imported(file, tmp_path / "ours")
    onward = exported(Store(tmp_path / "ours"), tmp_path / "onward.zip", weights=True, images=True)
    assert first.digest == again.digest == onward.digest
    assert file.read_bytes() == (tmp_path / "onward.zip").read_bytes()
    other = exported(store, tmp_path / "other.zip")
    assert other.digest != first.digest


def test_other_programs_read_it(store, file, tmp_path):
    exported(store, file, weights=True, images=True)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "out")
    sums = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(sums, cwd=tmp_path / "out", check=True)
    for seal in (tmp_path / "out").rglob("*/SHA256SUMS"):
        subprocess.run(sums, cwd=seal.parent, check=True)
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-t", "-q", file], check=True)


def test_weights_stay_at_home_unless_asked_for(store, file, tmp_path):
    made = exported(store, file)
    assert "the weights of 2 repeats are not in it" in made.sentence()
    got = imported(file, tmp_path / "ours")
    assert "the weights of 2 repeats are not in the file" in str(got)
    assert got.runs[0].missing == ("weights.safetensors",)
    repeat = Store(tmp_path / "ours").find(got.runs[0].name)
    assert repeat.weights is None
    repeat.refuse_damage()
    assert not cellrepro.check_store(tmp_path / "ours").problems
    with pytest.raises(Damaged, match="export without --weights"):
        exported(Store(tmp_path / "ours"), tmp_path / "more.zip", weights=True)
    assert not (tmp_path / "more.zip").exists()


def test_what_was_missing_comes_later(store, file, tmp_path):
    exported(store, file)
    imported(file, tmp_path / "ours")
    exported(store, tmp_path / "weights.zip", weights=True)
    got = imported(tmp_path / "weights.zip", tmp_path / "ours")
    assert [repeat.new for repeat in got.runs] == [False, False]
    assert "2 repeats got files that were missing" in str(got)
    assert wholeness(tmp_path / "ours") == wholeness(store.root)
    before = listing(tmp_path / "ours" / "runs")
    assert "2 were there before" in str(imported(file, tmp_path / "ours"))
    assert listing(tmp_path / "ours" / "runs") == before


def test_equal_content_is_stored_once(store, file, tmp_path):
    exported(store, file, weights=True)
    imported(file, tmp_path / "ours")
    first, second = Store(tmp_path / "ours").runs()[0].repeats
    assert first.weights.samefile(second.weights)
    assert not first.weights.stat().st_mode & 0o222
    assert {path.name for path in second.folder.iterdir()} == {
        *("SHA256SUMS", "manifest.json", "masks", "weights.safetensors"),
    }


def test_machines_meet_in_one_store(store, file, tmp_path):
    """Basel, Kyoto and this laptop: the same spec of three machines becomes one run."""
    for place in ("basel", "kyoto"):
        theirs = Store(tmp_path / place)
        add_run(theirs, [(1.0, three())], manifest={"machine": some_machine(place)})
        exported(theirs, tmp_path / f"{place}.zip")
        imported(tmp_path / f"{place}.zip", store.root)
    (run,) = store.runs()
    assert [name.partition("-")[0] for name in run.machines] == ["abacus", "basel", "kyoto"]
    assert not cellrepro.check_store(store.root).problems
    exported(store, file)
    assert len(imported(file, tmp_path / "fourth").runs) == 4


# -- images and networks ---------------------------------------------------------------------------


@pytest.fixture
def with_images(tmp_path, small_data):
    """A run over a real folder of images, of which only the names of the files are made up."""
    images = tmp_path / "nuclei"
    shutil.copytree(small_data, images)
    folder = read_folder(images)
    data = records.DataRecord(
        path=str(images),
        digest=folder.digest,
        files=folder.files,
        n_train=3,
        n_test=1,
        segmented="test",
        warnings=[],
    )
    store = Store(tmp_path / "theirs")
    run = add_run(store, [(1.0, three())], data_digest=folder.digest, manifest={"data": data})
    return store, run, images


def test_the_image_folder_comes_along(with_images, file, tmp_path):
    store, run, images = with_images
    exported(store, file, images=True)
    shutil.rmtree(images)
    got = imported(file, tmp_path / "ours")
    ours = Store(tmp_path / "ours")
    came = folder_of_inputs(ours, run.spec.data_digest)
    assert got.images == (came,)
    assert folder_digest(came) == run.spec.data_digest
    recorded = run.repeats[0].manifest.data.path
    assert find_images(run.spec, ours, recorded=recorded) == came
    assert find_images(run.spec, store, recorded=recorded) is None
    again = exported(ours, tmp_path / "again.zip", images=True)
    assert again.file.read_bytes() == file.read_bytes()


def test_an_image_folder_that_changed_stays(with_images, file):
    store, run, images = with_images
    (images / "train" / "extra.tif").write_bytes(next(images.glob("test/*.tif")).read_bytes())
    made = exported(store, file, images=True)
    assert f"begins with {run.spec.data_digest[:12]} are not in it" in made.sentence()
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.startswith("inputs/")]
    assert [name for name in names if name.startswith("data/")]


def test_the_network_it_started_from_comes_along(store, file, tmp_path):
    first = store.runs()[0].repeats[0]
    digest = first.manifest.weights.digest
    add_run(store, [(2.0, three())], model=first.name, model_digest=digest)
    exported(store, file, weights=True)
    got = imported(file, tmp_path / "ours")
    (network,) = (tmp_path / "ours" / "networks").iterdir()
    assert network.name == f"{digest}.safetensors"
    assert len(got.runs) == 3
    lone = [one.name for one in got.runs if not one.name.startswith(first.spec.key)]
    ours = Store(tmp_path / "ours")
    shutil.rmtree(tmp_path / "ours" / "runs" / first.spec.key)
    again = exported(ours, tmp_path / "again.zip", lone, weights=True)
    assert not any("started from" in note for note in again.notes)


def test_a_network_of_pytorch_before_1_6_stays(store, file, tmp_path):
    """It is a pickle and no zip."""
    network = tmp_path / "old.pth"
    network.write_bytes(PICKLE + b".")
    add_run(store, [(2.0, three())], model=str(network), model_digest=file_digest(network))
    made = exported(store, file, weights=True)
    assert any("a .pth file, which is never exported" in note for note in made.notes)
    assert len(imported(file, tmp_path / "ours").runs) == 3
    assert not (tmp_path / "ours" / "networks").exists()


def add_files(repeat, contents):
    """More files in a stored repeat, sealed as if they had always been there."""
    folder = repeat.folder
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    digests = {name: file_digest(folder / name) for name in contents}
    manifest = repeat.manifest.model_copy(update={"files": {**repeat.manifest.files, **digests}})
    path = folder / "manifest.json"
    path.chmod(0o644)
    path.write_text(manifest.model_dump_json())
    seal_repeat(folder, manifest.files, manifest="manifest.json")
    repeat.__dict__.clear()
    repeat.__dict__["folder"] = folder


NOTEBOOK = b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}'


def test_every_kind_of_file_travels(store, file, tmp_path):
    (repeat, _) = store.runs()[0].repeats
    ledger = tmp_path / "ledger.parquet"
    write_rows(ledger, [LedgerRow(0, 0, "loss", "loss", "0" * 64, 0.5)], LedgerRow)
    contents = {
        "notebook.ipynb": NOTEBOOK,
        "ledger.parquet": ledger.read_bytes(),
        "logs/img_a.txt": b"100 %\n",
    }
    never = {"checkpoints/epoch-00003/state.json": b"{}"}
    (repeat.folder / "checkpoints").mkdir()
    add_files(repeat, contents | never)
    made = exported(store, file, weights=True)
    assert "checkpoints of 1 repeat are never exported" in made.sentence()
    imported(file, tmp_path / "ours")
    came = Store(tmp_path / "ours").find(f"{repeat.spec.key}/0").folder
    for name, content in contents.items():
        assert (came / name).read_bytes() == content
    assert not (came / "checkpoints").exists()
    assert not cellrepro.check_store(tmp_path / "ours").problems


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notebook.ipynb", b'{"nbformat": 4}', "0/notebook[.]ipynb: a notebook without"),
        ("ledger.parquet", b"PAR1", "0/ledger[.]parquet: no ledger"),
        ("logs/con.txt", b"", "device on Windows"),
        ("virus.exe", b"MZ", "no file of an exported run"),
    ],
)
def test_files_that_would_do_harm_are_refused(store, file, tmp_path, name, content, message):
    """Sealed and named by their manifest, as only a sender who means it can do."""
    add_files(store.runs()[0].repeats[0], {name: content})
    with pytest.raises(BadInput, match=message):
        imported(exported(store, file).file, tmp_path / "ours")
    assert listing(tmp_path / "ours") is None


def test_the_refused_file_is_named_in_any_of_many_repeats(file, tmp_path, monkeypatch):
    """Where repeat-1 and repeat-10 are staged, too, and a folder lists them in this order."""
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(listed(folder))))
    store = Store(tmp_path / "theirs")
    repeats = add_run(store, [(1.0, three())] * 12).repeats
    exported(store, file)
    with opened_export(file) as archive:
        name = list(read_contents(archive).repeats)[10]
    file.unlink()
    (bad,) = (repeat for repeat in repeats if repeat.name == name)
    add_files(bad, {"notebook.ipynb": b'{"nbformat": 4}'})
    with pytest.raises(BadInput, match=f"runs/{name}/notebook[.]ipynb: a notebook without"):
        imported(exported(store, file).file, tmp_path / "ours")


# -- passports -------------------------------------------------------------------------------------


def test_passports_are_kept_as_they_came(store, file, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    made = exported(store, file, sign=key)
    imported(file, tmp_path / "ours")
    ours = Store(tmp_path / "ours")
    for name in made.runs:
        (passport,) = kept_bundle(ours, name).attestations
        assert len(passport.envelope.signatures) == 1
    again = exported(ours, tmp_path / "again.zip")
    assert again.digest == made.digest


# -- a selection -----------------------------------------------------------------------------------


def test_a_selection(planted_store):
    runs = {run.key: run for run in planted_store.runs()}
    key, run = next(iter(runs.items()))

    def names(*references, **where):
        found = select_repeats(planted_store, references, where=where).repeats
        return [repeat.name for repeat in found]

    both = [repeat.name for repeat in run.repeats]
    assert names(key) == both
    assert names(f"{key[:6]}/1") == both[1:]
    assert names(both[0]) == names(both[0], f"{key}/0") == both[:1]
    assert names(f"{key}/{run.repeats[0].machine}") == both
    assert len(names(*runs)) == 10
    assert len(names(mode="fast")) == 4
    assert names(key, profile=run.spec.profile) == both
    assert {name[:16] for name in names(machine=run.repeats[0].machine)} > {key}


def test_a_grid_file_means_all_its_specs(tmp_path, small_data):
    """One of two specs is stored: it is taken, and the other one is named."""
    grid = tmp_path / "two.yaml"
    grid.write_text(
        f"notebook: 01_seeded_training\nfixed: {{data: {small_data}, model: tiny, epochs: 2}}\n"
        "vary: {seed: [0, 1]}\n"
    )
    store = Store(tmp_path / "store")
    with pytest.raises(BadInput, match="run them first"):
        select_repeats(store, [str(grid)])
    first, second = (point.plan.spec for point in cellrepro.read_grid(grid).points)
    add_run(store, [(1.0, three())] * 2, **first.model_dump())
    selection = select_repeats(store, [str(grid)])
    assert [repeat.spec.key for repeat in selection.repeats] == [first.key] * 2
    (note,) = selection.notes
    assert "1 of the 2 specs" in note
    assert second.key in note


@pytest.mark.parametrize(
    ("references", "where", "message"),
    [
        ([], {}, "no run was named"),
        (["0000000"], {}, "names no run"),
        ([], {"seed": 99}, "holds no such run"),
        ([], {"sed": 1}, "expected seed"),
        (["{key}/7"], {}, "repeat 7 of"),
        (["{key}/nowhere"], {}, "names no repeat"),
        (["missing.yaml"], {}, "missing.yaml"),
    ],
)
def test_a_selection_of_nothing_is_refused(store, references, where, message):
    references = [text.format(key=store.runs()[0].key) for text in references]
    with pytest.raises(BadInput, match=message):
        select_repeats(store, references, where=where)


# -- refused ---------------------------------------------------------------------------------------


def test_files_are_not_overwritten(store, file, tmp_path):
    file.write_text("mine")
    with pytest.raises(BadInput, match="nothing is overwritten"):
        exported(store, file)
    with pytest.raises(BadInput, match="is to hold runs"):
        exported(store, tmp_path / "runs.tar")
    with pytest.raises(BadInput, match="is no folder"):
        exported(store, tmp_path / "nowhere" / "runs.zip")
    assert file.read_text() == "mine"


def test_damaged_runs_are_not_exported(store, file):
    masks = store.runs()[0].repeats[1].folder / "masks" / "img_b.tif"
    masks.chmod(0o644)
    content = masks.read_bytes()
    masks.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(Damaged, match=r"img_[bc]\.tif is damaged"):
        exported(store, file)
    assert list(file.parent.glob("*.zip*")) == []


def test_a_different_repeat_of_the_same_name_is_refused(store, file, tmp_path):
    ours = Store(tmp_path / "ours")
    add_run(ours, [(1.25, three())])
    exported(store, file)
    before = listing(ours.root)
    with pytest.raises(BadInput, match="holds another repeat") as refusal:
        imported(file, ours.root)
    assert "begins with" in str(refusal.value)
    assert listing(ours.root) == before


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_stored_manifest_that_cannot_be_read_is_named(store, file, tmp_path, is_folder):
    exported(store, file)
    ours = Store(tmp_path / "ours")
    imported(file, ours.root)
    (manifest, _) = sorted(ours.root.glob("runs/*/*/*/manifest.json"))
    manifest.unlink()
    why = "No such file"
    if is_folder:
        manifest.mkdir()
        why = "a folder, pipe or device"
    with pytest.raises(Damaged, match=rf"manifest\.json cannot be read \({why}.*cellrepro fsck"):
        imported(file, ours.root)


@pytest.mark.parametrize("n_places", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_and_nothing_changes(store, file, tmp_path, n_places):
    exported(store, file, weights=True, images=True)
    whole = file.read_bytes()
    generator = random.Random(n_places)
    accepted = []
    for _ in range(n_places):
        place = generator.randrange(8 * len(whole))
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        file.write_bytes(changed)
        try:
            imported(file, tmp_path / "ours")
        except BadInput:
            continue
        accepted.append(place)
    assert accepted == []
    assert listing(tmp_path / "ours") is None


def unpacked(file):
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "SHA256SUMS"}


def packed(file, contents):
    """The same form over other contents, as someone with this program could write it."""
    file.unlink()
    files = [Outgoing.of_bytes(name, content) for name, content in contents.items()]
    write_archive(file, files, quiet=True)


def without(ending):
    def change(contents, _):
        del contents[next(name for name in contents if name.endswith(ending))]

    return change


def replaced(ending, old, new):
    def change(contents, _):
        name = next(name for name in contents if name.endswith(ending))
        assert old in contents[name]
        contents[name] = contents[name].replace(old, new)

    return change


def with_content(ending, content):
    def change(contents, _):
        contents[next(name for name in contents if name.endswith(ending))] = content

    return change


def added(name, content=b"x"):
    def change(contents, key):
        contents[name.format(key=key)] = content

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("spec.json"), "has no spec"),
        (without("/0/manifest.json"), "has no manifest.json"),
        (without("masks/img_a.tif"), "lacks the masks"),
        (without("/0/SHA256SUMS"), "has no SHA256SUMS"),
        (without("passports.intoto.jsonl"), "has no passports"),
        (without("ro-crate-metadata.json"), "has no ro-crate"),
        (replaced("spec.json", b'"seed": 0', b'"seed": 1'), "is the spec of run"),
        (replaced("spec.json", b'"seed": 0', b'"seed": NaN'), "NaN"),
        (replaced("spec.json", b'"seed": 0', b'"seed": 0, "seed": 0'), "twice"),
        (replaced("/0/manifest.json", b'"repeat": 0', b'"repeat": 5'), "is that of"),
        (replaced("/0/manifest.json", b'"n_objects": 2', b'"n_objects": 3'), "does not fit"),
        (replaced("/0/manifest.json", b'"vacuous"', b'"surprise": 1, "vacuous"'), "surprise"),
        (replaced("/0/manifest.json", b'"2026-11-01T12:00:00+00:00"', b'"yesterday"'), "started"),
        (replaced("/0/manifest.json", b'"2026-11-01T12', b'"9999-11-01T12'), "started"),
        (replaced("/0/manifest.json", b'"seconds": {', b'"seconds": {"x": 1e300,'), "seconds"),
        (with_content("/0/manifest.json", b"[" * 100_000), "deeper|inside each other"),
        (with_content("masks/img_a.tif", b"II*\0"), "not the file of which its manifest"),
        (with_content("passports.intoto.jsonl", b"{}\n"), "no passport"),
        (with_content("ro-crate-metadata.json", b"{}"), "no RO-Crate"),
        (added("runs/{key}/abacus-00000000/0/manifest.json", b"{}"), "none that this version"),
        (added("runs/0000000000000000/spec.json", b"{}"), "none that this version"),
        (added("networks/" + "0" * 64 + ".safetensors"), "no network of one of its runs"),
        (added("inputs/0000000000000000/train/a.tif"), "no folder of images"),
        (added("data/0000000000000000/a.tif"), "no image that one of its runs"),
    ],
)
def test_contents_that_do_not_fit_are_refused(store, file, tmp_path, change, message):
    exported(store, file, weights=True, images=True)
    contents = unpacked(file)
    change(contents, store.runs()[0].key)
    packed(file, contents)
    with pytest.raises(BadInput, match=message) as refusal:
        imported(file, tmp_path / "ours")
    assert "\n" not in str(refusal.value)
    assert listing(tmp_path / "ours") is None


# -- interrupted -----------------------------------------------------------------------------------

_IMPORT = """
import os, sys
from cellrepro.exchange import import_staging, importing
from cellrepro.store.ledger import LedgerRow
from cellrepro.store.row_tables import write_rows
from cellrepro.store.seal import MOST_SUMS_BYTES, seal_repeat
from cellrepro.store.store import Store
n_left = int(sys.argv[3])
kept = import_staging.ImportStaging._keep
commit = Store.commit_received
def dying(function):
    def call(*arguments):
        global n_left
        n_left -= 1
        if n_left < 0:
            os.kill(os.getpid(), 9)
        return function(*arguments)
    return call
if sys.argv[4] == "receiving":
    import_staging.ImportStaging._keep = dying(kept)
else:
    Store.commit_received = dying(commit)
importing.import_runs(sys.argv[1], store=sys.argv[2], quiet=True)
"""


@pytest.mark.parametrize(("moment", "n_before"), [("receiving", 3), ("committing", 1)])
def test_a_killed_import_goes_on(store, file, tmp_path, moment, n_before):
    ours = tmp_path / "ours"
    exported(store, file, weights=True, images=True)
    command = [sys.executable, "-c", _IMPORT, file, ours, str(n_before), moment]
    assert subprocess.run(command, check=False).returncode == -9
    visible = wholeness(ours)
    assert len(visible) == (n_before if moment == "committing" else 0)
    (left,) = [path for path in (ours / ".staging").iterdir() if path.is_dir()]
    assert len([*(left / "content").iterdir()]) >= n_before
    got = imported(file, ours)
    assert sum(repeat.new for repeat in got.runs) == 2 - len(visible)
    assert wholeness(ours) == wholeness(store.root)
    assert not [*(ours / ".staging").glob("*")]
    assert not cellrepro.check_store(ours).problems


def test_what_a_killed_import_left_is_swept(store, file, tmp_path):
    ours = tmp_path / "ours"
    exported(store, file, weights=True)
    command = [sys.executable, "-c", _IMPORT, file, ours, "2", "receiving"]
    assert subprocess.run(command, check=False).returncode == -9
    with Store(ours).staging() as area:
        assert [*area.parent.glob("*resumable*")] == []


def test_stored_files_stay_read_only_when_leftovers_go(store, file, tmp_path):
    """What a killed import left shares its content, and so its mode, with what is stored."""
    ours = tmp_path / "ours"
    exported(store, file)
    command = [sys.executable, "-c", _IMPORT, file, ours, "1", "committing"]
    assert subprocess.run(command, check=False).returncode == -9
    assert {one.kind for one in cellrepro.check_store(ours).problems} == {"leftover"}
    with Store(ours).staging() as area:  # what is left is swept by the next work
        assert [*area.parent.glob("*resumable*")] == []
    stored = [path for path in (ours / "runs").rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if path.stat().st_mode & 0o222]


def test_a_file_that_its_reader_would_refuse_is_not_written(store, file, monkeypatch):
    """What is too much for one file is refused where it is exported, in words about the runs."""
    monkeypatch.setattr("cellrepro.exchange.export.MOST_CRATE_BYTES", 1000)
    with pytest.raises(BadInput, match="fewer runs at a time"):
        exported(store, file)
    monkeypatch.setattr("cellrepro.exchange.export.MOST_PASSPORT_BYTES", 1000)
    with pytest.raises(BadInput, match="fewer runs at a time"):
        exported(store, file)
    assert not file.exists()


def test_a_spec_of_many_images_travels(store, file, tmp_path):
    """More than a megabyte of chances, one for each image: every reader takes what is stored."""
    chances = {f"{number:0200}.tif": 0.5 for number in range(5_000)}
    run = add_run(store, [(1.0, three())], train_probs=chances)
    assert (run.repeats[0].folder.parents[1] / "spec.json").stat().st_size > 2**20
    exported(store, file, [run.key])
    assert not verify(file, store=store.root, quiet=True).problems
    imported(file, tmp_path / "ours")
    assert Store(tmp_path / "ours").run(run.key).spec == run.spec


@pytest.mark.parametrize("seal", ["SHA256SUMS", "runs/KEY/SHA256SUMS"])
def test_every_seal_has_the_same_limit(store, file, monkeypatch, seal):
    """Of a repeat with half a million files, as of an archive with as many."""
    exported(store, file)
    name = seal.replace("KEY", store.runs()[0].key)
    sizes = {name: MOST_SUMS_BYTES}
    usual = ExportedFile.size
    monkeypatch.setattr(
        ExportedFile, "size", lambda archive, of: sizes.get(of) or usual(archive, of)
    )
    with opened_export(file) as archive:
        read_contents(archive)
    sizes[name] += 1
    with (
        pytest.raises(BadInput, match=f"{name} has {2**27 + 1} bytes"),
        opened_export(file) as archive,
    ):
        read_contents(archive)


def test_the_command_line(store, file, tmp_path, invoke):
    key = store.runs()[0].key
    made = invoke("export", key[:4], file, "--store", store.root, "--images", "--json")
    assert made.code == 0
    assert made.json["digest"] == file_digest(file)
    assert len(made.json["runs"]) == 2
    assert len(made.json["notes"]) == 2  # no weights; the folder of images is not there
    got = invoke("import", file, "--store", tmp_path / "ours", "--json")
    assert [run["new"] for run in got.json["runs"]] == [True, True]
    assert got.json["folder"] == str(tmp_path / "ours")
    again = invoke("import", file, "--store", tmp_path / "ours")
    first, headings, *rows = again.out.splitlines()
    assert first.endswith("2 were there before; the weights of 2 repeats are not in the file")
    assert headings.split() == ["repeat", "run", "state", "not", "here"]
    assert [row.split()[0] for row in rows] == made.json["runs"]
    assert all(row.endswith("was there  weights.safetensors") for row in rows)
    selected = tmp_path / "all.zip"
    selecting = invoke("export", selected, "--where", "seed=0", "--store", store.root)
    assert selecting.code == 0
    assert "holds 2 repeats" in selecting.out
    assert selecting.out.splitlines()[2].split()[0] == made.json["runs"][0]
    assert "\nnote: the weights of 2 repeats are not in it" in selecting.out
    for wrong in (
        ("export", selected, "--store", store.root),  # no run
        ("export", key, "runs.tar", "--store", store.root),
        ("export", key, tmp_path / "x.intoto.jsonl", "--weights", "--store", store.root),
        ("import", tmp_path / "none.zip"),
        ("import", store.runs()[0].repeats[0].weights),
        ("import", tmp_path),
    ):
        answer = invoke(*wrong)
        assert answer.code == 2
        assert answer.err.startswith("cellrepro: ")


def test_a_killed_export_leaves_no_half_file(store, file):
    dying = (
        "import os, sys\n"
        "from cellrepro.exchange.archive import writing\n"
        "writing.file_digest = lambda path: os.kill(os.getpid(), 9)\n"
        "from cellrepro.exchange.export import export_runs\n"
        "export_runs(sys.argv[1], sys.argv[2], store=sys.argv[3], quiet=True)\n"
    )
    command = [sys.executable, "-c", dying, store.runs()[0].key, file, store.root]
    assert subprocess.run(command, check=False).returncode == -9
    assert not file.exists()
    exported(store, file)
    assert [path.name for path in file.parent.glob("*runs*")] == [file.name]


def test_imported_runs_are_like_own_ones(planted_store, file, tmp_path):
    """The report and a comparison over two machines, one of which is somewhere else."""
    ours = Store(tmp_path / "ours")
    elsewhere = {"machine": some_machine("kyoto")}
    add_run(ours, [(1.0, three()), (1.0, three())], manifest=elsewhere)
    exported(planted_store, file, images=True)
    imported(file, ours.root)
    written = cellrepro.write_report(ours.root)
    page = written.html.read_text(encoding="utf-8")
    assert "kyoto" in page
    assert "abacus" in page
    (both,) = [run for run in ours.runs() if len(run.machines) == 2]
    a, b = (f"{both.key}/{machine}/0" for machine in both.machines)
    comparison = cellrepro.compare(a, b, store=ours.root)
    assert comparison.verdict == "identical"
