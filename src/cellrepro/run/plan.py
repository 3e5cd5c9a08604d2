"""A spec that is to be carried out here: the request for its child processes, and the plan.

`cellrepro.run.planning` makes both. A child process gets the request alone; the plan adds what only
the process that starts it needs: the store, the notices, what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.images.folder import LabelledImage
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.model.weight_sources import ModelSource
from cellrepro.process.child import NeedOfCellpose
from cellrepro.process.machine_here import machine_here
from cellrepro.process.setup import Setup
from cellrepro.profiles.profiles import Profile
from cellrepro.run.options import RecordingOptions
from cellrepro.run.until_found import Goal
from cellrepro.spec.spec import Spec
from cellrepro.store.manifest import ModelRecord
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.digests import file_digest
from samebits.errors import BadInput

if TYPE_CHECKING:
    import torch

    from cellrepro.model.inference import Segmentation

CHANGED_SINCE = "the {} changed while the run was starting; run it again"

INITIAL_WEIGHTS = "initial.safetensors"
"""File in the folder of a repeat while a training goes on; it is no part of the repeat."""


@dataclass(frozen=True)
class Request:
    """All that a child process needs to carry out a spec here; the images are unread."""

    spec: Spec
    """The spec that is carried out."""
    data: Path
    """The folder of images."""
    model: ModelSource
    """Source of the weights."""
    device: str | None = None
    """One of several devices of the profile's kind; by default the first."""
    goal: Goal | None = None
    """When a training may end before its epochs are over: once it finds cells."""
    asked_here: bool = False
    """Whether the user gave the spec here and now; a stored one may come from anybody."""

    @property
    def setup(self) -> Setup:
        """The setup of the child process."""
        return self.setup_on(self.device)

    def setup_on(self, device: str | None) -> Setup:
        """The setup on another device of the profile's kind."""
        return Setup.of(self.spec, device=device, asked_here=self.asked_here)

    @property
    def cellpose(self) -> NeedOfCellpose:
        """Whether the child process imports Cellpose."""
        return "needed"

    def build(self, device: torch.device, staged: Path) -> tuple[CellposeNetwork, ModelRecord]:
        """Make the network to begin with, and what the manifest says of it."""
        from cellrepro.model.network import build
        from cellrepro.model.weights_file import save_weights, weights_digest

        source = self.model
        dtype = self.setup.profile.dtype
        if source.path is not None and file_digest(source.path) != source.digest:
            raise BadInput(CHANGED_SINCE.format(f"weights {source.path}"))
        network = build(source, seed=self.spec.seed, device=device, dtype=dtype)
        if self.spec.task == "train":  # whose end is compared with them
            initial = staged / INITIAL_WEIGHTS
            digest = save_weights(network, initial, architecture=source.architecture)
        else:
            digest = weights_digest(network, architecture=source.architecture)
        record = ModelRecord(
            architecture=source.architecture,
            n_parameters=sum(parameter.numel() for parameter in network.parameters()),
            dtype=dtype,
            initial_weights=digest,
            path=None if source.path is None else str(source.path.resolve()),
        )
        return network, record

    def results(
        self, network: CellposeNetwork, images: tuple[LabelledImage, ...], staged: Path
    ) -> Iterator[Segmentation]:
        """Segment one image after another."""
        from cellrepro.model.inference import segment

        return segment(network, images, **self.spec.settings.arguments())


@dataclass(frozen=True)
class Plan:
    """A checked spec, and all that is needed to make its repeats on this machine."""

    request: Request
    """The request that the child process of each repeat is given."""
    n_images: int
    """Number of images to segment."""
    n_pixels: int
    """Their pixels together."""
    store: Store
    """Store of finished runs."""
    notices: tuple[str, ...]
    """Sentences that the user should read before it starts."""
    recording: RecordingOptions = field(default_factory=RecordingOptions)
    """Options of what is kept of a training beside its result."""
    continued: Repeat | None = None
    """The finished training that this one continues."""

    @property
    def spec(self) -> Spec:
        """The spec that is carried out."""
        return self.request.spec

    @property
    def profile(self) -> Profile:
        """The profile with one device; that of the spec names a kind of device."""
        return self.request.setup.profile

    @property
    def machine(self) -> str:
        """The name of this machine under the profile."""
        return machine_here(self.profile, cellpose=self.request.setup.cellpose).name
