"""The page into which an image and two results are dropped: the command ``open``."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cellrepro.errors import BadInput
from cellrepro.own_scripts import script_command
from cellrepro.results import Result
from cellrepro.show.local_server import (
    LocalServer,
    Request,
    Response,
    Route,
    Routes,
    json_response,
    page_response,
)
from cellrepro.show.pages.dropped_files import DroppedFile, keep, temporary_folder, told_apart
from cellrepro.show.pages.page_file import TEMPLATES, rendered
from cellrepro.terminal import Switch
from cellrepro.words import amount

_COMMAND_LINE = Path(__file__).parents[2] / "__main__.py"
_MOST_BYTES = 2**36  # of a file; what the disk has room for is asked, too
_MOST_DESKS = 20
_MOST_FILES = 40  # on a desk
_SECONDS_TO_END = 5
_RESULT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The comparison is one file with its own scripts, and can ask nobody for anything."""

Slot = Literal["image", "a", "b"]
_FOLDER_OF_SLOT: Mapping[Slot, str] = {"image": "image", "a": "A", "b": "B"}
"""Names of the folders; an error names a file with them."""


@dataclass(frozen=True, repr=False)
class OpenedPage(Result):
    """What was done on the page, once it has ended."""

    n_comparisons: int
    """Comparisons that were shown."""

    def sentence(self) -> str:
        """Say how many comparisons were shown, and that the copies of files are gone."""
        return (
            f"ended: {amount(self.n_comparisons, 'comparison')} shown; the copies of the files "
            "that were dropped are removed, the files themselves were not touched"
        )


def open_page(*, browser: Switch = True) -> OpenedPage:
    """Compare two results on a page of this computer, into which their files are dropped.

    The page takes an image and two results (masks) and shows the comparison that ``compare`` writes
    with ``--html``. It runs until Stop is pressed on it, or Ctrl-C here. Files stay on this
    computer: nobody else can open the page, and it asks no other computer for anything.

    Parameters
    ----------
    browser : bool
        Whether the browser is opened. Its address is shown in any case; on a remote computer it is
        reached by ``ssh -L``.

    Returns
    -------
    OpenedPage
        How many comparisons were shown, once the page has ended.

    Examples
    --------
    Compare two results without another word in the terminal

    ``cellrepro open``
    """
    with temporary_folder() as folder:
        desks = Desks(folder)
        try:
            with LocalServer(routes_of(desks)) as server:
                server.serve("the page for your files", browser=browser)
        finally:
            desks.end()
        return OpenedPage(desks.n_comparisons)


@dataclass
class Desk:
    """What lies on one open page: its files, and the comparison that was made of them."""

    folder: Path
    files: dict[str, DroppedFile] = field(default_factory=dict)
    """By the names that the page has for them."""
    html: Path | None = None
    """The comparison."""
    process: subprocess.Popen[str] | None = None
    state: Literal["", "waiting", "comparing"] = ""
    is_left: bool = False
    """Whether nobody waits for its comparison any more."""


