"""Whatever comes from outside can do no harm: each input here was made to.

Every one meets the door at which a user would bring it in. Refused means: one message in one line,
exit code 2, nothing written, nothing executed, and neither memory nor time taken that the file's
own size does not explain.
"""

import hashlib
import json
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import hostile_zips as zips
from cellrepro.exchange.bundle import bundle_text
from cellrepro.exchange.passport_making import passport_of
from cellrepro.explanation.recognition import recognised
from cellrepro.store.store import Store
from conftest import listing
from hostile_files import BASELINES, GRIDS, MASKS, SEGS, SIDECARS, WEIGHTS, safetensors, tensor
from hostile_images import good_tiff
from hostile_statements import BUNDLES, CONTENTS, FILES_OF_REPEATS
from hostile_stores import STORES
from stores import add_run, reseal, three

MOST_SECONDS = 20
MOST_BYTES = 2**29
"""Of memory beyond what this process had before."""
_PEAK = Path("/proc/self/clear_refs")


def memory(field):
    """Bytes of this process: VmRSS now, VmHWM at most since the peak was forgotten."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1])


@pytest.fixture(autouse=True)
def no_waiting():
    """Fail what waits for a pipe, or reads without end, instead of waiting with it."""

    def stop(*_):
        raise AssertionError(f"it took more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def forget_peak():
    """Bytes of memory now; from here on the most of them is watched, where the system does that."""
    if not _PEAK.exists():
        return None
    _PEAK.write_text("5", encoding="ascii")
    return memory("VmRSS")


def assert_bounded(had):
    """No more memory was taken than what is read here explains."""
    assert had is None or memory("VmHWM") - had < MOST_BYTES


@pytest.fixture
def ground(tmp_path):
    """Where an attack takes place: all that lies here is looked at before and after."""
    for name in ("in", "ours"):
        (tmp_path / name).mkdir()
    return SimpleNamespace(
        root=tmp_path, given=tmp_path / "in", ours=tmp_path / "ours", canary=tmp_path / "canary"
    )


def all_below(root):
    """Every file and folder below one, with kind, size and, of files, time of change."""
    return {
        path: state if path.is_file() else state[0] for path, state in (listing(root) or {}).items()
    }


def some_quick(table, *, one_in=4):
    """The cases of a table; all but some are left to the long run of the tests."""
    return [
        pytest.param(*case, id=name, marks=() if number % one_in == 0 else pytest.mark.slow)
        for number, (name, case) in enumerate(table.items())
    ]


@pytest.fixture
def attacked(ground, invoke, monkeypatch):
    """Run a command on something hostile; give its answer once nothing was harmed by it."""
    monkeypatch.chdir(ground.given)
    monkeypatch.setenv("CELLREPRO_ALLOWED_SIGNERS", str(ground.root / "nobody"))
    (ground.root / "nobody").touch()

    def call(*command):
        before = all_below(ground.root)
        had = forget_peak()
        started = time.monotonic()
        answer = invoke(*command)
        seconds = time.monotonic() - started
        assert not ground.canary.exists(), "something was executed"
        assert all_below(ground.root) == before, "something was written"
        assert seconds < MOST_SECONDS
        assert_bounded(had)
        return answer

    return call


def assert_visible(text):
    """Nothing in it moves a cursor, or hides."""
    assert text.replace("\n", "").replace("\t", "").isprintable(), repr(text)


def assert_one_message(err):
    """One line that says what, where and what to do, with nothing that moves a cursor."""
    assert err.startswith("cellrepro: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable(), repr(err)
    assert "Traceback" not in err
    assert len(err) < 2000


@pytest.fixture
def refused(ground, attacked):
    """Run a command on something hostile, which must be refused; give the message."""

    def call(*command, message):
        answer = attacked(*command)
        assert answer.code == 2, (answer.code, answer.out[:500], answer.err[:500])
        assert answer.out == ""
        *progress, last = answer.err.splitlines(keepends=True)
        assert_visible("".join(progress))
        assert_one_message(last)
        # Folders of tests are named after the test, and so may hold what is looked for.
        assert re.search(message, last.replace(str(ground.root), "")), answer.err
        return last

    return call


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A good exported file of two repeats, with weights and images."""
    import cellrepro

    root = tmp_path_factory.mktemp("sent")
    store = Store(root / "theirs")
    run = add_run(store, [(1.0, three())] * 2)
    file = root / "good.cellrepro.zip"
    cellrepro.export_runs([run.key], file, store=store.root, weights=True, images=True, quiet=True)
    passports = root / "good.intoto.jsonl"
    cellrepro.export_passports([run.key], passports, store=store.root)
    machine = run.repeats[0].machine
    return SimpleNamespace(
        whole=file.read_bytes(),
        store=store.root,
        key=run.key,
        repeat=f"runs/{run.key}/{machine}/0",
        passports=passports.read_bytes(),
    )


# -- the form of an exported file ------------------------------------------------------------------


