"""Is this the seed it claims: do a checkpoint's generators follow from the seed it names."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from cellrepro.determinism import seeding
from cellrepro.store.checkpoints import Checkpoint

FARTHEST = 10_000_000
"""Numbers of 32 bits for which Python's generator is run; a training hardly draws from it."""


@dataclass(frozen=True)
class SeedCheck:
    """Whether a checkpoint's generators follow from a seed.

    Attributes
    ----------
    seed : int
        As claimed.
    follows : tuple of str
        Generators that do: PyTorch's hold their seed, Python's was reached from it.
    problems : tuple of str
        Generators that hold another seed. Empty where there is none.
    not_checked : tuple of str
        Generators that say nothing about the seed: NumPy's is seeded anew at every epoch, and
        Python's may be farther on than it was run.
    """

    seed: int
    follows: tuple[str, ...]
    problems: tuple[str, ...]
    not_checked: tuple[str, ...]

    def sentence(self) -> str:
        """The answer, over how much."""
        if self.problems:
            return f"not seed {self.seed}: {'; '.join(self.problems)}"
        follows, others = ", ".join(self.follows), ", ".join(self.not_checked)
        return f"follows from seed {self.seed} ({follows}); not checked: {others}"


def seed_check(checkpoint: Checkpoint, *, seed: int | None = None) -> SeedCheck:
    """Check that the generators of a checkpoint follow from the seed it claims.

    PyTorch's generators, on the CPU and on CUDA, hold their seed. Python's is started from it and
    run until it reaches the stored state; not to reach it proves nothing.

    Parameters
    ----------
    checkpoint : Checkpoint
    seed : int, optional
        The claim; by default the seed in the checkpoint's own spec.
    """
    import torch

    claimed = int(checkpoint.origin.spec["seed"]) if seed is None else seed
    generators = seeding.in_todays_format(checkpoint.generators)
    with seeding.generators_kept():
        seeding.seed_everything(claimed)
        start = random.getstate()[1]
        seeding.restore({**generators, "cuda": None})
        seeds, python = {"torch": torch.initial_seed()}, random.getstate()[1]
    for index, state in enumerate(generators["cuda"] or ()):
        seeds[f"cuda:{index}"] = int.from_bytes(bytes(state[:8]), "little")
    problems = [f"{name}'s generator has seed {n}" for name, n in seeds.items() if n != claimed]
    follows = [name for name, found in seeds.items() if found == claimed]
    reached = _reaches(start, python)
    return SeedCheck(
        seed=claimed,
        follows=(*(["python"] if reached else []), *follows),
        problems=tuple(problems),
        not_checked=("numpy",) if reached else ("numpy", "python"),
    )


def _reaches(start: tuple[int, ...], state: tuple[int, ...]) -> bool:
    """Whether Python's generator comes from one state to another, block by block."""
    wanted = np.array(state[:-1], np.uint32)
    engine = np.random.MT19937(0)
    key = np.array(start[:-1], np.uint32)
    engine.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": start[-1]}}
    for _ in range(FARTHEST // len(wanted)):
        if np.array_equal(engine.state["state"]["key"], wanted):
            return True
        engine.random_raw(len(wanted), output=False)
    return False
