"""All that lies beside the networks of two checkpoints, side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cellrepro.comparison.file_content import PARTS, FileContent, StatePart
from cellrepro.comparison.generator_pairs import GeneratorPair, compare_generators
from cellrepro.comparison.weight_comparison import WeightsComparison, compare_networks
from samebits.shown_text import short
from samebits.words import amount, some

_SHORT = 8  # values of a list that are shown whole
_MOST_NAMES = 4


@dataclass(frozen=True)
class ValuePair:
    """A plain value that differs between two files."""

    part: StatePart
    """The part of a checkpoint in which it stands."""
    name: str
    """The keys that lead to it; in a long list also the first place that differs, ``losses[3]``."""
    a: object
    """Its value on each side, as JSON takes it; ``absent`` where a side does not have it."""
    b: object
    """Its value on each side, as JSON takes it; ``absent`` where a side does not have it."""
    n_differing: int = 1
    """Values that differ: more than one in a list."""

    def sentence(self) -> str:
        """Say both values."""
        more = f" (and {self.n_differing - 1} more)" if self.n_differing > 1 else ""
        return f"{short(self.name)}: {plain_text(self.a)} and {plain_text(self.b)}{more}"


@dataclass(frozen=True)
class StateComparison:
    """All that lies beside the networks of two checkpoints, side by side."""

    tensors: Mapping[StatePart, WeightsComparison]
    """Tensors of the optimizer and of what else has some, compared."""
    values: tuple[ValuePair, ...]
    """Plain values that differ."""
    n_values: int
    """Plain values that were compared."""
    generators: tuple[GeneratorPair, ...]
    """The generators that both have."""
    only_a: tuple[str, ...]
    """Generators that only one side has."""
    only_b: tuple[str, ...]
    """Generators that only one side has."""

    @property
    def differing(self) -> tuple[StatePart | Literal["generators"], ...]:
        """The parts that differ, in their order."""
        in_values = {pair.part for pair in self.values}
        in_tensors = {part for part, of_part in self.tensors.items() if not of_part.equal}
        seeds = [pair.seeds for pair in self.generators]
        in_generators = {"seed"} if any(a != b for a, b in seeds) else set()
        parts: list[StatePart | Literal["generators"]] = [
            part for part in PARTS if part in in_values | in_tensors | in_generators
        ]
        if self.only_a or self.only_b or not all(pair.equal for pair in self.generators):
            parts.append("generators")
        return tuple(parts)

    def sentences(self) -> Iterator[str]:
        """A line for each kind of tensors, for what differs of the values, and each generator."""
        for part, comparison in self.tensors.items():
            yield f"{part}: {comparison.sentence()}"
            for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
                if names:
                    yield f"{part}, only in {side}: {some(names, _MOST_NAMES)}"
        for part in PARTS:
            pairs = [pair.sentence() for pair in self.values if pair.part == part]
            if pairs:
                yield f"{part}, {some(pairs, _MOST_NAMES)}"
        if not self.values and self.n_values:
            yield f"{amount(self.n_values, 'plain value')}, all equal"
        yield from (f"generator {pair.sentence()}" for pair in self.generators)
        for side, names in (("A", self.only_a), ("B", self.only_b)):
            if names:
                yield f"generators, only in {side}: {some(names, _MOST_NAMES)}"


def compare_states(a: FileContent, b: FileContent) -> StateComparison:
    """Compare all that two files hold beside their networks; what one side lacks, differs."""
    in_tensors = [part for part in PARTS if part in a.tensors or part in b.tensors]
    in_values = [part for part in PARTS if part in a.values or part in b.values]
    n_values = 0
    values: list[ValuePair] = []
    for part in in_values:
        values_a = a.values.get(part, {})
        values_b = b.values.get(part, {})
        n_values += len({*values_a, *values_b})
        values += _differing(part, values_a, values_b)
    in_both = [name for name in a.generators if name in b.generators]
    return StateComparison(
        tensors={
            part: compare_networks(
                a.tensors.get(part, {}), b.tensors.get(part, {}), are_wrapped=False
            )
            for part in in_tensors
        },
        values=tuple(values),
        n_values=n_values,
        generators=tuple(
            compare_generators(name, a.generators[name], b.generators[name]) for name in in_both
        ),
        only_a=tuple(name for name in a.generators if name not in b.generators),
        only_b=tuple(name for name in b.generators if name not in a.generators),
    )


def _differing(
    part: StatePart, a: Mapping[str, object], b: Mapping[str, object]
) -> Iterator[ValuePair]:
    """The values of one part that differ, as bits do: 3 and 3.0, 0.0 and -0.0 are different."""
    for name in dict.fromkeys([*a, *b]):
        if name not in a or name not in b:
            yield ValuePair(
                part,
                name,
                a=shown(a[name]) if name in a else "absent",
                b=shown(b[name]) if name in b else "absent",
            )
        elif repr(a[name]) != repr(b[name]):
            yield _pair(part, name, a[name], b[name])


def _pair(part: StatePart, name: str, a: object, b: object) -> ValuePair:
    if not isinstance(a, tuple) or not isinstance(b, tuple) or len(a) != len(b) or len(a) <= _SHORT:
        return ValuePair(part, name, shown(a), shown(b))
    differing = [i for i, pair in enumerate(zip(a, b, strict=True)) if len({*map(repr, pair)}) > 1]
    first = differing[0]
    return ValuePair(
        part, f"{name}[{first}]", shown(a[first]), shown(b[first]), n_differing=len(differing)
    )


def shown(value: object) -> object:
    """A plain value as JSON and a reader take it: long lists and bytes are counted."""
    if isinstance(value, bytes):
        return f"{amount(len(value), 'byte')}, SHA-256 {hashlib.sha256(value).hexdigest()[:12]}"
    if isinstance(value, tuple) and len(value) > _SHORT:
        return f"{amount(len(value), 'value')}, {shown(value[0])} first"
    if isinstance(value, tuple):
        return [shown(part) for part in value]
    return str(value) if isinstance(value, complex) else value


def plain_text(value: object) -> str:
    """A plain value in a sentence."""
    text = "none" if value is None else str(value)
    return short(text if len(text) <= 60 else f"{text[:57]}…")