@pytest.mark.parametrize(("make", "message"), zips.ARCHIVES.values(), ids=zips.ARCHIVES)
def test_archives(ground, refused, sent, make, message):
    file = ground.given / "hostile.cellrepro.zip"
    file.write_bytes(make(sent.whole))
    said = refused("import", file, "--store", ground.ours, message=message)
    assert str(file) in said
    assert "ask its sender" in said


def test_a_good_archive_passes(ground, invoke, sent):
    """So that what is refused above is refused for what was done to it."""
    file = ground.given / "good.cellrepro.zip"
    file.write_bytes(zips.packed(zips.contents_of(sent.whole)))
    assert file.read_bytes() == sent.whole
    assert invoke("import", file, "--store", ground.ours).code == 0


# -- what an exported file holds -------------------------------------------------------------------


@pytest.mark.parametrize(("make", "message"), some_quick(CONTENTS))
def test_contents(ground, refused, sent, make, message):
    file = ground.given / "hostile.cellrepro.zip"
    file.write_bytes(make(sent.whole))
    refused("import", file, "--store", ground.ours, message=message)
    refused("verify", file, "--store", ground.ours, message=message)


def resealed(ground, sent, change):
    """An exported file whose first repeat was changed: every digest fits, also the passport's."""
    root = ground.root.parent / f"{ground.root.name}-theirs"
    shutil.copytree(sent.store, root)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    first = Store(root).run(sent.key).repeats[0]
    change(first.folder)
    reseal(first.folder)
    run = Store(root).run(sent.key)
    passports = [passport_of(repeat, run=run).attestation for repeat in run.repeats]
    contents = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.glob("runs/**/*")
        if path.is_file()
    }
    crate = zips.contents_of(sent.whole)["ro-crate-metadata.json"]
    contents["ro-crate-metadata.json"] = crate
    contents["passports.intoto.jsonl"] = f"{bundle_text(passports)}\n".encode()
    shutil.rmtree(root)
    file = ground.given / "hostile.cellrepro.zip"
    file.write_bytes(zips.packed(contents))
    return file


def in_repeat(name, content):
    """A file of a repeat with other bytes, of which its manifest has the digest."""

    def change(folder):
        (folder / name).write_bytes(content)
        path = folder / "manifest.json"
        manifest = json.loads(path.read_bytes())
        manifest["files"][name] = "0" * 64
        if name == "weights.safetensors":
            manifest["weights"]["digest"] = hashlib.sha256(content).hexdigest()
        path.write_text(json.dumps(manifest))

    return change


@pytest.mark.parametrize("name", some_quick({name: [name] for name in MASKS if ".tif" in name}))
def test_masks_in_a_repeat(ground, refused, sent, name):
    make, _ = MASKS[name]
    file = resealed(ground, sent, in_repeat("masks/img_a.tif", make(ground.canary)))
    refused("import", file, "--store", ground.ours, message=r"masks/img_a\.tif")


@pytest.mark.parametrize(
    "name",
    some_quick({name: [name] for name in WEIGHTS if "tensor" in name or "header" in name}),
)
def test_weights_in_a_repeat(ground, refused, sent, name):
    make, _ = WEIGHTS[name]
    file = resealed(ground, sent, in_repeat("weights.safetensors", make(ground.canary)))
    refused("import", file, "--store", ground.ours, message=r"weights\.safetensors")


@pytest.mark.parametrize(("name", "content", "message"), some_quick(FILES_OF_REPEATS))
def test_other_files_in_a_repeat(ground, refused, sent, name, content, message):
    file = resealed(ground, sent, in_repeat(name, content))
    refused("import", file, "--store", ground.ours, message=message)


# -- passports -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "message"), some_quick(BUNDLES))
def test_passports(ground, attacked, refused, sent, make, message):
    file = ground.given / "hostile.intoto.jsonl"
    file.write_bytes(make(sent.passports))
    if message is not None:
        said = refused("verify", file, "--store", ground.ours, message=message)
        assert str(file) in said
    else:  # in-toto asks to pass over what is of another kind
        answer = attacked("verify", file, "--store", ground.ours)
        assert answer.code in (0, 1)
        assert_visible(answer.out)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\n", b"a ssh-ed25519 AAAA\n", b"\x1b[2J\n", b"a " * 2**20, b"* ssh-rsa AAAA\n"],
    ids=["no bytes", "no text", "cut", "a cursor", "too large", "RSA"],
)
@pytest.mark.parametrize("option", ["--sign", "--allowed-signers"])
def test_keys(ground, attacked, sent, option, content):
    path = given(ground, "key.pub", lambda _: content)
    passports = given(ground, "good.intoto.jsonl", lambda _: sent.passports)
    out = ground.given / "out.intoto.jsonl"
    command = ["export", sent.key, out] if option == "--sign" else ["verify", passports]
    answer = attacked(*command, option, path, "--store", sent.store)
    assert_visible(answer.err)
    is_list = option == "--allowed-signers" and answer.code in (
        0,
        1,
    )  # nobody, or others, are on it
    assert is_list or answer.code == 2
    if answer.code == 2:
        assert_one_message(answer.err)