class Desks:
    """The open pages, whose comparisons are made one at a time."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._desks: dict[str, Desk] = {}
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._comparing = threading.Lock()
        self.n_comparisons = 0

    def new(self) -> str:
        """Make a desk; the oldest idle one goes where there are too many."""
        name = secrets.token_hex(8)
        folder = self._folder / name
        folder.mkdir()
        with self._lock:
            idle = [key for key, desk in self._desks.items() if not desk.state]
            too_many = len(self._desks) + 1 - _MOST_DESKS
            removed = [self._desks.pop(key) for key in idle[: max(0, too_many)]]
            self._desks[name] = Desk(folder)
        for desk in removed:
            shutil.rmtree(desk.folder, ignore_errors=True)
        return name

    def find(self, name: object) -> Desk:
        """Find a desk by the name that its page has for it."""
        desk = self._desks.get(name) if isinstance(name, str) else None
        if desk is None:
            raise BadInput("the files of this page are gone; load it again, and drop them again")
        return desk

    def add(self, desk: Desk, name: str, request: Request) -> tuple[str, DroppedFile]:
        """Keep a file, and tell what it is."""
        if len(desk.files) >= _MOST_FILES:
            raise BadInput(f"there are {_MOST_FILES} files here already; remove some")
        key = secrets.token_hex(8)
        path = keep(desk.folder / key, name, request.blocks(), request.n_bytes)
        with self._looking:  # decoded one at a time, so that memory suffices
            dropped = told_apart(path)
        desk.files[key] = dropped
        return key, dropped

    def remove(self, desk: Desk, key: object) -> None:
        """Remove a file."""
        dropped = desk.files.pop(key, None) if isinstance(key, str) else None
        if dropped is not None:
            shutil.rmtree(dropped.path.parent, ignore_errors=True)

    def compare(self, desk: Desk, slots: Mapping[Slot, DroppedFile]) -> None:
        """Make the page of `cellrepro.compare`; an error of it is raised with its sentence."""
        with self._lock:
            if desk.state:
                raise BadInput("these files are being compared")
            desk.state = "waiting"
        desk.is_left = False
        try:
            with self._comparing:
                desk.state = "comparing"
                if not desk.is_left:
                    self._compare(desk, slots)
        finally:
            desk.state = ""

    def _compare(self, desk: Desk, slots: Mapping[Slot, DroppedFile]) -> None:
        """Run the command in a process of its own, which can be ended and gives memory back."""
        desk.html = None
        room = desk.folder / "compared"
        shutil.rmtree(room, ignore_errors=True)
        paths = _laid_out(room, slots, desk.files.values())
        image = ["--image", paths["image"]] if "image" in paths else []
        words = ["compare", *image, "--html", "comparison.html", "--", paths["a"], paths["b"]]
        process = subprocess.Popen(
            script_command(_COMMAND_LINE, *words),
            cwd=room,  # so that its errors name files as the page does
            env=os.environ | {"PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        desk.process = process
        try:
            if desk.is_left:
                process.terminate()
            _, said = process.communicate()
        finally:
            desk.process = None
            _end(process)
        if desk.is_left:
            return
        html = room / "comparison.html"
        if not html.is_file():
            raise BadInput(_problem(said, process.returncode))
        desk.html = html
        self.n_comparisons += 1

    def leave(self, desk: Desk) -> None:
        """End the comparison of a desk, if there is one."""
        desk.is_left = True
        process = desk.process
        if process is not None:
            process.terminate()

    def close(self, name: str) -> None:
        """Forget a desk whose page was closed, and remove its files."""
        desk = self.find(name)
        self.leave(desk)
        with self._lock:
            self._desks.pop(name, None)
        shutil.rmtree(desk.folder, ignore_errors=True)

    def end(self) -> None:
        """End every comparison, since their files are about to be removed."""
        for desk in list(self._desks.values()):
            self.leave(desk)
            process = desk.process
            if process is not None:
                _end(process)


def routes_of(desks: Desks) -> Routes:
    """What the page asks for."""

    def start(request: Request) -> Response:
        return json_response({"desk": desks.new(), "most_bytes": _MOST_BYTES})

    def add(request: Request) -> Response:
        desk = desks.find(request.query.get("desk"))
        key, dropped = desks.add(desk, request.query.get("name", ""), request)
        return json_response(
            {
                "id": key,
                "name": dropped.name,
                "n_bytes": request.n_bytes,
                "likely": dropped.likely,
                "words": dropped.words,
                "problem": dropped.problem,
            }
        )

    def remove(request: Request) -> Response:
        asked = _fields(request)
        desks.remove(desks.find(asked.get("desk")), asked.get("file"))
        return json_response({})

    def compare(request: Request) -> Response:
        asked = _fields(request)
        desk = desks.find(asked.get("desk"))
        desks.compare(desk, _chosen(desk, asked))
        return json_response({"is_left": desk.html is None})

    def state(request: Request) -> Response:
        return json_response({"state": desks.find(request.query.get("desk")).state})

    def leave(request: Request) -> Response:
        desks.leave(desks.find(_fields(request).get("desk")))
        return json_response({})

    def close(request: Request) -> Response:
        desks.close(request.query.get("desk", ""))
        return json_response({})

    def result(request: Request) -> Response:
        html = desks.find(request.query.get("desk")).html
        if html is None:
            raise BadInput("nothing was compared here yet")
        saved_as = request.query.get("saved_as", "")
        return Response(html, "text/html; charset=utf-8", policy=_RESULT_POLICY, saved_as=saved_as)

    script = Response((TEMPLATES / "open.js").read_bytes(), "text/javascript; charset=utf-8")
    page = rendered("open.html.j2")
    return {
        ("GET", "/"): Route(lambda request: page_response(page)),
        ("GET", "/open.js"): Route(lambda request: script),
        ("GET", "/state"): Route(state),
        ("GET", "/result"): Route(result),
        ("POST", "/desk"): Route(start),
        ("POST", "/file"): Route(add, most_bytes=_MOST_BYTES),
        ("POST", "/remove"): Route(remove),
        ("POST", "/compare"): Route(compare),
        ("POST", "/leave"): Route(leave),
        ("POST", "/close"): Route(close),
    }


def _fields(request: Request) -> Mapping[str, object]:
    asked = request.json()
    if not isinstance(asked, dict):
        raise BadInput(f"{request.path} takes a JSON object")
    return asked


def _chosen(desk: Desk, asked: Mapping[str, object]) -> dict[Slot, DroppedFile]:
    """The files that the page compares, by what they are taken for."""
    chosen: dict[Slot, DroppedFile] = {}
    for slot in _FOLDER_OF_SLOT:
        key = asked.get(slot)
        dropped = desk.files.get(key) if isinstance(key, str) else None
        if dropped is not None:
            chosen[slot] = dropped
        elif slot != "image" or key is not None:
            raise BadInput("two results are needed, A and B; drop both on the page")
    return chosen


def _laid_out(
    room: Path, slots: Mapping[Slot, DroppedFile], files: Iterable[DroppedFile]
) -> dict[Slot, str]:
    """Put each file into a folder of its own, and beside both results what is no side itself."""
    paths: dict[Slot, str] = {}
    for slot, dropped in slots.items():
        folder = room / _FOLDER_OF_SLOT[slot]
        folder.mkdir(parents=True)
        _link(dropped.path, folder / dropped.name)
        paths[slot] = f"{folder.name}/{dropped.name}"
    beside = [dropped for dropped in files if dropped not in slots.values()]
    for letter in ("A", "B"):
        for dropped in beside:
            target = room / letter / dropped.name
            if not target.exists():
                _link(dropped.path, target)
    return paths


def _link(file: Path, target: Path) -> None:
    """Give a file a second name, where the disk can; else a copy."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def _problem(said: str, code: int) -> str:
    """What the command said when it ended without a page."""
    _, begun, sentence = said.partition("cellrepro: ")
    if begun:
        return sentence.strip()
    if code < 0:
        return (
            "the system ended the comparison, which may have taken more memory than there is; "
            "close other programs, or crop image and masks"
        )
    return f"the comparison failed, which is an error of cellrepro: {said.strip()[-500:]}"


def _end(process: subprocess.Popen[str]) -> None:
    """See to it that a process has ended."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_SECONDS_TO_END)
            return
        process.kill()
        process.wait()
