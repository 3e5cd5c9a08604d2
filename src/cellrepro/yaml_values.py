"""Values as people write them, in options and in grid files: YAML without its surprises.

YAML 1.1, which PyYAML reads, takes ``1e-3`` for text, ``on``, ``off``, ``yes`` and ``no`` for true
and false, ``12:30`` for 750 and ``010`` for 8. Here numbers are numbers and words are words, as in
YAML 1.2; and no key is given twice.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import yaml

YamlValue: TypeAlias = Any
"""A value as PyYAML types it: numbers, text, true, false, None, lists and dictionaries of them."""

_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_INT = "tag:yaml.org,2002:int"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with the truth values and the numbers of YAML 1.2; dates and ``12:30`` stay text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary; of a key that stands twice the last value would win."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    what = f"{key_node.value!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, what, key_node.start_mark)
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag not in (_BOOL, _FLOAT, _INT, _TIMESTAMP)]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF")
_Loader.add_implicit_resolver(_INT, re.compile("^[-+]?(?:0|[1-9][0-9]*)$"), "-+0123456789")
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"""^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+[eE][-+]?[0-9]+
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
        re.VERBOSE,
    ),
    "-+0123456789.",
)


def read_yaml(text: str) -> YamlValue:
    """Read a value, or a whole file.

    Numbers, text, true, false, None, lists and dictionaries of them.

    >>> read_yaml("[1e-3, 0.5, 12, off, true]")
    [0.001, 0.5, 12, 'off', True]
    """
    return yaml.load(text, Loader=_Loader)  # made of the safe one
