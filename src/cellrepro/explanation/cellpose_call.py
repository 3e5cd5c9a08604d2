"""One call of Cellpose, written for the command line and the Python of its generation.

Options and arguments were read in ``cellpose/cli.py``, ``__main__.py`` and ``models.py`` of 2.3.2,
3.1.1.2, 4.0.9 and 4.2.1.1. A capital word (``DIAMETER``) stands where no file records a value that
decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf

from cellrepro.command_lines import shell_line
from cellrepro.explanation.recorded_settings import GenerationNumber
from cellrepro.model.cellpose_generation import generation_of

IMAGE = "IMAGE"
"""Stands for an image that nobody recorded."""
NETWORK = "MODEL"
"""Stands for a network that nobody recorded."""
DIAMETER = "DIAMETER"
"""Stands for a diameter that nobody recorded."""

_STANDS_FOR = {
    IMAGE: "the file of the image that was segmented",
    NETWORK: "the network that made the masks, its name or its file",
}


def words_to_replace(command: str) -> str:
    """Say what to put in place of IMAGE and MODEL; empty for a command without them.

    >>> words_to_replace("cellrepro compare a.tif b.tif --image cells.tif --model MODEL")
    'in place of MODEL put the network that made the masks, its name or its file'
    >>> words_to_replace("cellrepro compare a.tif b.tif --image cells.tif --model cpsam")
    ''
    """
    words = command.split()
    put = [f"in place of {word} put {what}" for word, what in _STANDS_FOR.items() if word in words]
    return "; ".join(put)


def note_on(command: str) -> str:
    """Say what to put into a command, and whether Cellpose runs in it; empty if neither.

    >>> note_on("cellrepro compare a.tif b.tif --image cells.tif --model cpsam")
    'Cellpose must be installed'
    """
    needs = "Cellpose must be installed" if "--model" in command.split() else ""
    return "; ".join(filter(None, [words_to_replace(command), needs]))


_Words = list[str]
_Writer = Callable[[object], "list[str] | None"]
"""Writes a value as words of the command line; None for one that the option cannot take."""

_NORMALIZE = "normalize."
_LISTS_OF_SMOOTHING = (4, 1)  # the first version whose --flow3D_smooth takes three numbers
_NAMES_OF_2 = frozenset(
    {"cyto", "cyto2", "nuclei", "tissuenet", "livecell", "general", "CP", "CPx"}
    | {"TN1", "TN2", "TN3", "LC1", "LC2", "LC3", "LC4"}
)
_ESTIMATING = frozenset({"cyto", "cyto2", "cyto3", "nuclei"})
_MOST_EXACT = 1e15  # larger numbers are written with an exponent
_NEGATIVE = re.compile(r"-(\d+|\d*\.\d+)")  # what argparse takes for a number, not for an option
_NOT_OF_2 = frozenset({"niter", "bsize", "max_size_fraction", "flow3D_smooth"})
"""Settings that ``eval`` of Cellpose 2 does not have."""


@dataclass(frozen=True)
class CellposeCall:
    """One call of Cellpose."""

    generation: GenerationNumber
    version: str | None
    """None where the generation alone is known."""
    network: str
    """A name, a path, or `NETWORK`."""
    settings: Mapping[str, object]
    """By name; the others keep Cellpose's defaults."""
    image: str = IMAGE
    """Its path."""
    expression: str = "image"
    """The pixels in Python, of ``image``, which holds those of the file."""
    channels: tuple[object, object] | None = None
    """Of Cellpose 2 and 3: the channel to segment and that of nuclei; None for a usual call."""
    restoration: str | None = None
    """The network of Cellpose 3 that restores the image."""
    uses_gpu: bool = False
    precision: str | None = None
    """None where Cellpose takes its own, or nobody recorded it."""

    @property
    def is_named(self) -> bool:
        """Whether the network is one of Cellpose's own, which ``model_type`` takes."""
        if self.generation == "4":
            return False
        names = _NAMES_OF_2 if self.generation == "2" else generation_of("3.0").names
        return self.network in names

    @property
    def estimates_diameter(self) -> bool:
        """Whether the command line estimates the diameter, which the call in Python does not."""
        without = self.settings.get("diameter", 0) is None and self.restoration is None
        return without and self.generation != "4" and self.network in _ESTIMATING

    def shell(self) -> str:
        """Cellpose's command line; what it cannot say is left out."""
        words = ["python", "-m", "cellpose", *_option("image_path", self.image)]
        words += _option("pretrained_model", self.network)
        if self.restoration is not None and self.generation == "3":
            words += _option("restore_type", self.restoration)
        if self.uses_gpu:
            words.append("--use_gpu")
        if self.channels is not None and self.generation != "4":
            of_cells, of_nuclei = self.channels
            words += _option("chan", str(of_cells)) + _option("chan2", str(of_nuclei))
        for name in self.settings:
            words += self._words(name) or []
        return shell_line(words)

    def unsaid(self) -> list[str]:
        """The settings that the command line cannot say."""
        names = [name for name in self.settings if self._words(name) is None]
        if self.precision == "float32" and generation_of(self.version).has_precision:
            names.append("float32")
        return names

    def remarks(self) -> list[str]:
        """Say in what the command line differs from the call in Python."""
        remarks = []
        unsaid = self.unsaid()
        if unsaid:
            remarks.append(f"the command line cannot say: {', '.join(unsaid)}")
        if self.estimates_diameter:
            remarks.append(
                f"with the name {self.network} and no diameter, the command line estimates one; "
                "the call in Python takes that of the network"
            )
        if self.generation == "2" and self.is_named:
            remarks.append(
                "the command line of Cellpose 2 averages four networks of this name, the call in "
                "Python takes one"
            )
        return remarks

    def _words(self, name: str) -> _Words | None:
        value = self.settings[name]
        if value == DIAMETER:
            return _option(name, DIAMETER)
        writer = _writers(self.generation, self.version).get(name)
        return None if writer is None else writer(value)

    def python(self) -> str:
        """The lines in Python that read the image and segment it, as they run by themselves."""
        module = "models.CellposeModel"
        named = "model_type" if self.is_named else "pretrained_model"
        of_model = [f"{named}={_in_python(self.network)}"]
        if self.restoration is not None and self.generation == "3":
            module = "denoise.CellposeDenoiseModel"
            of_model.append(f"restore_type={self.restoration!r}")
        if self.uses_gpu:
            of_model.append("gpu=True")
        if self.precision is not None and self.generation == "4":
            of_model.append(f"use_bfloat16={self.precision == 'bfloat16'}")
        of_eval = [self.expression]
        if self.channels is not None and self.generation != "4":
            of_eval.append(f"channels=[{', '.join(map(str, self.channels))}]")
        of_eval += self._arguments()
        lines = ["import numpy as np"] if "np." in self.expression else []
        lines += [
            f"from cellpose import io, {module.partition('.')[0]}",
            f"image = io.imread({_in_python(self.image)})",
            f"masks = {module}({', '.join(of_model)}).eval({', '.join(of_eval)})[0]",
        ]
        return "\n".join(lines)

    def _arguments(self) -> list[str]:
        arguments = []
        normalize: dict[str, object] = {}
        for name, value in self.settings.items():
            field = name.removeprefix(_NORMALIZE)
            if field == name and not (self.generation == "2" and name in _NOT_OF_2):
                arguments.append(f"{name}={_in_python(value)}")
            elif self.generation != "2":
                normalize["sharpen_radius" if field == "sharpen" else field] = value
            elif field in ("normalize", "invert"):  # of eval itself, which has no other field yet
                arguments.append(f"{field}={value!r}")
        if normalize:
            arguments.append(f"normalize={normalize!r}")
        return arguments


