"""Options and arguments that several verbs have, and how their values are read."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer import Argument, Option

from cellrepro.asked.choices import LEDGERS, LedgerKind
from cellrepro.determinism.choices import MODES, Mode, profile_names
from cellrepro.errors import BadInput
from cellrepro.model.encoders import ENCODERS
from cellrepro.words import grouped

_PROFILES = ["auto", *profile_names()]
_MODELS = tuple(ENCODERS)

MODEL_HELP = f"{', '.join(_MODELS)}, a Cellpose name, a weights file, or KEY/REPEAT"


def one_of(words: Sequence[str], *names: str, help: str) -> Any:
    """Make an option that takes one of a few words, lists them, completes them, and proposes
    one."""

    def read(text: str) -> str:
        if text in words:
            return text
        near = get_close_matches(text, words, 1)
        proposal = f"; do you mean {near[0]}?" if near else ""
        raise typer.BadParameter(f"{text!r}; expected one of {', '.join(words)}{proposal}")

    return Option(
        *names,
        parser=read,
        metavar=f"[{'|'.join(words)}]",
        autocompletion=lambda: list(words),
        help=help,
    )


DataArgument = Annotated[str, Argument(help="folder of images, named as Cellpose expects")]
OtherArgument = Annotated[str, Argument(help="the second one; KEY KEY means its repeats 0 and 1")]
FolderArgument = Annotated[str, Argument(help="a new folder, which gets notebooks/ and grids/")]
StoreOption = Annotated[str, Option("--store", help="folder of finished runs")]
OverwriteOption = Annotated[bool, Option("--overwrite", help="replace the page if it is there")]
JsonOption = Annotated[bool, Option("--json", help="one JSON document on standard output")]
ModelOption = Annotated[str, Option(help=MODEL_HELP, autocompletion=lambda: list(_MODELS))]
NetworkOption = Annotated[
    str | None,
    Option(
        "--model",
        help=f"{MODEL_HELP}; default the network that Cellpose itself takes",
        autocompletion=lambda: list(_MODELS),
    ),
]
SeedOption = Annotated[
    int | None,
    Option(help="for Python, NumPy, PyTorch and initial weights; default 0, none in mode off"),
]
ProfileOption = Annotated[
    str,
    Option(
        help=f"auto (as Cellpose would), {', '.join(_PROFILES[1:])}, or a .yaml file",
        autocompletion=lambda: _PROFILES,
    ),
]
ModeOption = Annotated[
    Mode,
    one_of(
        MODES,
        help="off: plain Cellpose, no seed; fast: only seeds; warn: also say which operations can "
        "vary; strict: also replace them, or stop; portable: also the same bits on every machine, "
        "two to four times slower",
    ),
]
DataSeedOption = Annotated[
    str, Option(help="seed of image order and augmentation; cellpose: as Cellpose does")
]
LedgerOption = Annotated[
    LedgerKind, one_of(LEDGERS, help="checksums of nothing, of every step, or of every operation")
]
BatchSizeOption = Annotated[int, Option(help="images in a step")]
RepeatsOption = Annotated[int, Option(help="how often; 2 or more give a verdict")]
ImagesPerEpochOption = Annotated[
    int | None, Option(help="images drawn; default all, and at least 48 for small networks")
]
SettingsOption = Annotated[
    list[str] | None,
    Option("--set", help="a setting of CellposeModel.eval: diameter=60, normalize.sharpen=4"),
]


def steps_in(text: str) -> list[int]:
    """Read numbers and ranges of steps.

    >>> steps_in("0,17"), steps_in("0-3")
    ([0, 17], [0, 1, 2, 3])
    """
    steps: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            range_of_steps = range(int(first), int(last if dash else first) + 1)
            if not 0 < len(range_of_steps) <= _MOST_STEPS - len(steps):
                raise ValueError
            steps += range_of_steps
    except ValueError:
        raise BadInput(
            f"--operation-steps is {text!r}; expected steps, the smaller one first and at most "
            f"{grouped(_MOST_STEPS)} in all: 0,17 or 0-9"
        ) from None
    return steps


_MOST_STEPS = 100_000
"""Of which the operations are written down: some 100 GB."""


def in_yaml(option: str, text: str) -> Any:
    """Read the value of an option that is written in YAML."""
    import yaml

    from cellrepro.yaml_values import read_yaml

    try:
        return read_yaml(text)
    except yaml.YAMLError:
        raise BadInput(f"{option} is {text!r}; expected a value in YAML") from None


def overrides(pairs: Sequence[str] | None, option: str = "--set") -> dict[str, Any]:
    """Read ``NAME=VALUE`` pairs, the values in YAML.

    >>> overrides(["diameter=30", "learning_rate=1e-3", "normalize=false"])
    {'diameter': 30, 'learning_rate': 0.001, 'normalize': False}
    """
    values = pairs_in(pairs, option)
    return {name: in_yaml(f"{option} {name}", value) for name, value in values.items()}


def pairs_in(pairs: Sequence[str] | None, option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` pairs, the values as they were written."""
    chosen = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} is {pair!r}; expected NAME=VALUE")
        chosen[name] = value
    return chosen
