"""What Cellpose's own log, ``run.log``, records of how masks were made.

Cellpose writes ``.cellpose/run.log`` in the user's folder where ``--verbose`` is given,
``io.logger_setup()`` is called, or the GUI is open, and overwrites it each time. Lines were read in
what 2.3.2, 3.1.1.2, 4.0.9 and 4.2.1.1 wrote; the last has another form of line than the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from cellrepro.errors import BadInput, no_such_file
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
from cellrepro.words import amount, joined, some

USUAL_NAME = "run.log"
_LINE = re.compile(
    r"\d{4}-\d\d-\d\d [\d:,]+ "
    r"(?:\[(?P<level>[A-Z]+)\]|(?P<level_of_4_2>[A-Z]+) \[[^]]*\]) ?(?P<message>.*)"
)
_MOST_LINES = 50  # of one entry; the longest of Cellpose is a traceback
_MOST_LETTERS = 2**23  # of a log
_FIRST = "WRITING LOG OUTPUT TO"
_VERSIONS = re.compile(r"(cellpose version|platform|python version|torch version):\s*(\S+)")
_NAMES = {
    "cellpose version": VERSION,
    "python version": "python",
    "torch version": "torch",
    "platform": "platform",
}
_DEVICE = re.compile(r">>>> using (GPU(?: \(\w+\))?|CPU)")
_NO_GPU = re.compile(r"TORCH CUDA.* not installed/working")
_NETWORK = re.compile(r">> (\S+) << model set to be used|>>>> loading model (.+)")
_COLOURS = re.compile(r"chan_to_seg (\w+) and chan \(opt\) (\w+)")
_CHANNELS = re.compile(r"channels set to \[(\d), ?(\d)\]")
_DIAMETER = re.compile(
    r">>>> using diameter ([\d.]+) for all images|>>> bsize=\d+, diameter=([\d.]+)"
)
_ESTIMATED = re.compile(r"\[ ?([\d., ]+?),? ?\]")
_STITCHED = re.compile(r"using stitch_threshold=([\d.]+)")
_THRESHOLDS = re.compile(
    r"computing masks with cell prob=([-\d.]+), (?:no flow error|flow error threshold=([\d.]+))"
)
_EPOCHS = re.compile(r"n_epochs=(\d+), n_train=(\d+)|training network with .* n_epochs=(\d+)")
_LOSS = re.compile(r"train_loss=([-\w.]+)|Loss ([-\w.]+)")
_TRAINED_TO = re.compile(r"(?:saving model to|model trained and saved to) (.+)")
_SEGMENTED = re.compile(r"FINDING MASKS|running cellpose on|computing masks with|cells found with")
_FIRST_LINES = 3  # among which is the one that Cellpose writes first
_LONGEST_LINE = 4096  # letters
_NUMBER_OF_COLOUR = {"GRAY": 0, "NONE": 0, "RED": 1, "GREEN": 2, "BLUE": 3}
_WARNINGS_OF_NO_SETTING = ("the '--diam_mean' flag is deprecated", "no seeds found")
"""Cellpose 4 gives the first in every run."""
_NOT_FOUND = re.compile(r"not found, using default model|has incorrect path|does not exist, using")


class _Entry(NamedTuple):
    """One line of the log, with the lines without a time that follow it."""

    is_warning: bool
    message: str


def is_run_log(path: Path) -> bool:
    """Whether a file begins as Cellpose's log does."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as stream:
        return any(_FIRST in stream.readline(_LONGEST_LINE) for _ in range(_FIRST_LINES))


def log_record(path: Path) -> RecordedSettings:
    """Read versions, device, network, channels, diameter and thresholds of a ``run.log``."""
    if not path.is_file():
        raise no_such_file(path, expected="a run.log of Cellpose")
    if not is_run_log(path):
        raise BadInput(
            f"{path} is no run.log of Cellpose, which begins with {_FIRST!r}; expected the file "
            "that Cellpose writes into the folder .cellpose with --verbose, or a copy of it"
        )
    with path.open(encoding="utf-8", errors="replace") as stream:
        beginning = stream.read(_MOST_LETTERS + 1)
    is_cut = len(beginning) > _MOST_LETTERS
    entries = _entries(beginning[:_MOST_LETTERS].splitlines())
    given: dict[str, list[object]] = {}
    for name, value in _values(entries):
        given.setdefault(name, []).append(value)
    is_one_run = _are_equal(given.get(MODEL, []))
    values = {
        name: given_values[-1]
        for name, given_values in given.items()
        # Within one run the device that is named last has computed.
        if _are_equal(given_values) or (name == DEVICE and is_one_run)
    }
    several = {name: given_values for name, given_values in given.items() if name not in values}
    values |= _training(entries)
    return RecordedSettings(
        of_file(path.name, values),
        generation=generation_number(values.get(VERSION)),
        remarks=tuple(_remarks(path.name, entries, several, is_cut=is_cut)),
    )


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


