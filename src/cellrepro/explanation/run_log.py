"""What Cellpose's own log, ``run.log``, records of how masks were made.

Cellpose writes ``.cellpose/run.log`` in the user's folder where ``--verbose`` is given,
``io.logger_setup()`` is called, or the GUI is open, and overwrites it each time. Lines were read in
what 2.3.2, 3.1.1.2, 4.0.9 and 4.2.1.1 wrote; the last has another form of line than the rest.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from cellrepro.errors import no_such_file
from cellrepro.explanation.conditions import MODEL, VERSION
from cellrepro.explanation.recorded_settings import (
    DEVICE,
    MODEL_PATH,
    TRAINING,
    RecordedSettings,
    generation_number,
    of_file,
)
from cellrepro.spec.segmentation_settings import CHANNELS
from samebits.errors import BadInput
from samebits.words import amount, joined, some

USUAL_NAME = "run.log"
FIRST = "WRITING LOG OUTPUT TO"
"""What Cellpose writes first."""
_FIRST_LINES = 3  # among which is the one that Cellpose writes first
_LONGEST_LINE = 4096  # letters
_MOST_LINES = 50  # of one entry; the longest of Cellpose is a traceback
_MOST_LETTERS = 2**23  # of a log
_MOST_WARNINGS = 50

_LINE = re.compile(
    r"\d{4}-\d\d-\d\d [\d:,]+ "
    r"(?:\[(?P<level>[A-Z]+)\]|(?P<level_of_4_2>[A-Z]+) \[[^]]*\]) ?(?P<message>.*)"
)


class _Entry(NamedTuple):
    """One line of the log, with the lines without a time that follow it."""

    is_warning: bool
    message: str


@dataclass(frozen=True)
class _Log:
    """The entries that were read of a log."""

    name: str
    entries: Sequence[_Entry]
    is_cut: bool

    def matches(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        """Where a pattern is first found in each message that has it."""
        return [match for entry in self.entries if (match := pattern.search(entry.message))]


def is_run_log(path: Path) -> bool:
    """Whether a file begins as Cellpose's log does."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as stream:
        return any(FIRST in stream.readline(_LONGEST_LINE) for _ in range(_FIRST_LINES))


def log_record(path: Path) -> RecordedSettings:
    """Read versions, device, network, channels, diameter and thresholds of a ``run.log``."""
    log = _read(path)
    given: dict[str, list[object]] = {}
    for name, value in _values(log.entries):
        given.setdefault(name, []).append(value)
    is_one_run = _are_equal(given.get(MODEL, []))
    values = {
        name: given_values[-1]
        for name, given_values in given.items()
        # Within one run the device that is named last has computed.
        if _are_equal(given_values) or (name == DEVICE and is_one_run)
    }
    several = {name: given_values for name, given_values in given.items() if name not in values}
    return RecordedSettings(
        of_file(path.name, values | _training(log)),
        generation=generation_number(values.get(VERSION)),
        remarks=(*_remarks(log), *_remarks_on_several(log, several), *_warnings(log)),
    )


def _are_equal(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)


def _read(path: Path) -> _Log:
    if not path.is_file():
        raise no_such_file(path, expected="a run.log of Cellpose")
    if not is_run_log(path):
        raise BadInput(
            f"{path} is no run.log of Cellpose, which begins with {FIRST!r}; expected the file "
            "that Cellpose writes into the folder .cellpose with --verbose, or a copy of it"
        )
    with path.open(encoding="utf-8", errors="replace") as stream:
        beginning = stream.read(_MOST_LETTERS + 1)
    entries = _entries(beginning[:_MOST_LETTERS].splitlines())
    return _Log(path.name, entries, is_cut=len(beginning) > _MOST_LETTERS)


