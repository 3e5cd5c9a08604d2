"""Types of parameters whose words in a terminal become mappings, steps and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, Token
from pydantic import SkipValidation

from cellrepro.written_values import in_yaml, overrides, pairs_in, steps_in
from cellrepro.yaml_values import YamlValue


def _option_of(token: Token) -> str:
    return token.keyword or "--set"


def _overrides(_type: object, tokens: Sequence[Token]) -> dict[str, YamlValue]:
    return overrides([token.value for token in tokens], _option_of(tokens[0]))


def _pairs(_type: object, tokens: Sequence[Token]) -> dict[str, str]:
    return pairs_in([token.value for token in tokens], _option_of(tokens[0]))


def _steps(_type: object, tokens: Sequence[Token]) -> list[int]:
    return steps_in(tokens[-1].value)


def _yaml(_type: object, tokens: Sequence[Token]) -> YamlValue:
    return in_yaml(_option_of(tokens[-1]), tokens[-1].value)


if TYPE_CHECKING:  # what Python takes
    EvalSettings = Mapping[str, YamlValue]
    Overrides = Mapping[str, YamlValue]
    Conditions = Mapping[str, object]
    Steps = Sequence[int]
    Weights = Mapping[str, float]
    Numbers = Sequence[float]
else:  # what a terminal writes
    # Where pydantic is imported, cyclopts 5.5.2 holds what a converter gives to the words' type.
    EvalSettings = Annotated[
        list[str], Parameter(name="--set", converter=_overrides), SkipValidation
    ]
    Overrides = Annotated[list[str], Parameter(converter=_overrides), SkipValidation]
    Conditions = Annotated[list[str], Parameter(converter=_pairs), SkipValidation]
    Steps = Annotated[str, Parameter(converter=_steps), SkipValidation]
    Weights = Annotated[str, Parameter(converter=_yaml), SkipValidation]
    Numbers = Annotated[str, Parameter(converter=_yaml), SkipValidation]
