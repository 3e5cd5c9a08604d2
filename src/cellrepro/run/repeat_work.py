"""One repeat in progress, in its child process: inputs, results so far, and its manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.images.folder import ImageFolder
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.model.epoch_schedule import trains_nothing
from cellrepro.nested_values import flattened
from cellrepro.process.child import Child, LooseBlock
from cellrepro.run.plan import Request
from cellrepro.run.training_recorder import TrainingRecorder, add_spec
from cellrepro.run.until_found import as_trained
from cellrepro.spec.spec import Spec
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS, EnvironmentRecord
from cellrepro.store.manifest import DataRecord, Manifest, MaskRecord, ModelRecord
from cellrepro.store.peak_memory import peak_memory
from cellrepro.store.training_record import TrainingRecord, WeightsRecord
from samebits import WarningLog
from samebits.digests import value_digest
from samebits.tensor_digests import tensor_digest
from samebits.words import any_of

if TYPE_CHECKING:
    import torch

_IN_THE_LEDGER = (*ENVIRONMENT_FIELDS, "cuda")
"""The rest of the environment stands in the manifest alone."""


class Phases:
    """The phases of a repeat: named to the caller and in the log of warnings, and timed."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.log = WarningLog()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name and time one phase, for one block."""
        self.log.phase = name
        self._child.phase(name)
        begun = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - begun, 3)


@dataclass
class RepeatWork:
    """The state of a repeat in progress, from which its manifest is made."""

    child: Child
    """The line to the caller."""
    request: Request
    repeat: int
    """Number of the repeat, from 0."""
    started: str
    """Date and time, ISO 8601, UTC."""
    phases: Phases
    device: torch.device
    environment: EnvironmentRecord
    switches: Mapping[str, object]
    """PyTorch's switches, as the mode set them."""
    folder: ImageFolder
    """The images, decoded."""
    network: CellposeNetwork
    """The network of Cellpose; None where another segmenter is wrapped."""
    model: ModelRecord
    """Record of the network that the repeat began with."""
    recorder: TrainingRecorder
    """Writes ledgers and checkpoints."""
    staged: Path
    """The folder in which everything is left."""
    with_images: bool
    """Whether the segmented images and their truth are left there, too."""
    loose: LooseBlock
    """Context that leaves one operation loose, where that was asked for."""

    training: TrainingRecord | None = None
    weights: WeightsRecord | None = None
    masks: dict[str, MaskRecord] = field(default_factory=dict)
    """Masks by the name of the image."""
    train_scores: dict[str, float | None] = field(default_factory=dict)
    """Scores of training images, by name."""

    @property
    def spec(self) -> Spec:
        """The spec of the request."""
        return self.request.spec

    @property
    def carried_out(self) -> Spec:
        """The spec with the number of epochs that a training has had."""
        return as_trained(self.spec, self.training)

    def write_beginning(self) -> None:
        """Write environment, spec, decoded data, initial weights and seeds into the ledger."""
        from cellrepro.model.watches import StepWatch

        ledger = self.recorder.ledger
        environment = {**self.environment.model_dump(), "switches": self.switches}
        for name, value in flattened(environment):
            if name.partition(".")[0] in _IN_THE_LEDGER:
                ledger.add("environment", name, value_digest(value), detail=value)
        add_spec(ledger, self.spec)
        for name, digest in self.folder.files.items():
            ledger.add("data", f"file {name}", digest)
        for image in (*self.folder.train, *self.folder.test):
            ledger.add("data", f"{image.name} decoded", tensor_digest(image.image))
            if image.masks is not None:
                ledger.add("data", f"{image.name} masks", tensor_digest(image.masks))
        watch = StepWatch(ledger)
        watch.weights("weights-init", self.network)
        watch.generators("at the start")

    def manifest(self, switches_at_end: Mapping[str, object]) -> Manifest:
        """Make the manifest."""
        spec = self.carried_out
        folder = self.folder
        # No error: the bits of the repeat can be compared all the same.
        moved = {
            name: switches_at_end[name]
            for name, value in self.switches.items()
            if value != switches_at_end[name]
        }
        return Manifest(
            **dict(self.environment),
            key=spec.key,
            repeat=self.repeat,
            vacuous=self._reasons_of_vacuity(),
            started=self.started,
            seconds=self.phases.seconds,
            peak_memory=peak_memory(),
            switches=dict(self.switches),
            moved=moved,
            seeds={
                "python": spec.seed,
                "numpy": spec.seed,
                "torch": spec.seed,
                "data": spec.data_seed,
            },
            data=DataRecord(
                path=str(self.request.data.resolve()),
                digest=folder.digest,
                files=folder.files,
                n_train=len(folder.train),
                n_test=len(folder.test),
                segmented="test" if folder.test else "train",
                kept_as=None if spec.images_digest == folder.digest else spec.images_digest,
                warnings=list(folder.warnings),
            ),
            model=self.model,
            training=self.training,
            weights=self.weights,
            masks=self.masks,
            train_scores=self.train_scores,
            warnings=self.phases.log.records(),
        )

    def _reasons_of_vacuity(self) -> list[str]:
        """Reasons why equality with this repeat would prove nothing."""
        spec = self.carried_out
        reasons = []
        if self.weights is not None and self.weights.n_changed == 0:
            why_nothing = trains_nothing(spec.epochs, spec.learning_rate)
            reasons.append(why_nothing or "training changed no weight")
        if not any(record.n_objects for record in self.masks.values()):
            reasons.append(f"no object was found in {any_of(len(self.masks), 'image')}")
        if spec.loose is not None and not self.loose.n_calls:
            reasons.append(f"{spec.loose} was never called, so --loose changed nothing")
        return reasons
