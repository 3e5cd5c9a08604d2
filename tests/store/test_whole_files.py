"""Files that appear whole or not at all, and only where nothing of a user's is."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cellrepro.exchange.export import export_runs
from cellrepro.exchange.importing import import_runs
from cellrepro.exchange.store_check import check_store
from cellrepro.store import checkpoint_choice, checkpoints
from cellrepro.store.store import Store
from cellrepro.store.whole_files import Owner, is_being_written, whole_file, write_whole
from samebits.errors import BadInput
from small_training import Small
from stores import add_run, squares, three

WRITES = """
import sys, time
from pathlib import Path
from cellrepro.record import _write_whole as write_record
from cellrepro.store.whole_files import write_whole

digit, end = sys.argv[2], time.monotonic() + 0.7
while time.monotonic() < end:
    write_whole(Path(sys.argv[1]), digit * 50_000, replace=True)
    write_record(Path(sys.argv[1]).with_suffix(".json"), digit * 50_000 + "\\n")
"""


def test_what_several_processes_write_at_once_is_never_torn(tmp_path):
    path = tmp_path / "page.html"
    command = [sys.executable, "-c", WRITES, str(path)]
    writers = [subprocess.Popen([*command, digit]) for digit in "123"]
    n_read = 0
    while any(writer.poll() is None for writer in writers):
        for file in (path, path.with_suffix(".json")):
            if file.exists():
                text = file.read_text()
                assert text in {digit * 50_000 + "\n" for digit in "123"}
                n_read += 1
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert n_read > 10
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize("has_links", [True, False])
def test_what_appears_while_a_new_file_is_written_stays(tmp_path, monkeypatch, has_links):
    if not has_links:

        def refuse(*_):
            raise PermissionError(errno.EPERM, "this disk has no links")

        monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "a.zip"
    said = "exists, and nothing is overwritten"
    with pytest.raises(BadInput, match=said), whole_file(path) as scratch:  # noqa: PT012
        scratch.write_text("late")
        path.write_text("by hand")
    assert path.read_text() == "by hand"
    write_whole(tmp_path / "b.zip", "new")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.zip", "b.zip"]


def test_a_file_has_the_mode_that_the_umask_gives(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_fsck_leaves_what_a_process_is_just_writing(tmp_path):
    store = Store(tmp_path)
    folder = add_run(store, [(1.0, three())]).repeats[0].folder
    with whole_file(folder / "manifest.json", replace=True) as scratch:
        assert is_being_written(scratch.name)
        dead = Owner(Owner.here().host, 2**22 + 1).new_name()
        (folder / f".notebook.ipynb.{dead}.part").touch()
        problems = check_store(store).problems
        assert [Path(one.where).name[:10] for one in problems] == [".notebook."]
        scratch.write_bytes((folder / "manifest.json").read_bytes())
    assert [one.kind for one in check_store(store).problems] == ["leftover"]


# -- as on Windows ---------------------------------------------------------------------------


def _refused(code, path):
    return PermissionError(code, "Access is denied", str(path))


@pytest.fixture
def windows(monkeypatch):
    """The file layer of Windows, as far as it refuses what POSIX does."""
    import fcntl

    real = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink")}
    n_calls = dict.fromkeys(real, 0)

    def is_open(path):
        here = os.path.realpath(path)
        descriptors = Path("/proc/self/fd")
        return any(os.path.realpath(one) == here for one in descriptors.iterdir())

    def refuse(path, dir_fd=None):
        try:
            status = os.lstat(path, dir_fd=dir_fd)
        except FileNotFoundError:
            return
        is_read_only = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o200
        if is_read_only or (dir_fd is None and is_open(path)):
            raise _refused(errno.EACCES, path)

    def fsync(descriptor):
        n_calls["fsync"] += 1
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real["fsync"](descriptor)

    def replace(source, target):
        n_calls["replace"] += 1
        if is_open(source):
            raise _refused(errno.EACCES, source)
        refuse(target)
        real["replace"](source, target)

    def rename(source, target, **_):
        n_calls["rename"] += 1
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "the file exists", str(target))
        if is_open(source):
            raise _refused(errno.EACCES, source)
        real["rename"](source, target)

    def unlink(path, *, dir_fd=None):
        n_calls["unlink"] += 1
        refuse(path, dir_fd)
        real["unlink"](path, dir_fd=dir_fd)

    for name, function in {
        "fsync": fsync, "replace": replace, "rename": rename, "unlink": unlink, "remove": unlink,
    }.items():  # fmt: skip
        monkeypatch.setattr(os, name, function)
    monkeypatch.setattr("cellrepro.store.whole_files.RENAME_REPLACES", False)
    monkeypatch.setattr("cellrepro.store.locks.fcntl", None)
    return n_calls


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks Linux what is open")
def test_a_store_is_written_checked_and_handed_on_as_windows_allows(tmp_path, windows):
    store = Store(tmp_path / "outputs")
    run = add_run(store, [(1.0, three(squares(grown=3)))] * 2)
    file = tmp_path / "runs.cellrepro.zip"
    export_runs(run.key, file, weights=True, images=True, store=store.root)
    with pytest.raises(BadInput):
        export_runs(run.key, file, store=store.root)
    other = Store(tmp_path / "other")
    import_runs(file, store=other.root)
    assert {problem.kind for problem in check_store(other).problems} <= {"leftover"}  # locks
    masks, *_ = (run.repeats[1].folder / "masks").iterdir()
    stored = masks.read_bytes()
    copy = tmp_path / "damaged"
    copy.write_bytes(stored[::-1])
    copy.chmod(0o444)
    masks.chmod(0o644)
    copy.replace(masks)  # its twin in the other repeat is whole
    check_store(store, repair=True)
    assert masks.read_bytes() == stored
    assert not [*store.root.rglob("*.part")]
    assert min(windows.values()) > 0


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks Linux what is open")
def test_checkpoints_are_written_as_windows_allows(tmp_path, windows, one_thread, generators_free):
    small = Small()
    for _ in range(2):
        small.epoch()
        kept = small.save(tmp_path / "kept")
        small.save(tmp_path / "kept")
    copy = checkpoints.save_copy(checkpoints.read_plain(kept), tmp_path / "copy")
    for path in kept.iterdir():
        path.chmod(0o444)  # as of one whose content the store shares
    small.epoch()
    small.save(tmp_path / "kept")
    checkpoint_choice.keep_last(tmp_path / "kept")
    assert [folder.name for folder in checkpoints.folders(tmp_path / "kept")] == ["epoch-00003"]
    checkpoints.refuse_changed(checkpoints.read_plain(copy))
    assert windows["fsync"] > 0
