"""The calls of Cellpose that make a result again, as far as files record how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cellrepro.explanation.cellpose_call import DIAMETER, IMAGE, NETWORK, CellposeCall
from cellrepro.explanation.commands import Commands, ShellLine
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION
from cellrepro.explanation.recorded_settings import (
    DEVICE,
    DRAWN,
    FILENAME,
    MODEL_PATH,
    REMOVED,
    RESTORE,
    TRAINING,
    GenerationNumber,
    RecordedSettings,
)
from cellrepro.spec.segmentation_settings import CHANNELS, Settings
from samebits.words import amount

_ALWAYS_SAID = ("diameter", "flow_threshold", "cellprob_threshold")
"""Settings that a command names also at their default."""
_PERCENTILE = "normalize.percentile"
_USUAL_PERCENTILE = (1.0, 99.0)
_DECIDING: Mapping[GenerationNumber, Sequence[str]] = {
    "2": (MODEL, "diameter", CHANNELS),
    "3": (MODEL, "diameter", CHANNELS),
    "4": (MODEL, "diameter"),
}
"""Without these nobody makes the same masks again."""
_WORTH_KNOWING = ("flow_threshold", "cellprob_threshold", "min_size", "niter", "resample", DEVICE)
_OF_STACKS = ("do_3D", "stitch_threshold", "anisotropy", "z_axis")
_GPUS = ("gpu", "cuda", "mps")
_NO_FILTER = "filter"  # in the GUI of Cellpose 3: filters of normalize, no network
_UNKNOWN_CHANNELS = ("CHAN", "CHAN2")


def recorded_commands(
    record: RecordedSettings, *, image: str | None = None, is_stack: bool = False
) -> Commands | None:
    """Write the calls of Cellpose that a record tells of.

    None where nothing is recorded, or not the generation of Cellpose; and for a training.
    """
    generation = record.generation
    if generation is None or not record.values or TRAINING in record.values:
        return None
    recorded = record.beyond
    not_recorded = _missing(record, _DECIDING[generation])
    version = recorded.get(VERSION)
    restoration = recorded.get(RESTORE)
    call = CellposeCall(
        generation=generation,
        version=None if version is None else str(version),
        network=str(recorded.get(MODEL_PATH) or recorded.get(MODEL) or NETWORK),
        settings=_spelt_settings(record),
        image=image or str(recorded.get(FILENAME, IMAGE)),
        channels=_channels(record),
        restoration=None if restoration in (None, _NO_FILTER) else str(restoration),
        uses_gpu=str(recorded.get(DEVICE, "")).lower().startswith(_GPUS),
        precision=_precision(record),
    )
    notes = _notes_of_record(record, call, not_recorded, is_stack=is_stack)
    return Commands(
        shell=ShellLine(call.shell(), notes), python=call.python(), not_recorded=not_recorded
    )


def _missing(record: RecordedSettings, names: Sequence[str]) -> tuple[str, ...]:
    """Which of these names no file records."""
    return tuple(name for name in names if name not in record.values)


def _spelt_settings(record: RecordedSettings) -> dict[str, object]:
    """The settings that a command names: those that decide, and all that differ from a default."""
    usual = Settings().by_name()
    settings = {
        name: value
        for name, value in record.known.items()
        if name in _ALWAYS_SAID or (name in usual and not is_usual(name, value, usual[name]))
    }
    return settings if "diameter" in settings else {"diameter": DIAMETER, **settings}


def is_usual(name: str, value: object, usual: object) -> bool:
    """Whether a value is the default, however Cellpose writes that."""
    if name == _PERCENTILE:
        return value in (None, _USUAL_PERCENTILE, list(_USUAL_PERCENTILE))
    return value == usual or (name == "niter" and not value)


def _channels(record: RecordedSettings) -> tuple[object, object]:
    """The channels of cells and of nuclei; words in capitals for those that nobody recorded."""
    chosen = record.beyond.get(CHANNELS, record.known.get(CHANNELS))
    if not isinstance(chosen, list | tuple) or len(chosen) != 2:
        return _UNKNOWN_CHANNELS
    of_cells, of_nuclei = chosen
    is_known = type(of_cells) is int and type(of_nuclei) is int
    return (of_cells, of_nuclei) if is_known else _UNKNOWN_CHANNELS


def _precision(record: RecordedSettings) -> str | None:
    precision = record.known.get(PRECISION)
    return None if precision is None else str(precision)


def _notes_of_record(
    record: RecordedSettings, call: CellposeCall, not_recorded: Sequence[str], *, is_stack: bool
) -> tuple[str, ...]:
    written_by = call.version or f"{call.generation} (its exact version is not recorded)"
    notes = [f"with Cellpose {written_by}"]
    if not_recorded:
        notes.append(f"not recorded, put it in: {', '.join(not_recorded)}")
    notes += call.remarks()
    for name, what in ((DRAWN, "drawn"), (REMOVED, "removed")):
        n_cells = record.beyond.get(name)
        if n_cells:
            cells = amount(int(str(n_cells)), "cell")
            notes.append(f"{cells} {what} by hand, which no command makes")
    of_stacks = _missing(record, _OF_STACKS) if is_stack else ()
    if of_stacks:
        notes.append(
            f"masks of a stack; not recorded, and decisive for them: {', '.join(of_stacks)}"
        )
    others = _missing(record, _WORTH_KNOWING)
    if others:
        notes.append(f"not recorded, left at Cellpose's usual value: {', '.join(others)}")
    return tuple(notes)