def plain_number(value: object) -> object:
    """Give a whole number as one, as texts show it beside a command; all else as it is.

    >>> plain_number(50.0), plain_number(42.4), plain_number(True)
    (50, 42.4, True)
    """
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT
    return int(value) if isinstance(value, float) and is_whole else value


def _in_python(value: object) -> str:
    """A value as a literal; what stands for a number stays as it is, and Cellpose takes lists."""
    if value == DIAMETER:
        return DIAMETER
    return repr(list(value) if isinstance(value, tuple) else plain_number(value))


# -- options of the command line -------------------------------------------------------------


def _option(name: str, *values: str) -> _Words:
    """An option with its values, so that argparse takes none of them for an option."""
    (first, *rest) = values
    if first.startswith("-") and not _NEGATIVE.fullmatch(first):
        return [f"--{name}={first}", *rest]
    return [f"--{name}", *values]


def _number(value: object, *, is_whole: bool) -> str | None:
    """A finite number as argparse reads it; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < inf:
        return None
    if not is_whole:
        return str(value)
    return str(int(value)) if value == int(value) else None


def _number_option(option: str, *, is_whole: bool = False, none: str | None = None) -> _Writer:
    """Make the writer of a numeric option; ``none`` is written for None, and "" leaves it out."""

    def words(value: object) -> _Words | None:
        text = none if value is None else _number(plain_number(value), is_whole=is_whole)
        if text is None:
            return None
        return _option(option, text) if text else []

    return words


def _several(value: object, *, option: str, n: int) -> _Words | None:
    if not isinstance(value, list | tuple) or len(value) != n:
        return None
    texts = [_number(each, is_whole=False) for each in value]
    return _option(option, *map(str, texts)) if None not in texts else None


def _smoothing(value: object) -> _Words | None:
    """One number of pixels, or one for each of Z, Y and X."""
    words = _number_option("flow3D_smooth")(value)
    return _several(value, option="flow3D_smooth", n=3) if words is None else words


def _percentiles(value: object) -> _Words | None:
    return [] if value is None else _several(value, option="norm_percentile", n=2)


def _flag(value: object, *, flag: str, when: bool) -> _Words | None:
    """A flag for one of the two truth values, nothing for the other."""
    if not isinstance(value, bool):
        return None
    return [flag] if value is when else []


def _writers(generation: GenerationNumber, version: str | None) -> Mapping[str, _Writer]:
    """The writer of each setting that the command line of a generation has an option for."""
    # A threshold of none is written as 0, and so is a diameter of none before Cellpose 4.
    writers: dict[str, _Writer] = {
        "diameter": _number_option("diameter", none="" if generation == "4" else "0"),
        "flow_threshold": _number_option("flow_threshold", none="0"),
        "cellprob_threshold": _number_option("cellprob_threshold"),
        "min_size": _number_option("min_size", is_whole=True),
        "batch_size": _number_option("batch_size", is_whole=True),
        "stitch_threshold": _number_option("stitch_threshold"),
        "anisotropy": _number_option("anisotropy", none=""),
        "channel_axis": _number_option("channel_axis", is_whole=True, none=""),
        "z_axis": _number_option("z_axis", is_whole=True, none=""),
        "augment": partial(_flag, flag="--augment", when=True),
        "do_3D": partial(_flag, flag="--do_3D", when=True),
        "resample": partial(_flag, flag="--no_resample", when=False),
        "normalize.normalize": partial(_flag, flag="--no_norm", when=False),
    }
    if generation != "4":
        writers["normalize.invert"] = partial(_flag, flag="--invert", when=True)
    if generation == "2":
        return writers
    writers |= {
        "niter": _number_option("niter", is_whole=True, none=""),
        "flow3D_smooth": _number_option("flow3D_smooth"),
        "normalize.percentile": _percentiles,
    }
    if generation == "4":
        writers["bsize"] = _number_option("bsize", is_whole=True, none="")
    if version is not None and _major_and_minor(version) >= _LISTS_OF_SMOOTHING:
        writers["flow3D_smooth"] = _smoothing
    return writers


def _major_and_minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