def _entries(lines: Iterable[str]) -> list[_Entry]:
    """Join each line that has a time with the lines after it that have none."""
    entries: list[_Entry] = []
    n_more = 0
    for line in lines:
        match = _LINE.fullmatch(line[:_LONGEST_LINE])
        if match is not None:
            level = match["level"] or match["level_of_4_2"]
            entries.append(_Entry(level != "INFO", match["message"]))
            n_more = 0
        elif entries and n_more < _MOST_LINES:
            last = entries[-1]
            entries[-1] = last._replace(message=f"{last.message}\n{line[:_LONGEST_LINE]}")
            n_more += 1
    return entries


# -- values of a segmentation ----------------------------------------------------------------

# A group has the name under which its value is recorded.
_DEVICE = re.compile(rf">>>> using (?P<{DEVICE}>GPU(?: \(\w+\))?|CPU)")
_TEXTS = (
    re.compile(rf"cellpose version:\s*(?P<{VERSION}>\S+)"),
    re.compile(r"platform:\s*(?P<platform>\S+)"),
    re.compile(r"python version:\s*(?P<python>\S+)"),
    re.compile(r"torch version:\s*(?P<torch>\S+)"),
    _DEVICE,
)
_NUMBERS = (
    re.compile(r">>>> using diameter (?P<diameter>[\d.]+) for all images"),
    re.compile(r">>> bsize=\d+, diameter=(?P<diameter>[\d.]+)"),
    re.compile(r"using stitch_threshold=(?P<stitch_threshold>[\d.]+)"),
    re.compile(
        r"computing masks with cell prob=(?P<cellprob_threshold>[-\d.]+), "
        r"(?:no flow error|flow error threshold=(?P<flow_threshold>[\d.]+))"
    ),
)
_NETWORK = re.compile(r">> (?P<name>\S+) << model set to be used|>>>> loading model (?P<path>.+)")
_CHANNELS = re.compile(r"channels set to \[(\d), ?(\d)\]")
_COLOURS = re.compile(r"chan_to_seg (\w+) and chan \(opt\) (\w+)")
_NUMBER_OF_COLOUR = {"GRAY": 0, "NONE": 0, "RED": 1, "GREEN": 2, "BLUE": 3}
_ESTIMATED_FOLLOW = ">>> diameter(s) ="
_ESTIMATED = re.compile(r"\[ ?(?P<diameters>[\d., ]+?),? ?\]")


def _values(entries: Sequence[_Entry]) -> Iterator[tuple[str, object]]:
    """Names and values in the order of the log; a name may come several times."""
    before = ""
    for _, message in entries:
        for pattern in _TEXTS:
            if match := pattern.search(message):
                yield from match.groupdict().items()
        yield from _network(message)
        yield from _channels(message)
        for pattern in _NUMBERS:
            if match := pattern.search(message):
                for name, text in match.groupdict().items():
                    yield from _number(name, text)
        if _ESTIMATED_FOLLOW in before and (match := _ESTIMATED.fullmatch(message.strip())):
            for text in re.split(r"[, ]+", match["diameters"]):
                yield from _number("diameter", text)
        before = message


def _network(message: str) -> Iterator[tuple[str, object]]:
    if match := _NETWORK.search(message):
        path = match["name"] or match["path"].strip()
        name = PureWindowsPath(path).name
        yield MODEL, name
        if name != path:
            yield MODEL_PATH, path


def _channels(message: str) -> Iterator[tuple[str, object]]:
    if colours := _COLOURS.search(message):
        yield CHANNELS, [_NUMBER_OF_COLOUR.get(colour) for colour in colours.groups()]
    if channels := _CHANNELS.search(message):
        yield CHANNELS, [int(number) for number in channels.groups()]


def _number(name: str, text: str | None) -> Iterator[tuple[str, object]]:
    """Parse a number; one of a line that was cut off or written over is none, and left out."""
    if text is None:  # a setting that was switched off
        yield name, None
        return
    with contextlib.suppress(ValueError):
        yield name, float(text)


# -- a training ------------------------------------------------------------------------------

