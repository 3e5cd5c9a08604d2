"""Public image sets, fetched from a server on this machine that serves the same layouts."""

import dataclasses
import errno
import functools
import http.server
import io
import json
import re
import shutil
import socket
import stat
import struct
import threading
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.images import public_sets
from cellrepro.images.folder import read_folder

REGISTRY = public_sets._registry()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Counts requests; cuts a file short, or sends nothing at all, where the server is told to."""

    def do_GET(self):
        self.server.requests.append(self.path)
        content = Path(self.directory, self.path.lstrip("/"))
        if self.server.cut and content.exists():
            data = content.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: -self.server.cut])
            self.close_connection = True
            return
        super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture(autouse=True)
def no_digests(monkeypatch):
    """A registry without digests, as the archives served here are none of the publishers'."""
    undigested = {
        name: dataclasses.replace(
            entry, archives=tuple(dataclasses.replace(a, sha256=None) for a in entry.archives)
        )
        for name, entry in REGISTRY.items()
    }
    monkeypatch.setattr(public_sets, "_registry", lambda: undigested)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server for ``tmp_path/www`` on a free port."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    root = tmp_path / "www"
    root.mkdir()
    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.root, running.requests, running.cut = root, [], 0
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def grey(seed, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, 200, (20, 30)).astype(dtype)


def tif(array):
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, photometric="minisblack")
    return stream.getvalue()


def png(array):
    return imagecodecs.png_encode(array)


def pack(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


MASKS = np.zeros((20, 30), np.uint16)
MASKS[2:6, 2:6] = 1
MASKS[2:6, 6:9] = 2  # touches the first
MASKS[12:15, 20:25] = 3


def dsb2018(root, **extra):
    members = {
        f"dsb2018/{split}/{kind}/{name}.tif": tif(grey(number) if kind == "images" else MASKS)
        for number, (split, name) in enumerate([("train", "a"), ("train", "b"), ("test", "c")])
        for kind in ("images", "masks")
    }
    pack(root / "dsb2018.zip", members | {"__MACOSX/dsb2018/train/images/._a.tif": b"x"} | extra)


def bbbc039(root):
    """Colours in the first channel: 1, 2 for the two that touch and 1 again for the third."""
    colours = np.zeros((20, 30, 4), np.uint8)
    colours[..., 0] = np.where(MASKS == 3, 1, MASKS)
    colours[..., 3] = 255
    names = [f"IXMtest_{well}" for well in ("A01", "A02", "A03")]
    images = {f"images/{n}.tif": tif(grey(i, np.uint16)) for i, n in enumerate(names)}
    pack(root / "images.zip", images)
    pack(root / "masks.zip", {f"masks/{name}.png": png(colours) for name in names})
    lists = zip(("training", "validation", "test"), names, strict=True)
    pack(root / "metadata.zip", {f"metadata/{split}.txt": f"{n}.png\n" for split, n in lists})


def bbbc038(root):
    members = {}
    for number, name in enumerate(("4a", "b7")):
        rgba = np.repeat(grey(number)[..., None], 4, axis=2)
        rgba[..., 3] = 255
        members[f"{name}/images/{name}.png"] = png(rgba)
        for label in (1, 2, 3):
            members[f"{name}/masks/{label}.png"] = png(
                np.equal(MASKS, label).astype(np.uint8) * 255
            )
    pack(root / "stage1_train.zip", members)


SETS = {"dsb2018": dsb2018, "bbbc039": bbbc039, "bbbc038": bbbc038}
EXPECTED = {
    "dsb2018": (["a", "b"], ["c"]),
    "bbbc039": (["IXMtest_A01"], ["IXMtest_A03"]),
    "bbbc038": (["4a", "b7"], []),
}


def below(path):
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*"))


def test_registry_says_where_from_and_under_which_licence():
    assert public_sets.names() == sorted(SETS)
    for name in public_sets.names():
        entry = REGISTRY[name]
        assert entry.layout in public_sets._LAYOUTS
        assert all((entry.description, entry.licence, entry.cite))
        assert entry.source.startswith("https://")
        for archive in entry.archives:
            assert archive.url.startswith("https://")
            assert archive.url.endswith(f"/{archive.file}")
            assert archive.sha256 is None or re.fullmatch("[0-9a-f]{64}", archive.sha256)


@pytest.mark.parametrize("name", SETS)
def test_first_use_downloads_and_converts(server, tmp_path, name):
    SETS[name](server.root)
    folder = public_sets.fetch(name, data_dir=tmp_path / "data", mirror=server.url)
    assert folder == tmp_path / "data" / name
    actual = read_folder(folder)
    assert actual.warnings == ()
    assert ([i.name for i in actual.train], [i.name for i in actual.test]) == EXPECTED[name]
    first = actual.train[0]
    np.testing.assert_array_equal(first.image, grey(0, first.image.dtype))
    assert first.image.dtype == (np.uint16 if name == "bbbc039" else np.uint8)
    # the same three objects; BBBC039 numbers by value, so the third comes before the second
    expected = np.array([0, 1, 3, 2])[MASKS] if name == "bbbc039" else MASKS
    np.testing.assert_array_equal(first.masks, expected)
    assert sorted(path.name for path in folder.parent.iterdir()) == [name, f"{name}.download.json"]


def test_record_says_what_came_from_where(server, tmp_path):
    dsb2018(server.root)
    folder = public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url + "/")
    record = json.loads((tmp_path / "data/dsb2018.download.json").read_text())
    archive = record["archives"]["dsb2018.zip"]
    assert archive["url"] == f"{server.url}/dsb2018.zip"
    assert archive["size"] == (server.root / "dsb2018.zip").stat().st_size
    assert re.fullmatch("[0-9a-f]{64}", archive["sha256"])
    assert archive["when"].endswith("+00:00")
    assert record["files"] == read_folder(folder).files
    assert record["licence"].startswith("CC0")


