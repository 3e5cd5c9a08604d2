"""How Cellpose is called with what files record, in the words of the generation that wrote them.

Options were read in ``cellpose/cli.py`` and ``cellpose/models.py`` of 2.3.2, 3.1.1.2, 4.0.9 and
4.2.1.1. A capital word (``DIAMETER``) stands where no file records a value that decides.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cellrepro.asked.segmentation_settings import Settings
from cellrepro.changes.commands import Commands
from cellrepro.changes.conditions import MODEL, PRECISION, VERSION
from cellrepro.changes.recorded_settings import (
    CHANNELS_CHOSEN,
    DEVICE,
    DRAWN,
    FILENAME,
    MODEL_PATH,
    RESTORE,
    Generation,
    RecordedSettings,
)
from cellrepro.words import amount

_ALWAYS = ("diameter", "flow_threshold", "cellprob_threshold")
"""Settings that a command says also where they are usual."""
_PLANES = ("stitch_threshold", "anisotropy", "channel_axis", "z_axis")
_OPTIONS: Mapping[Generation, Sequence[str]] = {
    "2": (*_ALWAYS, "min_size", "batch_size", *_PLANES),
    "3": (*_ALWAYS, "min_size", "batch_size", *_PLANES, "niter", "flow3D_smooth"),
    "4": (*_ALWAYS, "min_size", "batch_size", *_PLANES, "niter", "flow3D_smooth"),
}
"""Settings that the command line takes under their own names."""
_FLAGS: Mapping[str, str] = {
    "augment": "--augment",
    "do_3D": "--do_3D",
    "resample": "--no_resample",
    "normalize.normalize": "--no_norm",
    "normalize.invert": "--invert",
}
_PERCENTILE = "normalize.percentile"
_USUAL_PERCENTILE = (1.0, 99.0)
_OF_NORMALIZE = "normalize."
_DECIDING: Mapping[Generation, Sequence[str]] = {
    "2": (MODEL, "diameter", CHANNELS_CHOSEN),
    "3": (MODEL, "diameter", CHANNELS_CHOSEN),
    "4": (MODEL, "diameter"),
}
"""Values without which nobody makes the same masks again."""
_WORTH_KNOWING = ("flow_threshold", "cellprob_threshold", "min_size", "niter", "resample", DEVICE)
_NETWORKS: Mapping[Generation, frozenset[str]] = {
    "2": frozenset({"cyto", "cyto2", "nuclei"}),
    "3": frozenset({"cyto", "cyto2", "cyto3", "nuclei"}),
    "4": frozenset(),
}
"""Names that ``model_type`` takes; what is none of them is a file."""
_GPUS = ("gpu", "cuda", "mps")
_NO_FILTER = "filter"  # in the GUI of Cellpose 3: filters of normalize, no network
_PLAIN = re.compile(r"[\w@%+=:,./\\-]+")

_Way = Literal["shell", "python"]


@dataclass(frozen=True)
class _Asked:
    """What is recorded of one result, as its commands are written from it.

    Attributes
    ----------
    record : RecordedSettings
    generation : {"2", "3", "4"}
    changed : mapping of str to object
        Settings that a command names.
    image : str
    """

    record: RecordedSettings
    generation: Generation
    changed: Mapping[str, object]
    image: str

    @property
    def network(self) -> str:
        """The weights: their path, else their name, else a word that stands for them."""
        recorded = self.record.beyond
        return str(recorded.get(MODEL_PATH) or recorded.get(MODEL) or "MODEL")

    @property
    def is_named(self) -> bool:
        """Whether the network is one of Cellpose's own, given by its name."""
        return self.network in _NETWORKS[self.generation]

    @property
    def restoration(self) -> str | None:
        """The network of Cellpose 3 that restored the image; None where none did."""
        name = self.record.beyond.get(RESTORE)
        return None if name in (None, _NO_FILTER) else str(name)

    @property
    def uses_gpu(self) -> bool:
        """Whether a GPU is recorded as the device."""
        return str(self.record.beyond.get(DEVICE, "")).lower().startswith(_GPUS)

    def missing(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of some names that no file records."""
        return tuple(name for name in names if name not in self.record.values)


def recorded_commands(record: RecordedSettings, *, image: str | None = None) -> Commands | None:
    """Write the calls of Cellpose that a record tells of.

    Parameters
    ----------
    record : RecordedSettings
    image : str, optional
        Path of the image; by default the name that is recorded.

    Returns
    -------
    Commands or None
        None where nothing is recorded, or not which generation of Cellpose it was.
    """
    generation = record.generation
    if generation is None or not record.values:
        return None
    asked = _Asked(
        record,
        generation,
        changed=_changed(record),
        image=image or str(record.beyond.get(FILENAME, "IMAGE")),
    )
    deciding = asked.missing(_DECIDING[generation])
    return Commands(
        shell="   # ".join([_shell(asked), *_notes(asked, deciding)]),
        python=_python(asked),
        lab="",
        not_recorded=deciding,
    )


def _changed(record: RecordedSettings) -> dict[str, object]:
    """The settings that a command names: those that decide, and what is not usual."""
    usual = Settings().by_name()
    return {
        name: value
        for name, value in record.known.items()
        if name in _ALWAYS or (name in usual and not _is_usual(name, value, usual[name]))
    }


def _is_usual(name: str, value: object, usual: object) -> bool:
    """Whether Cellpose takes a value by itself, whatever word it has for it."""
    if name == _PERCENTILE:
        return value in (None, _USUAL_PERCENTILE)
    return value == usual or (name == "niter" and not value)


def _shell(asked: _Asked) -> str:
    words = ["python", "-m", "cellpose", "--image_path", asked.image]
    words += ["--pretrained_model", asked.network]
    if asked.restoration is not None and asked.generation == "3":
        words += ["--restore_type", asked.restoration]
    if asked.uses_gpu:
        words.append("--use_gpu")
    words += _channel_words(asked)
    if "diameter" not in asked.changed:
        words += ["--diameter", "DIAMETER"]
    for name, value in asked.changed.items():
        words += _words(name, value, asked.generation)
    return " ".join(map(quoted, words))


def _channel_words(asked: _Asked) -> list[str]:
    if asked.generation == "4":
        return []
    chosen = asked.record.beyond.get(CHANNELS_CHOSEN)
    first, second = ("CHAN", "CHAN2")
    if isinstance(chosen, list | tuple) and len(chosen) == 2:
        first, second = map(str, chosen)
    return ["--chan", first, "--chan2", second]


def _words(name: str, value: object, generation: Generation) -> list[str]:
    """How the command line says one setting; nothing for what it cannot say."""
    if name == _PERCENTILE and generation != "2" and isinstance(value, list | tuple):
        return ["--norm_percentile", *map(str, value)]
    if name in _FLAGS and not (name == "normalize.invert" and generation == "4"):
        return [_FLAGS[name]]
    if name not in _OPTIONS[generation]:
        return []
    if value is None:  # no threshold is 0; no diameter is 0 before Cellpose 4, where it is usual
        return [] if name == "diameter" and generation == "4" else [f"--{name}", "0"]
    if isinstance(value, list | tuple):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]


def _notes(asked: _Asked, deciding: Sequence[str]) -> list[str]:
    notes = []
    version = asked.record.beyond.get(VERSION)
    written_by = version or f"{asked.generation} (its exact version is not recorded)"
    notes.append(f"with Cellpose {written_by}")
    if deciding:
        notes.append(f"not recorded, put it in: {', '.join(deciding)}")
    unsaid = [name for name, value in asked.changed.items() if _is_unsaid(name, value, asked)]
    if unsaid:
        notes.append(f"the command line cannot say: {', '.join(unsaid)}")
    if asked.generation == "2" and asked.is_named:
        notes.append(
            "the command line of Cellpose 2 averages four networks of this name, the call in "
            "Python takes one"
        )
    n_drawn = asked.record.beyond.get(DRAWN)
    if n_drawn:
        notes.append(f"{amount(int(str(n_drawn)), 'cell')} drawn by hand, which no command makes")
    others = asked.missing(_WORTH_KNOWING)
    if others:
        notes.append(f"not recorded, left at Cellpose's usual value: {', '.join(others)}")
    return notes


def _is_unsaid(name: str, value: object, asked: _Asked) -> bool:
    is_usual = name == "diameter" and value is None
    return not is_usual and not _words(name, value, asked.generation)


def _python(asked: _Asked) -> str:
    module = "models.CellposeModel"
    arguments = [
        f"{'model_type' if asked.is_named else 'pretrained_model'}={_in_python(asked.network)}"
    ]
    if asked.restoration is not None and asked.generation == "3":
        module = "denoise.CellposeDenoiseModel"
        arguments.append(f"restore_type={asked.restoration!r}")
    if asked.uses_gpu:
        arguments.append("gpu=True")
    precision = asked.record.known.get(PRECISION)
    if precision is not None and asked.generation == "4":
        arguments.append(f"use_bfloat16={precision == 'bfloat16'}")
    return f"{module}({', '.join(arguments)}).eval({', '.join(_eval_arguments(asked))})"


def _eval_arguments(asked: _Asked) -> list[str]:
    arguments = ["image"]
    if asked.generation != "4":
        chosen = asked.record.beyond.get(CHANNELS_CHOSEN, "CHANNELS")
        arguments.append(f"channels={chosen}")
    if "diameter" not in asked.changed:
        arguments.append("diameter=DIAMETER")
    normalize: dict[str, object] = {}
    for name, value in asked.changed.items():
        if name.startswith(_OF_NORMALIZE):
            field = name.removeprefix(_OF_NORMALIZE)
            normalize["sharpen_radius" if field == "sharpen" else field] = value
        else:
            arguments.append(f"{name}={value!r}")
    if normalize:
        arguments.append(f"normalize={normalize!r}")
    return arguments


def _in_python(network: str) -> str:
    return network if network == "MODEL" else repr(network)


def quoted(word: str) -> str:
    """Give a word as every shell reads it, Windows' own among them; others in quotes of POSIX.

    >>> quoted("a_masks.tif"), quoted("my cells.tif")
    ('a_masks.tif', '"my cells.tif"')
    """
    if _PLAIN.fullmatch(word):
        return word
    return shlex.quote(word) if re.search(r'["$`!]', word) else f'"{word}"'
