"""The page into which files are dropped: what it makes of them, and what it leaves behind."""

import base64
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
import tifffile
from PIL import Image

from cellrepro import compare
from cellrepro.show.pages import dropped_files, open_page
from cellrepro.show.pages.dropped_files import own_name, temporary_folder, told_apart
from cellrepro.show.pages.open_page import Desks, routes_of
from lab_server import browsing
from local_client import Client, running

FILES = Path(__file__).parents[2] / "docs" / "files"
DROPPED = ("cells.tif", "cells_seg.npy", "script_masks.tif")


@pytest.fixture
def desks(tmp_path):
    made = Desks(tmp_path / "desks")
    (tmp_path / "desks").mkdir()
    yield made
    made.end()


@pytest.fixture
def served(desks):
    with running(routes_of(desks)) as server:
        yield server


class Page(Client):
    """A page that was opened, and drops files."""

    def __init__(self, served):
        super().__init__(served.address)
        self.let_in()
        self.desk = self.json("POST", "/desk", {})["desk"]

    def drop(self, content, name):
        query = urlencode({"desk": self.desk, "name": name})
        return self.json("POST", f"/file?{query}", content)

    def drop_file(self, path):
        return self.drop(path.read_bytes(), path.name)["id"]

    def compare(self, a, b, image=None):
        return self.json("POST", "/compare", {"desk": self.desk, "a": a, "b": b, "image": image})

    def result(self):
        return self.ask("GET", f"/result?desk={self.desk}")


@pytest.fixture
def page(served):
    return Page(served)


def undated(html):
    """A page without the minute in which it was written."""
    return re.sub(rb"on \d{4}-\d\d-\d\d \d\d:\d\d UTC", b"", html)


# -- what it makes of files ------------------------------------------------------------------------


def test_it_shows_the_page_of_compare(page, tmp_path, monkeypatch):
    image, a, b = (page.drop_file(FILES / name) for name in DROPPED)
    assert page.compare(a, b, image) == {"is_left": False}
    answer = page.result()
    expected = tmp_path / "page.html"
    monkeypatch.chdir(FILES)  # whose files the page names as they were given
    compare(DROPPED[1], DROPPED[2], image=DROPPED[0], html=expected)
    assert undated(answer.body) == undated(expected.read_bytes())
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts allow-downloads; default-src 'none'; ")
    saved = page.ask("GET", f"/result?desk={page.desk}&saved_as=../../a%20b.html")
    assert saved.headers["Content-Disposition"].endswith("''..%2F..%2Fa%20b.html")


def test_files_of_one_name_stay_apart_and_what_lies_beside_is_read(page, tmp_path):
    """As a GUI and a script leave them: two folders with the same names, one with a record.

    Programs among them are not run: Python searches no folder of theirs for modules.
    """
    script = page.drop_file(FILES / "script_masks.tif")
    other = page.drop((FILES / "blocks_masks.tif").read_bytes(), "../blocks/script_masks.tif")
    assert other["name"] == "script_masks.tif"
    page.drop(b'{"settings": {"diameter": 31.5}}', "script_masks.json")
    for name in ("numpy.py", "cellrepro.py", "sitecustomize.py"):
        page.drop(f"open({str(tmp_path / 'ran')!r}, 'w')".encode(), name)
    assert page.compare(script, other["id"]) == {"is_left": False}
    text = page.result().body.decode()
    assert "A/script_masks.tif" in text
    assert "B/script_masks.tif" in text
    assert "31.5" in text
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_folders_of_masks_are_compared(page, tmp_path, monkeypatch):
    """As `compare` does, with what it says of a file that the GUI changed later."""
    keys = []
    for side, lost in (("monday", 0), ("friday", 3)):
        (tmp_path / side).mkdir()
        for name in ("few", "most"):
            path = tmp_path / side / f"{name}_masks.tif"
            tifffile.imwrite(
                path, np.where(lost == LABELS, 0, LABELS) if name == "most" else LABELS
            )
        key = page.json("POST", "/folder", {"desk": page.desk, "name": f"../{side}"})["folder"]
        for path in sorted((tmp_path / side).iterdir()):
            query = {"desk": page.desk, "folder": key, "name": path.name, "changed": 10**12}
            page.json("POST", f"/file?{urlencode(query)}", path.read_bytes())
            again = page.json("POST", f"/file?{urlencode(query)}", path.read_bytes())
            assert f"there are two files {path.name}" in again["problem"]
        told = page.json("POST", "/folder/end", {"desk": page.desk, "folder": key})
        assert (told["name"], told["words"]) == (side, "a folder with masks of 2 images")
        keys.append(key)
    assert page.compare(*keys) == {"is_left": False}
    expected = tmp_path / "page.html"
    monkeypatch.chdir(tmp_path)  # whose folders the page names as they were given
    compare("monday", "friday", html=expected)
    assert undated(page.result().body) == undated(expected.read_bytes())
    changed = {path.stat().st_mtime for path in (tmp_path / "desks").rglob("*_masks.tif")}
    assert changed == {1e9}