_BEGUN = re.compile(
    r"n_epochs=(?P<epochs>\d+), n_train=(?P<images>\d+)"
    r"|training network with .* n_epochs=(?P<epochs_alone>\d+)"
)
_LOSS = re.compile(r"(?:train_loss=|Loss )(?P<loss>[-\w.]+)")
_TRAINED_TO = re.compile(r"(?:saving model to|model trained and saved to) (?P<path>.+)")
_SEGMENTED = re.compile(r"FINDING MASKS|running cellpose on|computing masks with|cells found with")


def _training(log: _Log) -> dict[str, object]:
    """What a log says of a training, unless it is also of a segmentation."""
    losses = _losses(log)
    begun = log.matches(_BEGUN)
    if not (begun or losses) or log.matches(_SEGMENTED):
        return {}
    training: dict[str, object] = {TRAINING: "of an unknown number of epochs"}
    if begun:
        training[TRAINING] = _length(begun[0])
    if losses:
        training["last_train_loss"] = losses[-1]
    saved = log.matches(_TRAINED_TO)
    if saved:
        training["trained_network"] = saved[-1]["path"].strip()
    return training


def _length(begun: re.Match[str]) -> str:
    length = amount(int(begun["epochs"] or begun["epochs_alone"]), "epoch")
    if begun["images"]:
        length = f"{length} of {amount(int(begun['images']), 'image')}"
    return length


def _losses(log: _Log) -> list[str]:
    return [match["loss"] for match in log.matches(_LOSS)]


# -- remarks ---------------------------------------------------------------------------------

_NO_GPU = re.compile(r"TORCH CUDA.* not installed/working")
_NOT_FOUND = re.compile(r"not found, using default model|has incorrect path|does not exist, using")
_ESTIMATING = re.compile("ESTIMATING CELL DIAMETER")
_OF_EVERY_RUN = "the '--diam_mean' flag is deprecated"
_NO_CELL = "no seeds found"


def _remarks(log: _Log) -> Iterator[str]:
    """What Cellpose did otherwise than asked for, or did not do."""
    bad = [loss for loss in _losses(log) if loss.strip("-").lower() in ("nan", "inf")]
    if bad:
        yield (
            f"the training has diverged: its loss is {bad[0]} in {log.name}, so that the network "
            "it wrote finds nothing; train with a lower learning rate, or on a different device"
        )
    devices = [match[DEVICE] for match in log.matches(_DEVICE)]
    if log.matches(_NO_GPU) and devices and devices[-1] == "CPU":
        yield (
            f"GPU asked for, CPU used: {log.name} says that PyTorch found no GPU that works; see "
            "`cellrepro doctor`"
        )
    if log.matches(_NOT_FOUND):
        yield (
            f"the network that was asked for was not found: {log.name} says that a default was "
            "taken"
        )
    if log.matches(_ESTIMATING):
        yield f"the diameter of {log.name} was estimated by Cellpose, not given"
    if log.is_cut:
        yield f"{log.name} is long: only its first {_MOST_LETTERS} letters were read"


def _remarks_on_several(log: _Log, several: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """That some names have more than one value."""
    if several:
        named = [
            f"{name} ({some(list(dict.fromkeys(map(str, values))))})"
            for name, values in several.items()
        ]
        yield (
            f"{log.name} gives more than one value of {joined(named)}: which is of these masks is "
            "not known, so none is taken"
        )


def _warnings(log: _Log) -> Iterator[str]:
    """The different warnings of a log."""
    messages = [entry.message.strip() for entry in log.entries if entry.is_warning]
    n_without_cell = sum(text.startswith(_NO_CELL) for text in messages)
    if n_without_cell:
        yield f"{log.name} says {amount(n_without_cell, 'time')} that no cell was found"
    telling = [text for text in messages if not text.startswith((_OF_EVERY_RUN, _NO_CELL))]
    warnings = list(dict.fromkeys(telling))
    yield from (f"{log.name} warns: {warning}" for warning in warnings[:_MOST_WARNINGS])
    if len(warnings) > _MOST_WARNINGS:
        yield f"{log.name} has {amount(len(warnings) - _MOST_WARNINGS, 'more warning')}"
