"""Any other segmenter as a run: a program that reads an image and writes masks, or a function."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.spec import make_spec
from cellrepro.bits.digests import value_digest
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.images.folder import LabelledImage
from cellrepro.images.image_file import read_labels
from cellrepro.images.label_image import label_image, pieces_of
from cellrepro.model.network import ModelSource
from cellrepro.process.endings import ended_with
from cellrepro.process.process_trees import end_tree, ended_with_us
from cellrepro.run.imported_files import digest_with_imports
from cellrepro.run.inputs import axes_of
from cellrepro.run.options import WrapOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan, Request
from cellrepro.run.plan_inputs import PlanInputs
from cellrepro.run.planning import read_basis
from cellrepro.run.repeats import carry_out, note
from cellrepro.store.manifest import ModelRecord
from cellrepro.words import amount

LOGS = "logs"
"""The folder of a repeat in which stands what a program said, a file for each image."""

_PLACE = re.compile(r"\{(image|masks)(\.(?:tif|png|npy))?\}")
_MOST_OF_A_LABEL = 60


def wrap(
    data: str | Path,
    command: Sequence[str] | str,
    *,
    mode: str = "fast",
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    timeout: float | None = None,
    repeats: int = defaults.SEGMENTATIONS,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> Outcome:
    """Run a program over every image ``repeats`` times, and compare what it wrote.

    Parameters
    ----------
    data : str or Path
        Folder of images as for `cellrepro.segment`.
    command : sequence of str, or str
        The program and its words, or one line as for a shell. ``{image}`` stands for the path of
        an image, ``{masks}`` for that of the label image it writes: a TIFF, or as ``{masks.png}``
        or ``{masks.npy}`` says.
    repeats : int
        How often; 2 are needed for a verdict.
    timeout : float, optional
        Seconds that an image may take.
    quiet : bool
        Show neither progress nor notices.
    mode : {"fast", "off"}
        ``fast`` hands the seed over, as ``CELLREPRO_SEED`` and ``PYTHONHASHSEED``.
    seed, profile, store
        As for `cellrepro.segment`; of a profile the environment variables reach the program.

    Raises
    ------
    BadInput
        If the program fails, or what it writes is no label image of the image's shape.
    NotPossibleHere
        If an image takes longer than ``timeout``. In both cases nothing of the repeat is stored.
    """
    options = WrapOptions(data=data, mode=mode, seed=seed, profile=profile, store=store)
    plan = plan_program(options, command, timeout=timeout)
    return _carried_out(plan, repeats, quiet=quiet)


def wrap_python(
    function: str,
    data: str | Path,
    *,
    mode: str = defaults.MODE,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    repeats: int = defaults.SEGMENTATIONS,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> Outcome:
    """Call a function on every image ``repeats`` times, each time in a new process, and compare.

    ``function`` is ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``. It takes an image, shape (Y, X) or
    (Y, X, C) with its dtype as stored, and returns its label image: integers of shape (Y, X), 0 for
    background; of a stack, (Z, Y, X) or (Z, Y, X, C), one of shape (Z, Y, X). The parameters
    ``mode``, ``seed``, ``profile`` and ``store`` are those of `cellrepro.segment`, and in force
    around it in the same way.

    What names the run are the content of the function's file and of those that it imports from
    beside it or from its own package. What is installed, and what it reads, is not looked at.
    """
    options = WrapOptions(data=data, mode=mode, seed=seed, profile=profile, store=store)
    return _carried_out(plan_function(options, function), repeats, quiet=quiet)


def _carried_out(plan: Plan, repeats: int, *, quiet: bool) -> Outcome:
    """Carry out a plan, and say which of its repeats were stored before."""
    outcome = carry_out(plan, repeats=repeats, quiet=quiet)
    stored = outcome.stored_before
    if stored and not quiet:
        what = amount(len(outcome.repeats), "repeat")
        # Local time is for reading only: a clock may be set back, so it decides nothing.
        times = [datetime.fromisoformat(repeat.manifest.started) for repeat in stored]
        last = max(times).astimezone().strftime("%Y-%m-%d %H:%M")
        note(
            f"stored already and not run again: {len(stored)} of {what}, the last made on {last}, "
            "as the command or function and the files that name the run are the same; "
            "what they read or import from elsewhere is not looked at: where that has changed, "
            f"give another --store, or remove {outcome.folder}"
        )
    return outcome


def plan_function(options: WrapOptions, function: str) -> Plan:
    """Check all that a wrapped function needs and name its spec; see `wrap_python`."""
    of_files = digest_with_imports(_file_of(function))
    digest = of_files if isinstance(of_files, str) else value_digest(of_files)
    source = ModelSource(function.rpartition("/")[2], "function", digest=digest)
    plan = _planned(options, source, (function,))
    return replace(plan, request=Wrapped(**vars(plan.request)))


def _planned(options: WrapOptions, model: ModelSource, program: tuple[str, ...]) -> Plan:
    """The plan of a foreign segmenter, still without what its process needs beside the spec."""
    basis = read_basis(options, PlanInputs(), axes=axes_of("wrap", None), model=model)
    spec = make_spec(
        task="wrap",
        **basis.of_spec(),
        seed=options.seed,
        mode=options.mode,
        ledger="off",
        program=program,
    )
    return basis.plan(spec)


def plan_program(
    options: WrapOptions, command: Sequence[str] | str, *, timeout: float | None = None
) -> Plan:
    """Check all that a wrapped program needs and name its spec; parameters are those of `wrap`."""
    if options.mode not in ("off", "fast"):
        raise BadInput(
            f"mode is {options.mode!r}; expected 'off' or 'fast', since the others set switches of "
            "PyTorch inside a process, and that of a program is its own (wrap-python has them all)"
        )
    if timeout is not None and not timeout > 0:
        raise BadInput(f"timeout is {timeout}; expected seconds, more than 0")
    words = tuple(shlex.split(command) if isinstance(command, str) else map(str, command))
    found = {match[0] for word in words for match in _PLACE.finditer(word)}
    n_masks = len({one for one in found if one.startswith("{masks")})
    if "{image}" not in found or n_masks != 1:
        raise BadInput(
            f"the command is {' '.join(words)!r}; expected {{image}} in it, where the image's path "
            "goes, and one of {masks}, {masks.png}, {masks.npy}, where it writes the label image"
        )
    files = {word: path for word in words if (path := _file_in(word)) is not None}
    program = shutil.which(words[0])
    if program is None:
        raise BadInput(
            f"there is no program {words[0]!r}; expected the name of one on the PATH, or the path "
            "of a file that can be executed: for a script its interpreter comes first"
        )
    # The words name the program, the files that they name and what these import its content.
    of_files = {word: digest_with_imports(path) for word, path in files.items()}
    digest = value_digest([words, of_files])
    named = " ".join(_PLACE.sub("", word.rpartition("/")[2]) for word in words)
    label = " ".join(named.split())
    short = label if len(label) <= _MOST_OF_A_LABEL else f"{label[:_MOST_OF_A_LABEL]}…"
    source = ModelSource(short, "program", digest=digest)
    plan = _planned(options, source, words)
    # It starts in an empty folder, from where a relative path leads nowhere.
    moved = tuple(
        f"{''.join(word.rpartition('=')[:2])}{files[word]}" if word in files else word
        for word in words[1:]
    )
    absolute = (str(Path(program).absolute()), *moved)
    return replace(plan, request=Wrapped(**vars(plan.request), words=absolute, timeout=timeout))


def _file_in(word: str) -> Path | None:
    """The file that a word of a command, or what stands behind its ``=``, names."""
    with suppress(OSError):  # a name too long for one
        path = Path(word.rpartition("=")[2]).absolute()
        return path if path.is_file() else None
    return None


# -- in the process of a repeat ------------------------------------------------------------


@dataclass(frozen=True)
class Wrapped(Request):
    """A request with another segmenter in the place of Cellpose's network: a program, started anew
    for every image, or the function that the spec names."""

    words: tuple[str, ...] = ()  # of a program, with absolute paths
    timeout: float | None = None  # seconds for an image

    def build(self, device: Any, staged: Path) -> tuple[Any, ModelRecord]:
        """No network; on record stands what the segmenter is."""
        kind, digest = self.model.architecture, str(self.model.digest)
        fields: dict[str, Any] = {"dtype": self.setup.profile.dtype, "initial_weights": digest}
        return None, ModelRecord(architecture=kind, n_parameters=0, **fields)

    def results(self, network: Any, images: Sequence[LabelledImage], staged: Path) -> Iterator[Any]:
        """The masks of one image after another, known to be label images of their shape."""
        from cellrepro.model.inference import Segmentation

        function = None if self.words else self._function()
        for image in images:
            who, begun = f"{self.model.label} on {image.name}", time.perf_counter()
            if function is None:
                (staged / LOGS).mkdir(exist_ok=True)
                found = self._written(image, staged / LOGS / f"{image.name}.txt", who)
            else:
                found = _tried(who, np.asarray, _tried(who, function, image.image.copy()))
            yield Segmentation(image.name, _checked(found, image, who), time.perf_counter() - begun)

    def _function(self) -> Callable[[np.ndarray], Any]:
        (reference,) = self.spec.program or ("",)
        function = _tried(f"{self.model.label}, when imported,", load_function, reference)
        self.setup.seed_all()  # so that what its import drew changes nothing
        return function

    def _written(self, image: LabelledImage, log: Path, who: str) -> np.ndarray:
        """What the program writes for an image."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch)
            read = folder / f"image{image.image_path.suffix}"
            shutil.copyfile(image.image_path, read)  # what it leaves beside it is in nobody's way
            ending = next(m[2] for w in self.words for m in _PLACE.finditer(w) if m[1] == "masks")
            paths = {"image": read, "masks": folder / f"masks{ending or '.tif'}"}
            words = [_PLACE.sub(lambda place: str(paths[place[1]]), word) for word in self.words]
            with log.open("wb") as file:
                code = self._ended(words, folder, file, who)
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()
            tail = "\n".join(said[-12:]) or "(none)"
            if code:
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                raise BadInput(f"{who} ended with {how}; its last words:\n{tail}")
            if not paths["masks"].exists():
                raise BadInput(
                    f"{who} ended well and wrote nothing where {{masks}} stood; expected a label "
                    f"image there, {paths['masks'].suffix}; its last words:\n{tail}"
                )
            try:
                return read_labels(paths["masks"])
            except BadInput as error:
                raise BadInput(f"what {who} wrote is no label image: {error}") from error

    def _ended(self, words: list[str], folder: Path, log: IO[bytes], who: str) -> int:
        """The exit code of the program, once it and all it started have ended."""
        into: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log}
        into |= {"stderr": subprocess.STDOUT, "start_new_session": True}
        # Without a seed not even Python's hashes have one, as if the user had started it.
        seeds = dict.fromkeys(("CELLREPRO_SEED", "PYTHONHASHSEED"), self.spec.seed)
        own = {name: value for name, value in os.environ.items() if name not in seeds}
        own |= {name: str(seed) for name, seed in seeds.items() if seed is not None}
        try:
            process = subprocess.Popen(words, cwd=folder, env=own, **into)
        except OSError as error:
            raise BadInput(f"{words[0]} cannot be started: {error}") from error
        try:
            with ended_with_us(process.pid):
                return process.wait(self.timeout)
        except subprocess.TimeoutExpired as error:
            raise NotPossibleHere(
                f"{who} took more than {self.timeout:g} seconds and was stopped; allow it more "
                "with --timeout, or see why it waits: it is given no input"
            ) from error
        finally:
            end_tree(process.pid)
            process.wait()


