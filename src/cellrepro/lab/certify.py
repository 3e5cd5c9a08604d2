"""Nothing changed by looking: the same training with every kind of watching, and without any.

What watches a training could change it: a digest that draws a random number, a hook that moves
memory. The certificate of a run holds the digest of the trained weights for each way of watching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from cellrepro.determinism.seeding import generators_kept
from cellrepro.store.digests import state_digest

CERTIFICATE = "certificate.json"

LEVELS = ("off", "steps", "ops", "masks", "audit")
"""No watching at all; the step ledger; the operation ledger of every step; masks made after every
epoch; every operation of one step an epoch asked again."""

Begin = Callable[..., tuple[Any, Any]]
"""Makes a network and its `Loop`, seeded; takes ``watch`` (a function of the network) and
``on_epoch``."""


@dataclass(frozen=True)
class Certificate:
    """Whether watching changed a training.

    Attributes
    ----------
    levels : dict of str to str
        Digest of the weights after the last step, by one of `LEVELS`.
    n_steps : int
        Of each training.
    n_changed : int
        Tensors of weights that training changed; 0 would make equality prove nothing.
    """

    levels: dict[str, str]
    n_steps: int
    n_changed: int

    @property
    def equal(self) -> bool:
        """Whether all ended in the same bits."""
        return len(set(self.levels.values())) == 1

    @property
    def verdict(self) -> str:
        """``identical``, ``different`` or ``vacuous``."""
        if not self.equal:
            return "different"
        return "identical" if self.n_changed else "vacuous"

    def sentence(self) -> str:
        """The answer, over how much."""
        over = f"{len(self.levels)} trainings of {self.n_steps} steps"
        if self.equal:
            return f"{self.verdict} over {over}: {', '.join(self.levels)}"
        plain = self.levels.get("off")
        others = [name for name, digest in self.levels.items() if digest != plain]
        return f"different over {over}: other bits with {', '.join(others)} than with none"

    def to_plain(self) -> dict[str, Any]:
        """As it is stored."""
        return asdict(self) | {"verdict": self.verdict, "sentence": self.sentence()}


def certify(
    begin: Begin,
    *,
    make_masks: Callable[[Any], None],
    levels: tuple[str, ...] = LEVELS,
    told: Callable[[str], None] = lambda level: None,
) -> Certificate:
    """Train once for each way of watching and compare the weights.

    Parameters
    ----------
    begin : callable
        See `Begin`.
    make_masks : callable
        Segments some images with the network it is given, as after training.
    levels : tuple of str
        Of `LEVELS`.
    told : callable
        Called with each level as it begins.

    Returns
    -------
    Certificate
    """
    digests, n_steps, n_changed = {}, 0, 0
    for level in levels:
        told(level)
        network, loop = begin(
            watch=lambda network, level=level: _watch(network, level),
            on_epoch=make_masks if level == "masks" else lambda network: None,
        )
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        while not loop.finished:
            with _audited(network, loop) if level == "audit" else nullcontext():
                loop.step()
        after = network.state_dict()
        digests[level] = state_digest(dict(after))
        n_steps = loop.training.n_steps
        n_changed = sum(not bool((before[name] == after[name]).all()) for name in before)
    return Certificate(digests, n_steps, n_changed)


def _watch(network: Any, level: str) -> Any:
    from cellrepro.store.ledger import Ledger
    from cellrepro.trace.operation_ledger import OperationWatch
    from cellrepro.trace.training_steps import StepWatch, Watches

    if level == "steps":
        return StepWatch(Ledger())
    if level == "ops":
        return Watches([StepWatch(Ledger()), OperationWatch(network)])
    return None


@contextmanager
def _audited(network: Any, loop: Any) -> Iterator[None]:
    """Audit the first step of an epoch."""
    from cellrepro.trace.flips import Auditor

    if not loop.at_epoch_start:
        yield
        return
    with Auditor(replays=1, suspects=0, model=network):
        yield


def segmenting(images: Any) -> Callable[[Any], None]:
    """What `certify` needs to make masks, moving no generator and leaving the network training."""

    def make_masks(network: Any) -> None:
        from cellrepro.model.inference import segment

        with generators_kept():
            for _ in segment(network, images):
                pass
        network.train()

    return make_masks