def _values(entries: Sequence[_Entry]) -> Iterator[tuple[str, object]]:
    """Names and values in the order of the log; a name may come several times."""
    is_estimated = False
    for entry in entries:
        message = entry.message
        for what, value in _VERSIONS.findall(message):
            yield _NAMES[what], value
        if device := _DEVICE.search(message):
            yield DEVICE, device[1]
        if network := _NETWORK.search(message):
            yield from _of_network(network[1] or network[2].strip())
        if colours := _COLOURS.search(message):
            yield CHANNELS, [_NUMBER_OF_COLOUR.get(colour) for colour in colours.groups()]
        if channels := _CHANNELS.search(message):
            yield CHANNELS, [int(number) for number in channels.groups()]
        if diameter := _DIAMETER.search(message):
            yield from _numbers("diameter", diameter[1] or diameter[2])
        if is_estimated and (estimated := _ESTIMATED.fullmatch(message.strip())):
            yield from _numbers("diameter", *re.split(r"[, ]+", estimated[1]))
        is_estimated = ">>> diameter(s) =" in message
        if stitched := _STITCHED.search(message):
            yield from _numbers("stitch_threshold", stitched[1])
        if thresholds := _THRESHOLDS.search(message):
            yield from _numbers("cellprob_threshold", thresholds[1])
            if thresholds[2]:
                yield from _numbers("flow_threshold", thresholds[2])
            else:
                yield "flow_threshold", None


def _numbers(name: str, *texts: str) -> Iterator[tuple[str, object]]:
    """Parse numbers; texts of a line that was cut off or written over are none, and left out."""
    for text in texts:
        with contextlib.suppress(ValueError):
            yield name, float(text)


def _of_network(text: str) -> Iterator[tuple[str, object]]:
    name = PureWindowsPath(text).name
    yield MODEL, name
    if name != text:
        yield MODEL_PATH, text


def _are_equal(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)


def _training(entries: Sequence[_Entry]) -> dict[str, object]:
    """What a log says of a training, unless it is also of a segmentation."""
    messages = [entry.message for entry in entries]
    losses = _losses(messages)
    begun = next(filter(None, map(_EPOCHS.search, messages)), None)
    if (begun is None and not losses) or any(map(_SEGMENTED.search, messages)):
        return {}
    length = "of an unknown number of epochs"
    if begun is not None:
        length = amount(int(begun[1] or begun[3]), "epoch")
        if begun[2]:
            length = f"{length} of {amount(int(begun[2]), 'image')}"
    training: dict[str, object] = {TRAINING: length}
    if losses:
        training["last_train_loss"] = losses[-1]
    saved = [match[1].strip() for match in map(_TRAINED_TO.search, messages) if match]
    if saved:
        training["trained_network"] = saved[-1]
    return training


def _losses(messages: Sequence[str]) -> list[str]:
    matches = filter(None, map(_LOSS.search, messages))
    return [match[1] or match[2] for match in matches]


def _remarks(
    file: str,
    entries: Sequence[_Entry],
    several: Mapping[str, Sequence[object]],
    *,
    is_cut: bool,
) -> Iterator[str]:
    messages = [entry.message for entry in entries]
    losses = _losses(messages)
    bad = [loss for loss in losses if loss.strip("-").lower() in ("nan", "inf")]
    if bad:
        yield (
            f"the training has diverged: its loss is {bad[0]} in {file}, so that the network it "
            "wrote finds nothing; train with a lower learning rate, or on a different device"
        )
    devices = [match[1] for match in map(_DEVICE.search, messages) if match]
    if any(map(_NO_GPU.search, messages)) and devices and devices[-1] == "CPU":
        yield (
            f"GPU asked for, CPU used: {file} says that PyTorch found no GPU that works; see "
            "`cellrepro doctor`"
        )
    if any(map(_NOT_FOUND.search, messages)):
        yield f"the network that was asked for was not found: {file} says that a default was taken"
    if any("ESTIMATING CELL DIAMETER" in message for message in messages):
        yield f"the diameter of {file} was estimated by Cellpose, not given"
    if is_cut:
        yield f"{file} is long: only its first {_MOST_LETTERS} letters were read"
    if several:
        named = [
            f"{name} ({some(list(dict.fromkeys(map(str, values))))})"
            for name, values in several.items()
        ]
        yield (
            f"{file} gives more than one value of {joined(named)}: which is of these masks is not "
            "known, so none is taken"
        )
    warnings = dict.fromkeys(
        entry.message.strip()
        for entry in entries
        if entry.is_warning and not entry.message.strip().startswith(_WARNINGS_OF_NO_SETTING)
    )
    yield from (f"{file} warns: {warning}" for warning in itertools.islice(warnings, _MOST_LINES))
    if len(warnings) > _MOST_LINES:
        yield f"{file} has {amount(len(warnings) - _MOST_LINES, 'more warning')}"
