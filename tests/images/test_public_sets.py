"""Public image sets, fetched from a server on this machine that serves the same layouts."""

import copy
import functools
import http.server
import io
import json
import shutil
import threading
import zipfile

import imagecodecs
import numpy as np
import pytest
import tifffile

from cellrepro.images import public_sets
from cellrepro.images.folder import read_folder
from cellrepro.images.image_sets import provide_data
from cellrepro.images.public_sets import registry
from samebits.errors import BadInput, NotPossibleHere

REGISTRY = registry()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Cuts a file short where the server is told to."""

    def copyfile(self, source, outputfile):
        data = source.read()
        outputfile.write(data[: len(data) - self.server.cut])
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture(autouse=True)
def undigested(monkeypatch):
    """A registry without digests, as the archives served here are none of the publishers'."""
    entries = copy.deepcopy(REGISTRY)
    for entry in entries.values():
        for archive in entry.archives:
            archive.sha256 = None
    monkeypatch.setattr(public_sets, "registry", lambda: entries)
    return entries


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server for ``tmp_path/www`` on a free port."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    root = tmp_path / "www"
    root.mkdir()
    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.root, running.cut = root, 0
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


def dsb2018(root):
    members = {
        f"dsb2018/{split}/{kind}/{name}.tif": tif(grey(number) if kind == "images" else MASKS)
        for number, (split, name) in enumerate([("train", "a"), ("train", "b"), ("test", "c")])
        for kind in ("images", "masks")
    }
    pack(root / "dsb2018.zip", members | {"dsb2018/train/images/._a.tif": b"x"})


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


@pytest.fixture
def fetch(server, tmp_path):
    """Fetches into ``tmp_path/data`` from that server."""
    return lambda name="dsb2018", mirror=server.url: provide_data(
        name, data_dir=tmp_path / "data", mirror=mirror
    )


@pytest.mark.parametrize(
    ("name", "make", "train", "test"),
    [
        ("dsb2018", dsb2018, ["a", "b"], ["c"]),
        ("bbbc039", bbbc039, ["IXMtest_A01"], ["IXMtest_A03"]),
    ],
)
def test_the_second_use_verifies(server, fetch, tmp_path, listing, name, make, train, test):
    make(server.root)
    folder = fetch(name)
    assert folder == tmp_path / "data" / name
    actual = read_folder(folder)
    assert actual.warnings == ()
    assert [[item.name for item in part] for part in (actual.train, actual.test)] == [train, test]
    first = actual.train[0]
    np.testing.assert_array_equal(first.image, grey(0, first.image.dtype))
    assert first.image.dtype == (np.uint16 if name == "bbbc039" else np.uint8)
    # the same three objects; BBBC039 numbers by value, so the third comes before the second
    expected = np.array([0, 1, 3, 2])[MASKS] if name == "bbbc039" else MASKS
    np.testing.assert_array_equal(first.masks, expected)
    assert sorted(path.name for path in folder.parent.iterdir()) == [name, f"{name}.download.json"]

    record = json.loads((tmp_path / f"data/{name}.download.json").read_text())
    assert record["files"] == actual.files
    before = listing(tmp_path / "data")
    assert fetch(name, "http://127.0.0.1:9") == folder  # where nobody answers
    assert listing(tmp_path / "data") == before


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda train: (train / "a.tif").write_bytes(tif(grey(9))), "train/a.tif"),
        (lambda train: (train / "a_masks.tif").unlink(), "train/a_masks.tif"),
        (lambda train: shutil.copy(train / "a.tif", train / "z.tif"), "train/z.tif"),
    ],
)
def test_tampering_is_found(server, fetch, spoil, match):
    dsb2018(server.root)
    spoil(fetch() / "train")
    with pytest.raises(BadInput, match=f"added since the download: {match}; delete .*dsb2018"):
        fetch()


def test_another_archive_and_a_folder_without_its_record_are_refused(
    server, fetch, tmp_path, undigested
):
    dsb2018(server.root)
    undigested["dsb2018"].archives[0].sha256 = "0" * 64
    with pytest.raises(BadInput, match=f"not the file that was published .*{'0' * 64}.*--mirror"):
        fetch()
    assert not (tmp_path / "data").exists()
    (tmp_path / "data/dsb2018").mkdir(parents=True)
    for record in ("", '{"files": 3}'):
        with pytest.raises(BadInput, match=r"dsb2018: exists, but its record .* cannot be read"):
            fetch()
        (tmp_path / "data/dsb2018.download.json").write_text(record)


def test_server_that_breaks_off_or_is_without_the_file_or_down(server, fetch, tmp_path):
    with pytest.raises(NotPossibleHere, match=r"cannot be fetched.*404.*--mirror"):
        fetch()
    dsb2018(server.root)
    server.cut = 100
    with pytest.raises(NotPossibleHere, match=r"dsb2018.zip: .*the download broke off.*try again"):
        fetch()
    server.shutdown()
    server.socket.close()
    with pytest.raises(NotPossibleHere, match=r"cannot be fetched.*refused"):
        fetch()
    assert not (tmp_path / "data").exists()


def test_command_fetches_from_a_mirror(server, tmp_path, invoke):
    dsb2018(server.root)
    into = ("--into", tmp_path / "data", "--json")
    fetched = invoke("data", "dsb2018", "--mirror", server.url, *into)
    assert (fetched.code, fetched.json) == (0, {"folder": str(tmp_path / "data/dsb2018")})
    for wrong, said in {
        ("synthetic", "--mirror", "http://127.0.0.1:9"): "is made here",
        ("bbbc039", "--mirror", "mirror.example"): "an address that starts with http",
        ("bbbc039", "--mirror", "httpd.example"): "an address that starts with http",
        ("--mirror", server.url): "no set is named that could be fetched from there",
        ("bbbc040",): "known are synthetic, bbbc039",
    }.items():
        answer = invoke("data", *wrong, *into)
        assert answer.code == 2
        assert said in answer.err
