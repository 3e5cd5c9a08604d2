"""A program as a segmenter: started for every image, which it reads, and writes its masks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PureWindowsPath

import numpy as np

from cellrepro.command_lines import words_of
from cellrepro.images.folder import LabelledImage
from cellrepro.images.image_file import read_labels
from cellrepro.model.weight_sources import ModelSource
from cellrepro.process.child import NeedOfCellpose
from cellrepro.process.process_ends import last_lines
from cellrepro.process.process_trees import end_tree, ended_with_us
from cellrepro.run.imported_files import ScriptContent
from cellrepro.run.options import WrapOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import PlanInputs
from cellrepro.run.segmenter import WrappedRequest, plan_wrapped
from samebits.digests import value_digest
from samebits.errors import BadInput, NotPossibleHere
from samebits.mode_names import Mode

LOGS = "logs"
"""Folder of a repeat with the output of the program, a file for each image."""

_PLACEHOLDER = re.compile(r"\{(image|masks)(\.(?:tif|png|npy))?\}")
_LONGEST_LABEL = 60
_SEED_VARIABLES = ("CELLREPRO_SEED", "PYTHONHASHSEED")


# -- planned -------------------------------------------------------------------------------


def plan_program(
    options: WrapOptions,
    command: Sequence[str] | str,
    *,
    timeout: float | None = None,
    inputs: PlanInputs | None = None,
) -> Plan:
    """Check a command and plan its runs."""
    _refuse_other_modes(options.mode)
    if timeout is not None and not timeout > 0:
        raise BadInput(f"timeout is {timeout}; expected seconds, more than 0")
    words = tuple(_words_of(command))
    _refuse_without_placeholders(words)
    program = shutil.which(words[0])
    if program is None:
        raise BadInput(
            f"there is no program {words[0]!r}; expected the name of one on the PATH, or the path "
            "of a file that can be executed: for a script its interpreter comes first"
        )
    files = _files_named_in(words)
    # The key holds the words, the files that they name, and what these import.
    contents = {word: ScriptContent.of(path).as_json() for word, path in files.items()}
    source = ModelSource(_label_of(words), "program", digest=value_digest([words, contents]))
    request_type = partial(
        ProgramRequest,
        words=(str(Path(program).absolute()), *_with_absolute_paths(words[1:], files)),
        timeout=timeout,
    )
    return plan_wrapped(options, source, words, inputs=inputs, request_type=request_type)


def _words_of(command: Sequence[str] | str) -> list[str]:
    if isinstance(command, str):
        return words_of(command, windows=os.name == "nt")
    return [str(word) for word in command]


def _refuse_other_modes(mode: Mode) -> None:
    if mode not in ("off", "fast"):
        raise BadInput(
            f"mode is {mode!r}; expected 'off' or 'fast', since the others set switches of PyTorch "
            "inside a process, and that of a program is its own (wrap-python has them all)"
        )


def _refuse_without_placeholders(words: tuple[str, ...]) -> None:
    placeholders = {match[0] for word in words for match in _PLACEHOLDER.finditer(word)}
    of_masks = [placeholder for placeholder in placeholders if placeholder.startswith("{masks")]
    if "{image}" not in placeholders or len(of_masks) != 1:
        raise BadInput(
            f"the command is {' '.join(words)!r}; expected {{image}} in it, where the image's path "
            "goes, and one of {masks}, {masks.png}, {masks.npy}, where it writes the label image"
        )


def _files_named_in(words: tuple[str, ...]) -> dict[str, Path]:
    """The files that words of a command name, also after an ``=``; by word."""
    files = {}
    for word in words:
        with suppress(OSError):  # a name too long for one
            path = Path(word.rpartition("=")[2]).absolute()
            if path.is_file():
                files[word] = path
    return files


def _with_absolute_paths(words: tuple[str, ...], files: Mapping[str, Path]) -> list[str]:
    """Words with absolute paths, as the program starts in an empty folder."""
    absolute = []
    for word in words:
        option, equals, _ = word.rpartition("=")
        absolute.append(f"{option}{equals}{files[word]}" if word in files else word)
    return absolute


def _label_of(words: tuple[str, ...]) -> str:
    """A short label of a command, without folders and placeholders."""
    last_part = _last_part_on_windows if os.name == "nt" else _last_part
    names = [_PLACEHOLDER.sub("", last_part(word)) for word in words]
    label = " ".join(" ".join(names).split())
    return label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}…"


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


def _last_part_on_windows(path: str) -> str:
    return PureWindowsPath(path).name


# -- in the process of a repeat ------------------------------------------------------------


@dataclass(frozen=True)
class ProgramRequest(WrappedRequest):
    """A request to run a program instead of Cellpose's network."""

    words: tuple[str, ...] = ()
    """The program and its words, with absolute paths."""
    timeout: float | None = None
    """Limit in seconds for one image."""

    @property
    def cellpose(self) -> NeedOfCellpose:
        """Whether the child process imports Cellpose."""
        return "unused"

    def segmenter(self, staged: Path) -> Callable[[LabelledImage], np.ndarray]:
        """The program, started for each image, with its output in `LOGS`."""
        logs = staged / LOGS
        logs.mkdir(exist_ok=True)
        return partial(self._segment, logs=logs)

    def _segment(self, image: LabelledImage, *, logs: Path) -> np.ndarray:
        """Start the program on a copy of one image, and read the masks that it writes."""
        label = self.label_on(image)
        log = logs / f"{image.name}.txt"
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch)
            copy = folder / f"image{image.image_path.suffix}"
            shutil.copyfile(image.image_path, copy)  # a program may write files beside its image
            masks = folder / f"masks{self._masks_ending()}"
            words = self._words_with(image_path=copy, masks_path=masks)
            code = self._exit_code(words, folder, log, label)
            if code:
                ending = f"exit code {code}" if code > 0 else f"signal {-code}"
                raise BadInput(f"{label} ended with {ending}; {_last_lines(log)}")
            if not masks.exists():
                raise BadInput(
                    f"{label} ended well and wrote nothing where {{masks}} stood; expected a label "
                    f"image there, {masks.suffix}; {_last_lines(log)}"
                )
            try:
                return read_labels(masks)
            except BadInput as error:
                raise BadInput(f"what {label} wrote is no label image: {error}") from error

    def _words_with(self, *, image_path: Path, masks_path: Path) -> list[str]:
        """The words of the command, with paths for the placeholders."""
        paths = {"image": str(image_path), "masks": str(masks_path)}
        return [_PLACEHOLDER.sub(lambda match: paths[match[1]], word) for word in self.words]

    def _masks_ending(self) -> str:
        """The extension of the file that the program writes."""
        for word in self.words:
            for match in _PLACEHOLDER.finditer(word):
                if match[1] == "masks":
                    return match[2] or ".tif"
        return ".tif"

    def _environment(self) -> dict[str, str]:
        """The environment variables of the program: those of this process, and the seed."""
        # Without a seed not even Python's hashes have one, as if the user had started it.
        environment = {
            name: value for name, value in os.environ.items() if name not in _SEED_VARIABLES
        }
        if self.spec.seed is not None:
            environment |= dict.fromkeys(_SEED_VARIABLES, str(self.spec.seed))
        return environment

    def _exit_code(self, words: list[str], folder: Path, log: Path, label: str) -> int:
        """Run the program until it and all that it started have ended; gives its exit code."""
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    words,
                    cwd=folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(f"{words[0]} cannot be started: {error}") from error
            try:
                with ended_with_us(process.pid):
                    return process.wait(self.timeout)
            except subprocess.TimeoutExpired as error:
                raise NotPossibleHere(
                    f"{label} took more than {self.timeout:g} seconds and was stopped; allow it "
                    "more with timeout, or see why it waits: it is given no input"
                ) from error
            finally:
                end_tree(process.pid)
                process.wait()


def _last_lines(log: Path) -> str:
    """Quote the end of a program's output."""
    quoted = last_lines(log.read_text(encoding="utf-8", errors="replace")) or "(none)"
    return f"its last words:\n{quoted}"