def test_an_error_is_its_sentence_with_the_names_that_were_dropped(page):
    image, _, b = (page.drop_file(FILES / name) for name in DROPPED)
    problem = page.compare(image, b)["problem"]
    assert problem.startswith("cells.tif (result A): a picture, no label image: ")
    assert page.result().status == 400
    model = page.drop_file(FILES / "old_model")
    assert (
        "old_model: not masks and not an image, not used: a weights file"
        in page.compare(b, model)["problem"]
    )
    assert "two results are needed" in page.compare(b, "no such file")["problem"]
    assert "the files of this page are gone" in page.json("GET", "/state?desk=x")["problem"]


LABELS = np.kron(np.arange(1, 10).reshape(3, 3), np.ones((20, 20), int)).astype(np.uint16)
PICTURE = np.random.default_rng(0).integers(0, 4000, (60, 60)).astype(np.uint16)


@pytest.mark.parametrize(
    ("name", "pixels", "likely", "words"),
    [
        ("a_masks.tif", LABELS, "masks", "masks of 9 cells, 60 × 60 pixels"),
        ("a.tif", LABELS, "masks", "masks of 9 cells, 60 × 60 pixels"),
        ("a.npy", LABELS, "masks", "masks of 9 cells, 60 × 60 pixels"),
        ("a.png", LABELS.astype(np.uint8), "masks", "masks of 9 cells, 60 × 60 pixels"),
        ("a.tif", PICTURE, "image", "a picture, 60 × 60 pixels"),
        ("a.png", PICTURE.astype(np.uint8), "image", "a picture, 60 × 60 pixels"),
        ("a.jpg", PICTURE.astype(np.uint8), "image", "a picture, 60 × 60 pixels"),
        ("a_masks.tif", PICTURE, "masks", "a_masks.tif: a picture, no label image"),
        ("a.dat", None, "beside", "a file with the ending .dat"),
        ("a.json", None, "beside", "not masks and not an image"),
        ("a.tif", None, "image", "a.tif: begins with"),
    ],
)
def test_files_are_told_apart(tmp_path, name, pixels, likely, words):
    path = tmp_path / name
    if pixels is None:
        path.write_text('{"a": 1}\n' if name.endswith("json") else "x\x00y\n")
    elif name.endswith(".npy"):
        np.save(path, pixels)
    elif name.endswith(".tif"):
        tifffile.imwrite(path, pixels)
    else:
        Image.fromarray(pixels).save(path)
    found = told_apart(path)
    assert found.likely == likely
    assert words in (found.words or found.problem)
    assert str(tmp_path) not in found.words + found.problem


# -- what is hostile -------------------------------------------------------------------------------