# -- stores that came by copying -------------------------------------------------------------------


@pytest.mark.parametrize("make", some_quick({name: [make] for name, make in STORES.items()}))
def test_stores(ground, invoke, sent, make):
    """Nothing outside of a store is touched by what is said, put right or added in it."""
    store, outside = ground.root / "store", ground.root / "outside"
    shutil.copytree(sent.store, store)
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (outside / "0").mkdir(parents=True)
    (outside / "letter.txt").write_text("dear reader")
    (outside / "poetry.lock").write_text("")
    make(store, outside)
    file = ground.given / "good.cellrepro.zip"
    file.write_bytes(sent.whole)
    before = listing(outside)
    started = time.monotonic()
    had = forget_peak()
    for command in (
        ["list"],
        ["fsck"],
        ["fsck", "--repair"],
        ["import", file],
        ["export", sent.key, ground.root / "out.intoto.jsonl"],
    ):
        answer = invoke(*command, "--store", store)
        assert answer.code in (0, 1, 2)
        if answer.code == 2 and not answer.out:  # `list` names damage in its list
            assert_one_message(answer.err.splitlines(keepends=True)[-1])
        assert_visible(answer.out + answer.err)
        assert listing(outside) == before, command
    assert time.monotonic() - started < MOST_SECONDS
    assert_bounded(had)


# -- single files ----------------------------------------------------------------------------------


def given(ground, name, make):
    """A file in the folder of the attack, with what the attacker wrote into it."""
    path = ground.given / name
    path.write_bytes(make(ground.canary))
    return path


@pytest.fixture
def good_masks(ground):
    path = ground.given / "good.tif"
    path.write_bytes(good_tiff())
    return path


@pytest.mark.parametrize("name", some_quick({name: [name] for name in MASKS}))
def test_masks(ground, refused, good_masks, name):
    make, message = MASKS[name]
    path = given(ground, name.partition(" ")[0], make)
    said = refused("describe", path, message=message)
    assert str(path) in said
    refused("compare", path, good_masks, message=message)


@pytest.mark.parametrize(("make", "message"), some_quick(SEGS))
def test_seg_files(ground, refused, good_masks, make, message):
    path = given(ground, "a_seg.npy", make)
    refused("describe", path, message=message)


@pytest.mark.slow
def test_seg_files_at_other_doors(ground, refused, good_masks):
    make, message = SEGS["executes"]
    path = given(ground, "a_seg.npy", make)
    refused("explain", path, good_masks, message=message)
    refused("compare", good_masks, path, message=message)
    refused("describe", good_masks.rename(path.with_name("a_masks.tif")), message=message)


@pytest.mark.parametrize(("content", "message"), SIDECARS.values(), ids=SIDECARS)
def test_records_beside_masks(ground, refused, good_masks, content, message):
    good_masks.with_suffix(".json").write_bytes(content)
    refused("describe", good_masks, message=message)


@pytest.mark.parametrize(("make", "message"), some_quick(BASELINES))
def test_baselines(ground, refused, good_masks, make, message):
    path = given(ground, "hostile.baseline", make)
    masks = good_masks.rename(good_masks.with_name("img_a_masks.tif"))
    refused("baseline", "check", path, masks, message=message)


@pytest.mark.parametrize(("make", "message"), some_quick(WEIGHTS))
def test_weights(ground, refused, make, message):
    path = given(ground, "hostile.pth", make)
    if recognised(path) is None:  # as something else, which is what describe then says
        assert str(path) in refused("describe", path, message=message)
    other = given(ground, "good.safetensors", lambda _: safetensors({"w": tensor()}, bytes(4)))
    refused("compare", other, path, message=message)
    out = ground.given / "out.intoto.jsonl"
    refused("export", path, out, "--store", ground.ours, message="is a file; expected a run")


@pytest.mark.parametrize(("make", "message"), some_quick(GRIDS))
def test_grids(ground, refused, small_data, make, message):
    (ground.given / "data").symlink_to(small_data)
    path = given(ground, "hostile.yaml", make)
    refused("grid", path, "--dry-run", "--store", ground.ours, message=message)


# -- in a process of its own -----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit is not kept, or not set")
@pytest.mark.parametrize(
    "kind", ["archive", "mask", pytest.param("weights", marks=pytest.mark.slow)]
)
def test_with_little_memory(ground, command, kind):
    """Terabytes that are promised take no address space, either."""
    import resource

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))

    tables = {
        "archive": (zips.ARCHIVES["16 EiB of one file"], "a.cellrepro.zip", ["import"]),
        "mask": (MASKS["a.tif of a terabyte"], "a.tif", ["describe"]),
        "weights": (WEIGHTS["a tensor of 2**80"], "a.safetensors", ["describe"]),
    }
    (make, message), name, verb = tables[kind]
    path = given(ground, name, make)
    answer = command(*verb, path, "--store", ground.ours, preexec_fn=limited)
    assert answer.code == 2, answer.err
    assert_one_message(answer.err)
    assert re.search(message, answer.err)
    assert answer.seconds < MOST_SECONDS