def _checked(masks: Any, image: LabelledImage, who: str) -> np.ndarray:
    labels = label_image(f"what came of {who}", masks)
    axes = "(Z, Y, X)" if image.stack else "(Y, X)"
    expected = image.image.shape[: 2 + image.stack]
    if labels.shape != expected:
        raise BadInput(
            f"{who} gave masks of shape {labels.shape}; expected {axes} = {expected}, that of the "
            "image: write them at the size of the image that was given"
        )
    found = pieces_of(labels)
    if found.is_picture or found.in_many_pieces:
        raise BadInput(
            f"{who} gave a picture or a foreground map, no label image: {found.n_values} of its "
            f"values lie in {found.n_pieces} separate pieces; expected a number of its own for "
            "every object (scipy.ndimage.label numbers the pieces of a foreground map)"
        )
    return labels


# -- functions -----------------------------------------------------------------------------


def _tried(who: str, function: Callable[..., Any], *given: Any) -> Any:
    try:
        return function(*given)
    except BadInput:
        raise
    except Exception as error:
        ending = ended_with(repr(error), label=who)
        if ending.status != "failed":
            raise ending from error
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename}:{place.lineno}"
        raise BadInput(f"{who} failed with {error!r}, in {where}") from error


def load_function(reference: str) -> Callable[[np.ndarray], Any]:
    """The function that ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` names, imported."""
    file, (place, _, name) = _file_of(reference), reference.rpartition(":")
    by_file = place.endswith(".py")
    sys.path.insert(0, str(file.parent if by_file else Path.cwd()))
    module = importlib.import_module(file.stem if by_file else place)
    function = getattr(module, name, None)
    if not callable(function) or not file.samefile(str(module.__file__)):
        raise BadInput(
            f"{module.__file__} was imported for {reference!r} and has no function {name!r} of "
            f"{file}; give the function's name, and the file one that no other module has"
        )
    return function


def _file_of(reference: str) -> Path:
    """The file of a function, which is not imported."""
    place, _, name = reference.rpartition(":")
    ends, inside = (".py", "/__init__.py"), place.replace(".", "/")
    paths = [f"{root}/{inside}{end}" for root in (Path.cwd(), *sys.path) for end in ends]
    for path in [place] if place.endswith(".py") else paths:
        if name.isidentifier() and Path(path).is_file():
            return Path(path).absolute()
    raise BadInput(
        f"{reference!r} names no function; expected MODULE:FUNCTION, the module in this folder or "
        "installed, or FILE.py:FUNCTION, a file that exists"
    )
