"""Is this the seed it claims: do a checkpoint's generators follow from the seed it names."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from cellrepro.determinism import seeding
from cellrepro.store.checkpoints import Checkpoint
from cellrepro.trace.random_draws import n_drawn


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
        What does not follow: generators that hold another seed. Empty where there is none.
    not_reached : tuple of str
        Generators not reached within `FARTHEST` numbers: farther on than that, or another's.
    not_checked : tuple of str
        Generators that say nothing about the seed: NumPy's is seeded anew at every epoch.
    """

    seed: int
    n_drawn: dict[str, int]
    problems: tuple[str, ...]
    not_reached: tuple[str, ...]
    not_checked: tuple[str, ...]

    def sentence(self) -> str:
        """The answer, over how much."""
        if self.problems:
            return f"not seed {self.seed}: {'; '.join(self.problems)}"
        drawn = ", ".join(f"{name} after {n} numbers" for name, n in self.n_drawn.items())
        text = f"follows from seed {self.seed} ({drawn})" if drawn else "nothing could be checked"
        far = [f"{name} (not reached within {FARTHEST:,} numbers)" for name in self.not_reached]
        return f"{text}; not checked: {', '.join([*self.not_checked, *far])}"


FARTHEST = 500_000_000
"""Numbers of 32 bits for which a generator is run; about two seconds where it is not reached."""


def seed_check(checkpoint: Checkpoint, *, seed: int | None = None) -> SeedCheck:
    """Check that the generators of a checkpoint follow from the seed it claims.

    A Mersenne Twister started from the seed is run until it reaches the stored state. PyTorch's
    generators, on the CPU and on CUDA, hold their seed, too. Not to reach a state proves nothing:
    every state follows from every seed after numbers enough.

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
    problems, not_reached = [], []
    if _torch_seed(stored["torch"]) != claimed:
        problems.append(f"torch's generator has seed {_torch_seed(stored['torch'])}")
    generators = seeding.in_todays_format(checkpoint.generators)
    for index, state in enumerate(generators["cuda"] or ()):
        found = int.from_bytes(bytes(state[:8]), "little")  # seed, then offset
        if found != claimed:
            problems.append(f"cuda:{index}'s generator has seed {found}")
    # Another seed is not reached, which takes longest, and the answer is known then.
    for name, start in ({} if problems else _at_start(claimed)).items():
        n = n_drawn(start, stored[name], most=FARTHEST)
        if n is None:
            not_reached.append(name)
        else:
            counted[name] = n
    return SeedCheck(claimed, counted, tuple(problems), tuple(not_reached), ("numpy",))


def _torch_seed(state: Any) -> int:
    """The seed that a state of PyTorch's generator for the CPU says it was started with."""
    import torch

    generator = torch.Generator()
    generator.set_state(state)
    return generator.initial_seed()


def _states(plain: dict[str, Any]) -> dict[str, Any]:
    """Stored states in the form that each library gives them."""
    import torch

    with seeding.generators_kept():
        seeding.restore({**seeding.in_todays_format(plain), "cuda": None})
        return {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
        }


def _at_start(seed: int) -> dict[str, Any]:
    import torch

    with seeding.generators_kept():
        seeding.seed_everything(seed)
        return {"python": random.getstate(), "torch": torch.get_rng_state()}
