"""Is this the seed it claims: do a checkpoint's generators follow from the seed it names."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from typing import Any

from cellrepro.control import seeding
from cellrepro.record.checkpoints import Checkpoint
from cellrepro.record.draws import n_drawn


@dataclass(frozen=True)
class SeedCheck:
    """Whether a checkpoint's generators follow from a seed.

    Attributes
    ----------
    seed : int
        As claimed.
    n_drawn : dict of str to int
        32-bit numbers drawn since the seeding, by generator that was checked.
    problems : tuple of str
        What does not follow; empty where all does.
    not_checked : tuple of str
        Generators that say nothing about the seed: NumPy's is seeded anew at every epoch.
    """

    seed: int
    n_drawn: dict[str, int]
    problems: tuple[str, ...]
    not_checked: tuple[str, ...]

    def sentence(self) -> str:
        """The answer, over how much."""
        if self.problems:
            return f"not seed {self.seed}: {'; '.join(self.problems)}"
        drawn = ", ".join(f"{name} after {n} numbers" for name, n in self.n_drawn.items())
        return f"follows from seed {self.seed} ({drawn})"


def seed_check(checkpoint: Checkpoint, *, seed: int | None = None) -> SeedCheck:
    """Check that the generators of a checkpoint follow from the seed it claims.

    A Mersenne Twister started from the seed is run until it reaches the stored state; CUDA's
    generator stores its seed itself.

    Parameters
    ----------
    checkpoint : Checkpoint
    seed : int, optional
        The claim; by default the seed in the checkpoint's own spec.

    Returns
    -------
    SeedCheck
    """
    claimed = int(checkpoint.origin.spec["seed"]) if seed is None else seed
    stored = _states(checkpoint.generators)
    counted: dict[str, int] = {}
    problems = []
    for name, start in _at_start(claimed).items():
        n = n_drawn(start, stored[name])
        if n is None:
            problems.append(f"{name}'s generator was started otherwise")
        else:
            counted[name] = n
    for index, state in enumerate(checkpoint.generators["cuda"] or ()):
        found = int.from_bytes(base64.b64decode(state)[:8], "little")  # seed, then offset
        if found != claimed:
            problems.append(f"cuda:{index}'s generator has seed {found}")
    return SeedCheck(claimed, counted, tuple(problems), ("numpy",))


def _states(plain: dict[str, Any]) -> dict[str, Any]:
    """Stored states in the form that each library gives them."""
    import torch

    with seeding.generators_kept():
        seeding.restore({**plain, "cuda": None})
        return {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
        }


def _at_start(seed: int) -> dict[str, Any]:
    import torch

    with seeding.generators_kept():
        seeding.seed_everything(seed)
        return {"python": random.getstate(), "torch": torch.get_rng_state()}
