"""Whether a machine computes the reference bits of mode ``portable``, and if not, from which stage.

The same small computation everywhere: `tiny` is trained for four steps on synthetic images, which
are then segmented with it. What each stage gave is compared with digests that come with the
package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.progress import progress
from cellrepro.spec import defaults
from cellrepro.store import hardware, installed_versions
from samebits.errors import BadInput
from samebits.results import Result, Row, derived, table_lines

if TYPE_CHECKING:
    from torch import nn

    from cellrepro.images.folder import LabelledImage

REFERENCE = "portable_reference.json"
"""File in this folder with the digest of every stage, in the order in which they are computed."""

N_STEPS = 4
_SEED = 0
_SHAPE = (150, 170)
_SETTINGS = {"cellprob_threshold": -2.0, "flow_threshold": 0.0, "min_size": 1}
"""With these a network that has learnt for four steps finds objects."""


@dataclass(frozen=True)
class StageDigest:
    """The digest of one stage on this machine, and in the reference."""

    name: str
    """The stage, in words."""
    digest: str
    """SHA-256 of its numbers on this machine; empty where this Cellpose does not show it."""
    expected: str | None
    """The digest in the reference; None where the reference lacks the stage."""

    @property
    def is_as_expected(self) -> bool:
        """Whether this machine has the reference bits at this stage."""
        return self.digest == self.expected


@dataclass(frozen=True, repr=False)
class PortableWitness(Result):
    """The testimony of one machine about mode ``portable``."""

    profile: str
    """The profile with which it computed."""
    machine: Mapping[str, object]
    """Processor, system and GPU."""
    versions: Mapping[str, str]
    """Versions of the numeric libraries."""
    stages: tuple[StageDigest, ...]
    """All stages, in the order in which they are computed."""

    @derived
    def ok(self) -> bool:
        """Whether all stages have the reference bits."""
        return self.first_difference is None

    @derived
    def portable(self) -> dict[str, object]:
        """``ok`` and ``stages`` again, under the name by which scripts read them."""
        return {"ok": self.ok, "stages": self.stages}

    @derived
    def first_difference(self) -> str | None:
        """The first stage that differs from the reference."""
        return next((stage.name for stage in self.stages if not stage.is_as_expected), None)

    @property
    def differs(self) -> bool:
        """Whether a stage does not have the reference bits."""
        return not self.ok

    def sentence(self) -> str:
        """Say whether this machine computes the reference bits, and what to do if not."""
        difference = self.first_difference
        if difference is None:
            return (
                f"this machine computes the reference bits with profile {self.profile}: "
                f"{len(self.stages)} stages of {N_STEPS} training steps and a segmentation are "
                "the same as on every machine that was tried"
            )
        n_equal = [stage.name for stage in self.stages].index(difference)
        return (
            f"this machine does not compute the reference bits with profile {self.profile}: the "
            f"first stage that differs is {difference!r}, after {n_equal} equal ones. Please "
            "report it with the output of `cellrepro doctor --portable --json`"
        )

    def rows(self) -> Sequence[Row]:
        """Give one row for each stage."""
        return [
            {
                "stage": stage.name,
                "this machine": stage.digest[:12],
                "reference": (stage.expected or "")[:12],
                "same": "yes" if stage.is_as_expected else "no",
            }
            for stage in self.stages
        ]

    def lines(self) -> list[str]:
        """Give the sentence, and where something differs a line for each stage."""
        rows = [] if self.ok else self.rows()
        return [self.sentence(), *table_lines(rows, most=len(rows))]


def reference_digests() -> dict[str, str]:
    """Read the digests that come with the package, by stage."""
    text = resources.files("cellrepro.audits").joinpath(REFERENCE).read_text(encoding="utf-8")
    return dict(json.loads(text)["digests"])


def witness(*, profile: str | Path = defaults.PROFILE, quiet: bool = False) -> PortableWitness:
    """Compute the reference computation on this machine, and compare each stage.

    Parameters
    ----------
    profile : str or Path
        The numeric environment: a name, or a ``.yaml`` file, in float32.
    quiet : bool
        Show no progress.

    Returns
    -------
    PortableWitness
        Its ``str`` says whether this machine computes the reference bits; in a notebook it shows
        the table of stages, too.

    Raises
    ------
    BadInput
        If the profile is unknown, or computes in bfloat16.
    NotPossibleHere
        If the device does not compute as mode ``portable`` assumes, which is tried first.
    """
    chosen = profiles.load(profile)
    if chosen.dtype != "float32":
        raise BadInput(
            f"profile {chosen.name} computes in {chosen.dtype}; mode portable trains and segments "
            "in float32 only: use profile cpu or cuda"
        )
    setup = Setup(chosen, "portable", _SEED)
    with progress(N_STEPS, "portable", quiet=quiet) as bar:
        digests = in_child(
            compute_stages, setup, label="portable arithmetic", on_event=counting(bar)
        )
    expected = reference_digests()
    return PortableWitness(
        profile=chosen.name,
        machine=hardware.host(),
        versions=installed_versions.versions(),
        stages=tuple(
            StageDigest(stage, digests.get(stage, ""), expected.get(stage))
            for stage in {**digests, **expected}
        ),
    )


def compute_stages(child: Child) -> dict[str, str]:
    """Compute the digest of every stage, in the child and in their order."""
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.encoders import TINY
    from cellrepro.model.network import build
    from cellrepro.model.training_loop import TrainingLoop
    from cellrepro.model.weight_sources import ModelSource
    from samebits.digests import array_digest

    digests: dict[str, str] = {}
    with child.prepared() as device:
        child.setup.seed_all()
        images = labelled_nuclei(2, shape=_SHAPE, n_nuclei=12)
        for image in images:
            digests[f"{image.name} pixels"] = array_digest(image.image)
        network = build(ModelSource(TINY, TINY), seed=_SEED, device=device, dtype="float32")
        digests["initial weights"] = _digest_of_weights(network)
        loop = TrainingLoop(
            network,
            images,
            (),
            learning_rate=1e-3,
            n_epochs=N_STEPS,
            images_per_epoch=1,
            data_seed=_SEED,
        )
        for name, array in loop.prepared.items():
            digests[name] = array_digest(array)
        child.phase("flows")
        while not loop.finished:
            loop.step()
            step = loop.training.n_steps
            digests[f"weights after step {step}"] = _digest_of_weights(network)
            child.tell("done", f"step {step}")
        digests.update(_stages_of_segmentation(network, images[0]))
    return digests


def _digest_of_weights(network: nn.Module) -> str:
    """The digest of a network's tensors, copied to the processor from any device."""
    from samebits.tensor_digests import tensors_digest

    return tensors_digest({name: value.cpu() for name, value in network.state_dict().items()})


def _stages_of_segmentation(network: nn.Module, image: LabelledImage) -> dict[str, str]:
    """Segment an image, and digest each stage, the flows and the masks."""
    from cellrepro.model.inference import segment
    from cellrepro.model.stages import PASSED, Stages
    from samebits.digests import array_digest

    stages = Stages()
    with stages.watching():
        (result,) = segment(network, (image,), **_SETTINGS)
    if not result.masks.any():
        raise RuntimeError("the reference computation found no object, so it proves nothing")
    flows = {name: array_digest(array) for name, array in result.flows.items()}
    return {
        **{
            f"segmentation: {stage}": stages.digests[stage]
            for stage in PASSED
            if stage in stages.digests
        },
        **{f"segmentation: {name}": digest for name, digest in flows.items()},
        "segmentation: final masks": array_digest(result.masks),
    }
