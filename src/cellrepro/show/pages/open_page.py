"""The page into which an image and two results are dropped: the command ``open``."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from markupsafe import escape

from cellrepro.command_lines import shell_line
from cellrepro.explanation.mask_files import MASK_ENDINGS
from cellrepro.images.outline_files import OUTLINE_ENDINGS, ROI_ENDING
from cellrepro.own_scripts import script_command
from cellrepro.show.local_server import (
    LocalServer,
    Request,
    Response,
    Route,
    Routes,
    json_response,
    page_response,
)
from cellrepro.show.pages.dropped_files import (
    DroppedFile,
    keep,
    own_name,
    temporary_folder,
    told_apart,
)
from cellrepro.show.pages.page_file import TEMPLATES, rendered
from cellrepro.terminal import Switch
from samebits.errors import BadInput
from samebits.results import Result
from samebits.words import amount

_COMMANDS_OF_PAGE = re.compile(r"<pre[^>]*>.*?</pre>", re.DOTALL)
_COMMAND_LINE = Path(__file__).parents[2] / "__main__.py"
_MOST_BYTES = 2**36  # of a file; what the disk has room for is asked, too
_MOST_DESKS = 20
_MOST_FILES = 40  # on a desk; a folder counts as one
_MOST_IN_FOLDER = 5000
_SECONDS_TO_END = 5
_RESULT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The comparison is one file with its own scripts, and can ask nobody for anything."""

_ENDINGS = (*MASK_ENDINGS, *OUTLINE_ENDINGS, ROI_ENDING)
"""Of files in a folder that are sent."""

Slot = Literal["image", "a", "b"]
_FOLDER_OF_SLOT: Mapping[Slot, str] = {"image": "image", "a": "A", "b": "B"}
"""Names of the folders; commands of files that are called alike name them."""


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
    folders: dict[str, Path] = field(default_factory=dict)
    """Those whose files are still sent."""
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

    def add(self, desk: Desk, request: Request) -> tuple[str, DroppedFile]:
        """Keep a file, and tell what it is."""
        self._refuse_more(desk)
        key = secrets.token_hex(8)
        path = _kept(desk.folder / key, request)
        return key, self._told_apart(desk, key, path)

    def add_folder(self, desk: Desk, name: str) -> str:
        """Make a folder, to which files are then added."""
        self._refuse_more(desk)
        key = secrets.token_hex(8)
        folder = desk.folder / key / own_name(name)
        folder.mkdir(parents=True)
        desk.folders[key] = folder
        return key

    def add_to_folder(self, desk: Desk, key: str, request: Request) -> None:
        """Keep a file of a folder."""
        folder = _folder_of(desk, key)
        if sum(1 for _ in folder.iterdir()) >= _MOST_IN_FOLDER:
            raise BadInput(f"{folder.name} has more than {_MOST_IN_FOLDER} files; give fewer")
        _kept(folder, request)

    def end_folder(self, desk: Desk, key: str) -> DroppedFile:
        """Tell what a folder is, once all its files are there."""
        folder = _folder_of(desk, key)
        del desk.folders[key]
        return self._told_apart(desk, key, folder)

    def _refuse_more(self, desk: Desk) -> None:
        if len(desk.files) + len(desk.folders) >= _MOST_FILES:
            raise BadInput(f"there are {_MOST_FILES} files here already; remove some")

    def _told_apart(self, desk: Desk, key: str, path: Path) -> DroppedFile:
        with self._looking:  # decoded one at a time, so that memory suffices
            dropped = told_apart(path)
        desk.files[key] = dropped
        return dropped

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
            cwd=room,
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
            raise BadInput(_named_by_slot(_problem(said, process.returncode), paths))
        _name_as_given(html, room, paths.values())
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
        return json_response({"desk": desks.new(), "most_bytes": _MOST_BYTES, "endings": _ENDINGS})

    def add(request: Request) -> Response:
        desk = desks.find(request.query.get("desk"))
        folder = request.query.get("folder")
        if folder is not None:
            desks.add_to_folder(desk, folder, request)
            return json_response({})
        return _as_json(*desks.add(desk, request), n_bytes=request.n_bytes)

    def add_folder(request: Request) -> Response:
        asked = _fields(request)
        name = desks.add_folder(desks.find(asked.get("desk")), str(asked.get("name", "")))
        return json_response({"folder": name})

    def end_folder(request: Request) -> Response:
        asked = _fields(request)
        key = str(asked.get("folder"))
        return _as_json(key, desks.end_folder(desks.find(asked.get("desk")), key))

    def remove(request: Request) -> Response:
        asked = _fields(request)
        desks.remove(desks.find(asked.get("desk")), asked.get("file"))
        return json_response({})

    def compare(request: Request) -> Response:
        asked = _fields(request)
        desk = desks.find(asked.get("desk"))
        desks.compare(desk, _chosen(desk, asked))
        return json_response({"is_left": desk.is_left})

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
        ("POST", "/folder"): Route(add_folder),
        ("POST", "/folder/end"): Route(end_folder),
        ("POST", "/remove"): Route(remove),
        ("POST", "/compare"): Route(compare),
        ("POST", "/leave"): Route(leave),
        ("POST", "/close"): Route(close),
    }