def test_files_of_outlines_are_results(tmp_path):
    for name in ("script_rois.zip", "script_cp_outlines.txt", "script.geojson"):
        found = told_apart(FILES / name)
        assert (found.likely, found.words, found.problem) == ("masks", "outlines of 47 cells", "")
    broken = tmp_path / "cut_cp_outlines.txt"
    broken.write_text("1,2,3")
    assert told_apart(broken).likely == "masks"
    assert "line 1: no outline" in told_apart(broken).problem


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("cells_seg.npy", "cells_seg.npy"),
        (".zattrs", ".zattrs"),
        ("../../../etc/passwd", "passwd"),
        ("C:\\scans\\Zellen ä.tif", "Zellen ä.tif"),
        ("a\0\n\x1b[2J\u202etif.exe", "a[2Jtif.exe"),
        ("", "file"),
        ("..", "file"),
        ("x/..", "file"),
        ("é" * 500 + "_seg.npy", None),
        ("a." + "b" * 900, None),
    ],
)
def test_names_lead_nowhere(page, tmp_path, given, kept):
    name = page.drop(b"x", given)["name"]
    assert name == own_name(given)
    assert kept in (name, None)
    assert 0 < len(name.encode()) <= 200
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.parent.parent == tmp_path / "desks" / page.desk
    assert file.read_bytes() == b"x"


def test_a_long_name_keeps_its_ending():
    assert own_name("é" * 500 + ".tif").endswith("éé.tif")


def test_a_disk_without_room_is_said_and_nothing_is_kept(page, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 2**30 + 5})
    monkeypatch.setattr(dropped_files.shutil, "disk_usage", lambda folder: usage)
    assert "make room there" in page.drop(b"123456", "a.tif")["problem"]
    assert page.drop(b"12345", "a.tif")["name"] == "a.tif"
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 1


def test_files_and_pages_are_bounded(served, desks, monkeypatch):
    monkeypatch.setattr(open_page, "_MOST_FILES", 2)
    monkeypatch.setattr(open_page, "_MOST_DESKS", 2)
    pages = [Page(served) for _ in range(2)]
    pages[0].drop(b"x", "a"), pages[0].drop(b"x", "b")
    assert "there are 2 files here already" in pages[0].drop(b"x", "c")["problem"]
    pages.append(Page(served))
    assert "are gone" in pages[0].drop(b"x", "a")["problem"]
    assert [page.drop(b"x", "a")["name"] for page in pages[1:]] == ["a", "a"]
    kept = desks.find(pages[1].desk).folder
    pages[1].ask("POST", f"/close?desk={pages[1].desk}")
    assert not kept.exists()


# -- one at a time, and its end --------------------------------------------------------------------