def test_second_use_needs_no_network_and_verifies(server, tmp_path):
    dsb2018(server.root)
    first = public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    n_requests = len(server.requests)
    before = below(tmp_path / "data")
    assert public_sets.fetch("dsb2018", data_dir=tmp_path / "data") == first
    assert len(server.requests) == n_requests == 1
    assert below(tmp_path / "data") == before


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda f: (f / "train/a.tif").write_bytes(tif(grey(9))), "a.tif: changed .*expected SHA"),
        (lambda f: (f / "test/c_masks.tif").unlink(), "c_masks.tif: cannot be read since"),
        (
            lambda f: [
                shutil.copy(f / f"train/a{ending}.tif", f / f"train/z{ending}.tif")
                for ending in ("", "_masks")
            ],
            "z.tif: was not in the download",
        ),
    ],
    ids=["changed", "missing", "added"],
)
def test_tampering_is_found(server, tmp_path, spoil, match):
    dsb2018(server.root)
    folder = public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    spoil(folder)
    with pytest.raises(BadInput, match=f"{match}.*delete .*dsb2018 to download it again"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)


def test_another_archive_under_the_same_name_is_refused(server, tmp_path):
    dsb2018(server.root)
    folder = public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    shutil.rmtree(folder)
    public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    shutil.rmtree(folder)
    dsb2018(server.root, more=b"x")
    with pytest.raises(BadInput, match=r"not the file of the first download .*delete .*json"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert below(tmp_path / "data") == ["dsb2018.download.json"]


def test_digest_of_the_registry_is_held_to(server, tmp_path, monkeypatch):
    dsb2018(server.root)
    entry = public_sets.describe("dsb2018")
    known = public_sets.Archive(entry.archives[0].file, entry.archives[0].url, "0" * 64)
    changed = public_sets.DataSet(**{**vars(entry), "archives": (known,)})
    monkeypatch.setattr(public_sets, "_registry", lambda: {"dsb2018": changed})
    with pytest.raises(
        BadInput, match=f"not the file of the registry, expected SHA-256 {'0' * 64}"
    ):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()


def test_unrecorded_folder_is_left_alone(server, tmp_path):
    (tmp_path / "data/dsb2018").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"dsb2018: exists, but dsb2018.download.json does not"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert server.requests == []


@pytest.mark.parametrize("content", ["{", "[]", '{"archives": {}}'])
def test_broken_record_is_refused(server, tmp_path, content):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dsb2018.download.json").write_text(content)
    with pytest.raises(BadInput, match=r"dsb2018.download.json: .*record.*; restore it, or delete"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert server.requests == []


def test_download_that_breaks_off(server, tmp_path):
    dsb2018(server.root)
    server.cut = 100
    with pytest.raises(NotPossibleHere, match=r"dsb2018.zip: the download broke off .*try again"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()


def test_missing_on_the_server(server, tmp_path):
    with pytest.raises(NotPossibleHere, match=r"the server answers 404 .*new address") as caught:
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert caught.value.exit_code == 3
    assert not (tmp_path / "data").exists()


def test_server_down(server, tmp_path):
    url = server.url
    server.shutdown()
    server.socket.close()
    with pytest.raises(NotPossibleHere, match=r"cannot be reached \(ConnectionError\); check the"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=url)
    assert not (tmp_path / "data").exists()


def test_silent_server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(public_sets, "_TIMEOUT", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NotPossibleHere, match=r"no answer within 0.2 s.*try again later"):
            public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=url)


@pytest.fixture
def known(monkeypatch):
    """The registry with its digests."""
    monkeypatch.setattr(public_sets, "_registry", lambda: REGISTRY)


def test_command_fetches_from_a_mirror_and_says_what_it_trusts(server, tmp_path, invoke):
    """Nobody can check the first download of this set, and everybody every later one."""
    bbbc038(server.root)
    arguments = ("data", "bbbc038", "--mirror", server.url, "--into", tmp_path / "data", "--json")
    first = invoke(*arguments)
    assert (first.code, first.json) == (0, {"folder": str(tmp_path / "data/bbbc038")})
    record = tmp_path / "data/bbbc038.download.json"
    assert "of stage1_train.zip, so this first download is trusted" in first.err
    assert f"SHA-256 is kept in {record}" in first.err
    assert "trusted" not in invoke(*arguments).err
    shutil.rmtree(tmp_path / "data/bbbc038")
    pack(server.root / "stage1_train.zip", {"other.txt": b"moved"})
    again = invoke(*arguments)
    assert again.code == 2
    assert "not the file of the first download" in again.err
    assert "trusted" not in again.err


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("name", ["dsb2018", "bbbc039"])
def test_known_digests_hold_on_a_mirror(server, tmp_path, invoke, name):
    SETS[name](server.root)
    answer = invoke("data", name, "--mirror", server.url, "--into", tmp_path / "data")
    assert answer.code == 2
    assert "not the file of the registry, expected SHA-256" in answer.err
    assert "another mirror (--mirror URL)" in answer.err
    assert not (tmp_path / "data").exists()


def test_synthetic_images_have_no_mirror(tmp_path, invoke):
    answer = invoke("data", "synthetic", "--mirror", "http://127.0.0.1:9", "--into", tmp_path)
    assert answer.code == 2
    assert "synthetic images are made here; leave it out" in answer.err


def shrink(path, member, declared):
    """Let a member declare another size than it unpacks to, with the digest of its beginning."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        sound = zlib.crc32(archive.open(info).read(declared))
    data = bytearray(path.read_bytes())
    size, crc = struct.pack("<I", info.file_size), struct.pack("<I", info.CRC)
    assert data.count(size) == data.count(crc) == 2  # beside the member, and in the directory
    path.write_bytes(
        data.replace(size, struct.pack("<I", declared)).replace(crc, struct.pack("<I", sound))
    )


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "hidden"])
def test_zip_bomb_is_refused_unpacked_or_not(server, tmp_path, declared):
    path = server.root / "dsb2018.zip"
    dsb2018(server.root)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for kind in ("images", "masks"):
            with archive.open(f"dsb2018/train/{kind}/0bomb.tif", "w") as stream:
                stream.write(tif(grey(0)) + bytes(kind, "ascii"))
                for _ in range(300 if kind == "images" else 0):
                    stream.write(bytes(2**20))
    if not declared:
        shrink(path, "dsb2018/train/images/0bomb.tif", len(tif(grey(0))))
    tracemalloc.start()
    try:
        if declared:
            with pytest.raises(BadInput, match=r"unpacks to \d+ bytes, .* use another mirror"):
                public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
            assert not (tmp_path / "data").exists()
        else:  # what it declares is a sound image, and all that is read of it
            public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_packing_that_cannot_be_bounded_is_refused(server, tmp_path):
    """Python unpacks a whole piece of bzip2 or LZMA at once, however large that becomes."""
    with zipfile.ZipFile(server.root / "dsb2018.zip", "w", zipfile.ZIP_BZIP2) as archive:
        for kind in ("images", "masks"):
            archive.writestr(f"dsb2018/train/{kind}/a.tif", tif(grey(0)))
    with pytest.raises(BadInput, match=r"packed in an unknown way \(compression method 12\)"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()


def test_mirror_that_is_no_address(tmp_path):
    with pytest.raises(BadInput, match="not an address; --mirror URL starts with http"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror="mirror.example")


def test_unknown_name(tmp_path):
    with pytest.raises(BadInput, match=r"'dsb2019'; known are bbbc038, bbbc039, dsb2018"):
        public_sets.fetch("dsb2019", data_dir=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "member",
    [
        "../evil.tif",
        "/etc/evil.tif",
        "dsb2018/../../evil.tif",
        "..\\evil.tif",
        "C:/evil.tif",
        "link",
    ],
)
def test_archive_that_leads_outside_is_refused(server, tmp_path, member):
    dsb2018(server.root)
    with zipfile.ZipFile(server.root / "dsb2018.zip", "a") as archive:
        archive.writestr(link(member) if member == "link" else member, b"/etc/passwd")
    before = below(tmp_path)
    with pytest.raises(BadInput, match=r"dsb2018.zip: holds '.*(evil|link).*' *, which leads out"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert below(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"<html>moved</html>", "damaged or is no zip file"),
        ({"readme.txt": b"moved"}, "no images where they were expected"),
        ({"dsb2018/train/images/a.tif": tif(grey(0))}, "masks/a.tif is missing"),
        (
            {"dsb2018/train/images/a.tif": b"x", "dsb2018/train/masks/a.tif": b"x"},
            "dsb2018.zip:dsb2018/train/images/a.tif: not a TIFF",
        ),
        (
            {
                "dsb2018/train/images/a.tif": tif(grey(0)),
                "dsb2018/train/masks/a.tif": tif(MASKS[:16]),
            },
            r"a: the image has \(Y, X\) = \(20, 30\), its mask \(16, 30\)",
        ),
    ],
    ids=["no zip", "rearranged", "no mask", "no image", "shapes"],
)
def test_unexpected_content_is_refused(server, tmp_path, content, match):
    path = server.root / "dsb2018.zip"
    path.write_bytes(content) if isinstance(content, bytes) else pack(path, content)
    with pytest.raises(BadInput, match=match):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()


def test_changed_byte_in_an_archive_is_refused(server, tmp_path):
    dsb2018(server.root)
    path = server.root / "dsb2018.zip"
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"damaged or is no zip file .*CRC"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("step", ["_save_pair", "_write_record", "folder_digest"])
def test_interruption_leaves_nothing_half(server, tmp_path, monkeypatch, step):
    dsb2018(server.root)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(public_sets, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()
    assert public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url).is_dir()


def test_interruption_between_record_and_folder(server, tmp_path, monkeypatch):
    dsb2018(server.root)

    def interrupt(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert below(tmp_path / "data") == ["dsb2018.download.json"]
    assert public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url).is_dir()


def test_data_folder_cannot_be_written(server, tmp_path, monkeypatch):
    dsb2018(server.root)

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(public_sets.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(BadInput, match=r"data: cannot be written to \(Permission denied\); give"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()


def test_data_folder_is_a_file(server, tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(BadInput, match="data: a file, but a data folder was expected"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)


def test_full_disk(server, tmp_path, monkeypatch):
    dsb2018(server.root)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(public_sets, "_save_pair", full)
    with pytest.raises(NotPossibleHere, match="no space left on the disk; free some"):
        public_sets.fetch("dsb2018", data_dir=tmp_path / "data", mirror=server.url)
    assert not (tmp_path / "data").exists()
