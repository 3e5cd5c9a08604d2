"""Specs from elsewhere, which may ask this machine for numbers, and for nothing that runs.

A profile sets environment variables for the process that computes, and some variables make a
process run commands, load libraries or read files. Users may set all of them in a profile of their
own; a spec that was sent, imported or copied may not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cellrepro.profiles.numeric_variables import MOST_THREADS, NUMERIC_VARIABLES, THREAD_VARIABLES
from cellrepro.profiles.profiles import ProfileReference
from cellrepro.spec.spec import Spec
from samebits.errors import BadInput
from samebits.shown_text import short
from samebits.words import some

_MOST_NAMED = 8


def _is_word(value: str) -> bool:
    """Whether it is a plain word or number: no path, no command, no huge number."""
    words = re.fullmatch(r"[A-Za-z0-9_.,:;+{}()= -]{0,200}", value)
    return words is not None and re.search(r"[0-9]{7}", value) is None


def _is_number_of_threads(value: str) -> bool:
    numbers = value.split(",")
    return all(re.fullmatch(r"[0-9]{1,4}", n) and int(n) <= MOST_THREADS for n in numbers)


def _is_seed(value: str) -> bool:
    return re.fullmatch(r"random|[0-9]{1,10}", value) is not None


_PLAUSIBLE: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(NUMERIC_VARIABLES, _is_word),
    **dict.fromkeys(
        (
            "CUDA_LAUNCH_BLOCKING",
            "GOMP_SPINCOUNT",
            "KMP_AFFINITY",
            "KMP_BLOCKTIME",
            "OMP_PLACES",
            "OMP_PROC_BIND",
            "OMP_SCHEDULE",
            "OMP_WAIT_POLICY",
        ),
        _is_word,
    ),
    **dict.fromkeys(THREAD_VARIABLES, _is_number_of_threads),
    **dict.fromkeys(("PYTHONHASHSEED", "TCNN_SEED"), _is_seed),
}
"""Allowlist: a test of the value for each variable of threads, kernels and seeds."""


def strange_variables(spec: Spec) -> list[str]:
    """The variables of a spec that are not allowed, as ``NAME=VALUE``.

    One that has the same value in this process already is allowed.
    """
    here = [f"{name}={value}" for name, value in os.environ.items()]
    return [text for text in _not_plausible(spec) if text not in here]


def refused_elsewhere(spec: Spec) -> Iterator[str]:
    """Warn that a run which is handed on will be refused by others."""
    variables = _not_plausible(spec)
    if variables:
        yield (
            f"the profile of run {spec.key} sets {variables_in_words(variables)}: it is refused "
            "where these are not set to the same values, since they can run commands there"
        )


def _not_plausible(spec: Spec) -> list[str]:
    environment = spec.profile_settings.get("environment", {})
    if not isinstance(environment, dict):
        return [f"environment={environment!r}"]
    variables = [f"{name}={value}" for name, value in environment.items()]
    variables += ProfileReference.parse(spec.profile).variables
    strange = []
    for variable in dict.fromkeys(variables):
        name, _, value = variable.partition("=")
        is_plausible = _PLAUSIBLE.get(name)
        if is_plausible is None or not is_plausible(value):
            strange.append(variable)
    return strange


def variables_in_words(variables: Sequence[str]) -> str:
    """Name the first variables, each cut where it is long."""
    return some([short(variable, 60) for variable in variables], _MOST_NAMED)


def refuse_strange_variables(spec: Spec, *, whose: str) -> None:
    """Refuse a spec from elsewhere that sets variables which are not allowed."""
    strange = strange_variables(spec)
    if strange:
        raise BadInput(
            f"the profile of {whose} sets {variables_in_words(strange)}, and a run that comes from "
            "elsewhere may set variables of threads, kernels and instruction sets alone "
            "(OMP_NUM_THREADS, MKL_CBWR …): others can run commands here. Ask its sender for a run "
            "without them; if the run is your own, set the same values in your shell first"
        )