def test_two_pages_compare_one_after_the_other(served, monkeypatch):
    at_once, most = [], []

    def slowly(desks, desk, slots):
        at_once.append(desk)
        most.append(len(at_once))
        time.sleep(0.2)
        at_once.pop()
        desk.html = FILES / "cells.tif"

    monkeypatch.setattr(Desks, "_compare", slowly)
    threads = []
    for page in (Page(served), Page(served)):
        a, b = (page.drop(b"x", f"{name}.tif")["id"] for name in "ab")
        threads.append(threading.Thread(target=page.compare, args=(a, b)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1]


def test_a_comparison_can_be_ended(page, desks, monkeypatch):
    endless = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(open_page, "script_command", lambda *words: endless)
    a, b = (page.drop(b"x", f"{name}.tif")["id"] for name in "ab")
    found = []
    thread = threading.Thread(target=lambda: found.append(page.compare(a, b)))
    thread.start()
    desk = desks.find(page.desk)
    end = time.monotonic() + 20
    while desk.process is None and time.monotonic() < end:
        time.sleep(0.01)
    assert page.json("GET", f"/state?desk={page.desk}") == {"state": "comparing"}
    page.json("POST", "/leave", {"desk": page.desk})
    thread.join(timeout=10)
    assert found == [{"is_left": True}]
    assert page.json("GET", f"/state?desk={page.desk}") == {"state": ""}


def folders():
    return {*Path(tempfile.gettempdir()).glob("cellrepro-open-*")}


def test_nothing_is_left_of_what_was_dropped(tmp_path):
    """Also where the process is asked to end while it compares."""
    before = folders()
    command = [sys.executable, "-m", "cellrepro", "open", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as opened:
        first = opened.stderr.readline()
        page = Page(type("Served", (), {"address": first.rpartition(": ")[2].strip()}))
        page.drop_file(FILES / "cells.tif")
        (folder,) = folders() - before
        assert any(path.name == "cells.tif" for path in folder.rglob("*"))
        if os.name == "posix":
            assert folder.stat().st_mode & 0o077 == 0
        opened.send_signal(signal.SIGTERM)
        out, errors = opened.communicate(timeout=20)
    assert opened.returncode == 0, errors
    assert out.startswith("ended: 0 comparisons shown; the copies of the files")
    assert folders() <= before  # those of processes that were killed go, too


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(dropped_files.tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"cellrepro-open-{ended.pid}-abc").mkdir()
    (tmp_path / f"cellrepro-open-{os.getpid()}-abc").mkdir()
    (tmp_path / "cellrepro-open-mine").mkdir()
    with temporary_folder() as folder:
        names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"cellrepro-open-{os.getpid()}-abc", "cellrepro-open-mine", folder.name}


# -- in a browser ----------------------------------------------------------------------------------

COMPARING = 120_000  # milliseconds, on a busy machine
DROP = """
([selector, files]) => {
  const data = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    data.items.add(new File([bytes], name));
  }
  const target = document.querySelector(selector);
  const facts = { dataTransfer: data, bubbles: true, cancelable: true };
  for (const kind of ["dragenter", "dragover", "drop"])
    target.dispatchEvent(new DragEvent(kind, facts));
}
"""


def dropped(page, selector, *names):
    files = [[name, base64.b64encode((FILES / name).read_bytes()).decode()] for name in names]
    page.evaluate(DROP, [selector, files])


@pytest.mark.browser
def test_files_are_dropped_and_compared_in_a_browser(served, browser):
    with browsing(browser) as page:
        page.goto(served.address)
        assert "token" not in page.url
        dropped(page, ".drop", "script_masks.tif", "cells.tif")
        page.locator("[data-slot=image] .name", has_text="cells.tif").wait_for()
        assert page.locator("#said").inner_text().startswith("One result is still missing: drop")
        page.set_input_files("#pick", FILES / "crop_masks.tif")
        other_size = "this has 192 × 192 pixels, image has 256 × 256"
        page.locator("[data-slot=b] .wrong", has_text=other_size).wait_for()
        page.locator("[data-slot=b] .remove").click()
        page.set_input_files("#pick", FILES / "cells_seg.npy")
        page.locator("#compare:enabled").wait_for()
        page.set_input_files("#folder", FILES)
        page.locator(".others .name", has_text="files a folder with masks of").wait_for()
        page.get_by_label("Remove files").click()
        page.click("#exchange")
        names = page.locator(".slot .name").all_inner_texts()
        assert names == ["cells.tif", "cells_seg.npy", "script_masks.tif"]
        dropped(page, "[data-slot=image]", "debris.tif")
        page.locator("[data-slot=image] .name", has_text="debris.tif").wait_for()
        page.locator("[data-slot=b] select").select_option("image")
        assert page.locator("[data-slot=b] .wrong").inner_text().startswith("⚠ This looks like a p")
        page.click("#compare")
        refused = page.locator("#problem", has_text="debris.tif (result B): a picture")
        refused.wait_for(timeout=COMPARING)
        page.locator("[data-slot=b] select").select_option("image")
        page.locator("#compare").press("Enter")
        page.click("#cancel")
        page.locator("#compare:enabled").wait_for(timeout=COMPARING)
        page.click("#compare")
        shown = page.frame_locator("#shown")
        shown.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=COMPARING)
        assert "29 cells in A, 47 in B" in shown.locator(".lead").inner_text()
        with page.expect_download() as download:
            page.click("#save")
        assert download.value.suggested_filename == "debris_compared.html"
        with page.expect_download() as download:
            shown.get_by_text("as CSV").first.click()
        with page.expect_download() as download:
            shown.locator('[data-export="b"]').click()
        assert download.value.suggested_filename == "debris_script_masks.tif"
        page.go_back()
        assert page.locator("#form").is_visible()
        page.go_forward()
        page.click("#again")
        page.locator(".slot .none").first.wait_for()
        page.click("#form .stop")
        page.get_by_text("Stopped. The copies of your files are removed").wait_for()
