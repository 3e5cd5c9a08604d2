"""Generators of random numbers in two checkpoints: whether they stand at the same place."""

from __future__ import annotations

from dataclasses import dataclass

from cellrepro.comparison.generator_reading import GeneratorKind, GeneratorState
from cellrepro.comparison.mersenne_twister import draws_between


@dataclass(frozen=True)
class GeneratorPair:
    """One generator in two files."""

    name: str
    """The keys that lead to it in the files."""
    kind: GeneratorKind
    """The library whose generator it is."""
    equal: bool
    """Whether it stands at the same place of the same numbers."""
    seeds: tuple[int | None, int | None]
    """The seeds with which they began, where the states say so."""
    draws_apart: int | None
    """How many numbers lie between the two, where they are of one stream."""
    fresh: tuple[str, str] = ("", "")
    """Says for each side that it was just seeded; empty if something was drawn since."""

    def sentence(self) -> str:
        """Say how the two stand to each other, and which of them was seeded and not used."""
        a, b = self.fresh
        if a and a == b:
            return f"{self._difference()}; both stand where seeding puts them ({a})"
        stands = "".join(
            f"; {side} stands where seeding puts it ({fresh})"
            for side, fresh in (("A", a), ("B", b))
            if fresh
        )
        return f"{self._difference()}{stands}"

    def _difference(self) -> str:
        if self.equal:
            return f"{self.kind}: equal"
        a, b = self.seeds
        if a != b:
            return f"{self.kind}: seeds {a} and {b}"
        seed = "" if a is None else f", both of seed {a}"
        if self.draws_apart:
            unit = "steps" if self.kind == "CUDA" else "numbers of 32 bits"
            return f"{self.kind}: {self.draws_apart} {unit} apart in one stream{seed}"
        return f"{self.kind}: at different places{seed}"


def compare_generators(name: str, a: GeneratorState, b: GeneratorState) -> GeneratorPair:
    """Compare one generator in two files."""
    apart = None
    if a.twister is not None and b.twister is not None and a.seed == b.seed:
        apart = draws_between(a.twister, b.twister)
    elif a.stream == b.stream and a.position is not None and b.position is not None:
        apart = abs(a.position - b.position)
    return GeneratorPair(
        name,
        a.kind,
        equal=a == b,
        seeds=(a.seed, b.seed),
        draws_apart=apart,
        fresh=(a.freshness, b.freshness),
    )
