"""Fields of a spec and their values, in words."""

from __future__ import annotations

NO_THRESHOLD = ("flow_threshold",)
"""Settings whose None is a value of its own, which asks for none."""


def unset_in_words(name: str) -> str:
    """Write the None of a field: nothing was set, or of some settings, none was asked for.

    >>> unset_in_words("settings.diameter"), unset_in_words("flow_threshold")
    ('not set', 'none')
    """
    return "none" if name.rpartition(".")[2] in NO_THRESHOLD else "not set"


def setting_in_words(name: str, value: object) -> str:
    """Write a field of a spec and its value for a sentence or a label.

    >>> setting_in_words("weight_decay", 0.2), setting_in_words("train_probs", (("a", 3.0),))
    ('weight decay 0.2', 'train probs a 3')
    >>> setting_in_words("settings.flow_threshold", 0.5)
    'flow_threshold 0.5'
    >>> setting_in_words("settings.normalize.percentile", (2.0, 98.0))
    'normalize.percentile (2, 98)'
    """
    if name == "seed" and value is None:
        return "no seed"
    if name.startswith("settings."):
        words = name.removeprefix("settings.")  # Cellpose's own name
    else:
        words = name.replace("_", " ")
    return f"{words} {_value_in_words(name, value)}"


def _value_in_words(name: str, value: object) -> str:
    if value is None:
        return unset_in_words(name)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, tuple) and name == "train_probs":
        return ", ".join(f"{image} {number:g}" for image, number in value)
    if isinstance(value, tuple):
        return str(value).replace(".0,", ",").replace(".0)", ")")
    return str(value)