def _as_json(key: str, dropped: DroppedFile, *, n_bytes: int | None = None) -> Response:
    return json_response(
        {
            "id": key,
            "name": dropped.name,
            "n_bytes": n_bytes,
            "likely": dropped.likely,
            "words": dropped.words,
            "problem": dropped.problem,
            "shape": dropped.shape,
        }
    )


def _kept(folder: Path, request: Request) -> Path:
    """Keep what is sent; the page says when it was changed, in milliseconds."""
    changed = request.query.get("changed", "")
    seconds = int(changed) / 1000 if re.fullmatch(r"\d{1,14}", changed, re.ASCII) else time.time()
    name = request.query.get("name", "")
    return keep(folder, name, request.blocks(), request.n_bytes, seconds)


def _folder_of(desk: Desk, key: str) -> Path:
    folder = desk.folders.get(key)
    if folder is None:
        raise BadInput("this folder is gone; drop it again")
    return folder


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
            if dropped.likely == "beside":
                raise BadInput(
                    f"{dropped.name}: {dropped.words}; drop masks, ROIs or outlines instead, or "
                    "as the image a picture"
                )
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


def _link(file: str | Path, target: str | Path) -> None:
    """Give a file, or all of a folder, a second name where the disk can; else a copy."""
    if Path(file).is_dir():
        shutil.copytree(file, target, copy_function=_link)
        return
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)


def _named_by_slot(problem: str, paths: Mapping[Slot, str]) -> str:
    """Name files in a sentence as the page does, and not by the folders here."""
    words = {
        path: f"{Path(path).name} ({'the image' if slot == 'image' else f'result {slot.upper()}'})"
        for slot, path in paths.items()
    }
    any_path = re.compile("|".join(re.escape(path) for path in words))
    return any_path.sub(lambda path: words[path[0]], problem)


def _name_as_given(html: Path, room: Path, paths: Iterable[str]) -> None:
    """Give files in the commands of a page the names that they have outside the folders here."""
    names = {
        str(escape(shell_line([path]))): escape(shell_line([Path(path).name])) for path in paths
    }
    any_path = re.compile("|".join(re.escape(path) for path in names))

    def with_names(command: re.Match[str]) -> str:
        return any_path.sub(lambda path: names[path[0]], command[0])

    text = html.read_text(encoding="utf-8")
    if len({*names.values()}) == len(names):  # else folders tell them apart
        text = _COMMANDS_OF_PAGE.sub(with_names, text)
    html.write_text(text, encoding="utf-8")


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
