"""Types of parameters whose words in a terminal become mappings, steps and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import yaml
from cyclopts import Parameter, Token
from pydantic import SkipValidation

from cellrepro.yaml_values import YamlValue, read_yaml
from samebits.errors import BadInput
from samebits.words import grouped

_MOST_STEPS = 100_000
"""Most steps whose operations are written down: some 100 GB."""


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


def in_yaml(option: str, text: str) -> YamlValue:
    """Read the value of an option that is written in YAML."""
    try:
        return read_yaml(text)
    except yaml.YAMLError:
        raise BadInput(
            f"{option} is {text!r}; expected a value in YAML, as 30, true or [20, 40]"
        ) from None


def overrides(pairs: Sequence[str], option: str = "--set") -> dict[str, YamlValue]:
    """Read ``NAME=VALUE`` pairs, the values in YAML.

    >>> overrides(["diameter=30", "learning_rate=1e-3", "normalize=false"])
    {'diameter': 30, 'learning_rate': 0.001, 'normalize': False}
    """
    values = pairs_in(pairs, option)
    return {name: in_yaml(f"{option} {name}", value) for name, value in values.items()}


def several(pairs: Sequence[str], option: str) -> dict[str, Sequence[YamlValue]]:
    """Read ``NAME=VALUES`` pairs: a list in YAML, or values with commas between them.

    >>> several(["diameter=20,40", "min_size=[15]", "normalize.percentile=[1,99],[3,97]"], "--vary")
    {'diameter': [20, 40], 'min_size': [15], 'normalize.percentile': [[1, 99], [3, 97]]}
    """
    lists: dict[str, Sequence[YamlValue]] = {}
    for name, text in pairs_in(pairs, option).items():
        try:
            values = read_yaml(f"[{text}]")
        except yaml.YAMLError:
            raise BadInput(
                f"{option} {name} is {text!r}; expected values with commas between them, as 20,40 "
                "or [1,99],[3,97]"
            ) from None
        is_in_brackets = len(values) == 1 and isinstance(values[0], list)
        lists[name] = values[0] if is_in_brackets else values
    return lists


def pairs_in(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` pairs, the values as they were written."""
    chosen = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} is {pair!r}; expected NAME=VALUE, as diameter=30")
        chosen[name] = value
    return chosen


def _option_of(token: Token) -> str:
    return token.keyword or "--set"


def _overrides(_type: object, tokens: Sequence[Token]) -> dict[str, YamlValue]:
    return overrides([token.value for token in tokens], _option_of(tokens[0]))


def _several(_type: object, tokens: Sequence[Token]) -> dict[str, Sequence[YamlValue]]:
    return several([token.value for token in tokens], _option_of(tokens[0]))


def _pairs(_type: object, tokens: Sequence[Token]) -> dict[str, str]:
    return pairs_in([token.value for token in tokens], _option_of(tokens[0]))


def _steps(_type: object, tokens: Sequence[Token]) -> list[int]:
    return steps_in(tokens[-1].value)


def _yaml(_type: object, tokens: Sequence[Token]) -> YamlValue:
    return in_yaml(_option_of(tokens[-1]), tokens[-1].value)


if TYPE_CHECKING:  # what Python takes
    EvalSettings = Mapping[str, YamlValue]
    Overrides = Mapping[str, YamlValue]
    Several = Mapping[str, Sequence[YamlValue]]
    Conditions = Mapping[str, object]
    Steps = Sequence[int]
    Weights = Mapping[str, float]
    Numbers = Sequence[float]
else:  # what a terminal writes
    # Where pydantic is imported, cyclopts 5.5.2 holds what a converter gives to the words' type.
    _pair = {"metavar": "NAME=VALUE"}
    EvalSettings = Annotated[
        list[str], Parameter(name="--set", converter=_overrides, **_pair), SkipValidation
    ]
    Overrides = Annotated[list[str], Parameter(converter=_overrides, **_pair), SkipValidation]
    Several = Annotated[
        list[str], Parameter(converter=_several, metavar="NAME=VALUES"), SkipValidation
    ]
    Conditions = Annotated[list[str], Parameter(converter=_pairs, **_pair), SkipValidation]
    Steps = Annotated[str, Parameter(converter=_steps), SkipValidation]
    Weights = Annotated[str, Parameter(converter=_yaml), SkipValidation]
    Numbers = Annotated[str, Parameter(converter=_yaml), SkipValidation]
