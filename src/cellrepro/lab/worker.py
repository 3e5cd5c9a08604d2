"""One repeat, carried out in a process of its own that `cellrepro.lab.process.call` starts.

It leaves a finished folder behind or exits with a code other than 0; moving the folder into the
store is the caller's part.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cellrepro.compare.labels import canonical
from cellrepro.compare.metrics import average_precision
from cellrepro.determinism import modes
from cellrepro.determinism.profiles import NUMERIC_VARIABLES, Profile, cpu_capability
from cellrepro.determinism.seeding import seed_everything
from cellrepro.errors import BadInput
from cellrepro.images.folder import ImageFolder, LabelledImage, read_folder
from cellrepro.lab.chain import write_beginning, write_prepared, write_segmented
from cellrepro.lab.keeping import Keeper, Keeping
from cellrepro.lab.process import Child, Setup
from cellrepro.model.network import ModelSource
from cellrepro.model.training import Epoch, Loop
from cellrepro.store import platform
from cellrepro.store.checkpoints import Origin
from cellrepro.store.digests import array_digest, file_digest
from cellrepro.store.manifest import (
    DataRecord,
    Manifest,
    MaskRecord,
    ModelRecord,
    TrainingRecord,
    WeightsRecord,
)
from cellrepro.store.platform import numeric_class
from cellrepro.store.spec import Spec
from cellrepro.store.store import MANIFEST, STAGED_DATA, WEIGHTS
from cellrepro.trace.torch_warnings import WarningLog


@dataclass(frozen=True)
class Request:
    """What is needed to carry a spec out on this machine, images unread."""

    spec: Spec
    data: Path
    model: ModelSource
    device: str | None = None
    """Which of several of the profile's kind; none for the first."""

    @property
    def setup(self) -> Setup:
        """For `cellrepro.lab.process.call`."""
        return Setup.of(self.spec, device=self.device)


class Stopwatch:
    """Seconds of each phase, and what the phase is called."""

    def __init__(self, child: Child, log: WarningLog):
        self.seconds: dict[str, float] = {}
        self._child, self._log = child, log

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block and name it to the caller and to the warning log."""
        self._log.phase = name
        self._child.phase(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 3)


def carry_out(
    child: Child, request: Request, *, repeat: int, staged: Path, keeping: Keeping
) -> Manifest:
    """Train or segment as the spec says and leave everything in ``staged``."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    log = WarningLog()
    watch = Stopwatch(child, log)
    spec = request.spec
    profile = child.setup.profile
    with ExitStack() as stack:
        with watch.phase("import"):
            import torch

            device = stack.enter_context(child.prepared())
        stack.enter_context(log.listening())
        loose = child.setup.loosened()
        switches = modes.switches()
        surroundings = _surroundings(device, switches)
        not_numbers = {"machine", "distributions"}  # what of them changes bits stands elsewhere
        with watch.phase("data"):
            folder = _read_data(request)
        with watch.phase("model"):
            network, model_record, initial = _build(request, profile, device, staged)
        keeper = Keeper(keeping, staged, level=spec.ledger, seed=spec.seed)
        seed_everything(spec.seed)
        if spec.ledger != "off":
            write_beginning(
                keeper.ledger,
                spec=spec,
                surroundings={n: v for n, v in surroundings.items() if n not in not_numbers},
                folder=folder,
                network=network,
            )
        training_record = weights_record = None
        if spec.task == "train":
            with watch.phase("train"), _watched(spec, log, network, loose):
                training_record = _train(
                    request,
                    network,
                    folder,
                    child,
                    keeper,
                    _origin(request, repeat, surroundings, model_record),
                )
            weights_record = _save(request, staged, network, initial)
            network.dtype = getattr(torch, profile.dtype)  # after saving: what was trained is kept
        with watch.phase("segment"), _watched(spec, log, network, loose):
            masks = _segment(request, staged, network, folder, child, keeper)
        keeper.finish()
        if keeping.certify and spec.task == "train":
            with watch.phase("certify"):
                _certify(request, staged, folder, device, loose, child)
        moved = _moved_since(switches)
    manifest = Manifest(
        key=spec.key,
        repeat=repeat,
        vacuous=[*_vacuous(spec, weights_record, masks), *_never_called(loose, spec)],
        started=started,
        seconds=watch.seconds,
        peak_memory=platform.peak_memory(),
        **surroundings,
        seeds={"python": spec.seed, "numpy": spec.seed, "torch": spec.seed, "data": spec.data_seed},
        data=DataRecord(
            path=str(request.data.resolve()),
            digest=folder.digest,
            files=folder.files,
            n_train=len(folder.train),
            n_test=len(folder.test),
            segmented=segmented_part(folder)[0],
            warnings=list(folder.warnings),
        ),
        model=model_record,
        training=training_record,
        weights=weights_record,
        masks=masks,
        moved=moved,
        warnings=log.records(),
    )
    for what in manifest.switches_that_moved:
        child.tell("note", text=what)
    (staged / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
    return manifest


def _surroundings(device: Any, switches: dict[str, Any]) -> dict[str, Any]:
    """What the numbers depend on beside what was asked for, as the manifest names it."""
    import torch

    found = numeric_class(device=str(device))
    return {
        "machine": platform.machine(device, found.name),
        "host": platform.host(),
        "versions": platform.versions(),
        "distributions": platform.distributions(),
        "cuda": platform.cuda(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "cpu_capability": cpu_capability(),
        "numeric_libraries": platform.numeric_libraries(),
        "numeric_class": asdict(found),
        "variables": {name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ},
        "switches": switches,
    }


def _origin(
    request: Request, repeat: int, surroundings: dict[str, Any], model: ModelRecord
) -> Origin:
    return Origin(
        spec=request.spec.model_dump(mode="json"),
        repeat=repeat,
        numeric_class=surroundings["numeric_class"],
        initial_weights=model.initial_weights,
    )


def segmented_part(folder: ImageFolder) -> tuple[str, tuple[LabelledImage, ...]]:
    """Which images are segmented: the test images, or all of them where there are none."""
    return ("test", folder.test) if folder.test else ("train", folder.train)


def _read_data(request: Request) -> ImageFolder:
    training = request.spec.task == "train"
    folder = read_folder(request.data, need_masks=training, need_train=training)
    if folder.digest != request.spec.data_digest:
        raise BadInput(
            f"the images in {request.data} changed while the run was starting; run it again"
        )
    return folder


def _build(
    request: Request, profile: Profile, device: Any, staged: Path
) -> tuple[Any, ModelRecord, dict[str, Any]]:
    from cellrepro.model.network import build, save_weights

    path = request.model.path
    if path is not None and file_digest(path) != request.model.digest:
        raise BadInput(f"the weights {path} changed while the run was starting; run it again")
    network = build(request.model, seed=request.spec.seed, device=device, dtype=profile.dtype)
    scratch = staged / "initial.safetensors"
    digest = save_weights(network, scratch, architecture=request.model.architecture)
    scratch.unlink()
    record = ModelRecord(
        architecture=request.model.architecture,
        n_parameters=sum(parameter.numel() for parameter in network.parameters()),
        dtype=profile.dtype,
        initial_weights=digest,
        path=None if path is None else str(path.resolve()),
    )
    if request.spec.task == "segment":
        return network, record, {}
    return network, record, {name: p.detach().clone() for name, p in network.named_parameters()}


def _train(
    request: Request,
    network: Any,
    folder: ImageFolder,
    child: Child,
    keeper: Keeper,
    origin: Origin,
) -> TrainingRecord:
    def ended(epoch: Epoch) -> None:
        keeper.epoch_ended(network, loop)
        child.tell("epoch", **asdict(epoch))

    loop = training_loop(request.spec, network, folder, on_epoch=ended, watch=keeper.watch(network))
    if request.spec.ledger != "off":
        write_prepared(keeper.ledger, loop)
    keeper.begin(origin, network, loop)
    for note in keeper.notes:
        child.tell("note", text=note)
    for epoch in loop.training.epochs:
        child.tell("epoch", **asdict(epoch))
    while not loop.finished:
        loop.step()
    training = loop.training
    keeper.ledger.step, keeper.ledger.epoch = training.n_steps, len(training.epochs)
    return TrainingRecord(
        learning_rates=[epoch.learning_rate for epoch in training.epochs],
        train_losses=[epoch.train_loss for epoch in training.epochs],
        test_losses=[epoch.test_loss for epoch in training.epochs],
        n_steps=training.n_steps,
        n_removed=training.n_removed,
        resumed_at=keeper.resumed,
    )


def training_loop(spec: Spec, network: Any, folder: ImageFolder, **options: Any) -> Loop:
    """The training that a spec asks for, about to begin."""
    return Loop(
        network,
        folder.train,
        folder.test,
        n_epochs=spec.epochs,
        learning_rate=spec.learning_rate,
        batch_size=spec.batch_size,
        images_per_epoch=spec.images_per_epoch,
        data_seed=spec.data_seed,
        **options,
    )


def _certify(
    request: Request, staged: Path, folder: ImageFolder, device: Any, loose: Any, child: Child
) -> None:
    """Train again with every kind of watching, and store whether all ended in the same bits."""
    from cellrepro.lab.certify import CERTIFICATE, certify, segmenting
    from cellrepro.model.network import build

    spec = request.spec
    dtype = Profile(**spec.profile_settings).dtype

    def begin(*, watch: Callable[[Any], Any], on_epoch: Callable[[Any], None]) -> tuple[Any, Loop]:
        network = build(request.model, seed=spec.seed, device=device, dtype=dtype)
        seed_everything(spec.seed)
        loop = training_loop(
            spec,
            network,
            folder,
            on_epoch=lambda epoch: on_epoch(network),
            watch=watch(network),
        )
        return network, loop

    with loose:
        certificate = certify(
            begin,
            make_masks=segmenting(segmented_part(folder)[1][:2]),
            told=lambda level: child.tell("phase", name=f"certificate: {level}"),
        )
    (staged / CERTIFICATE).write_text(
        json.dumps(certificate.to_plain(), indent=1), encoding="utf-8"
    )


def _save(request: Request, staged: Path, network: Any, initial: dict[str, Any]) -> WeightsRecord:
    from cellrepro.model.network import save_weights

    n_changed = 0
    for name, parameter in network.named_parameters():
        if name != "diam_labels":  # set from the data's diameters, not by training
            now, before = parameter.detach(), initial[name].to(parameter.device)
            n_changed += int((now != before).sum())
    digest = save_weights(network, staged / WEIGHTS, architecture=request.model.architecture)
    return WeightsRecord(digest=digest, n_changed=n_changed)


def _segment(
    request: Request,
    staged: Path,
    network: Any,
    folder: ImageFolder,
    child: Child,
    keeper: Keeper,
) -> dict[str, MaskRecord]:
    import numpy as np

    from cellrepro.model.inference import segment

    _, images = segmented_part(folder)
    (staged / "masks").mkdir()
    kept = staged / STAGED_DATA
    kept.mkdir()
    records: dict[str, MaskRecord] = {}
    results = segment(network, images)
    for index, image in enumerate(images):
        with keeper.watching_image(network, index):
            result = next(results)
        file = f"masks/{image.name}.tif"
        _write_tiff(staged / file, _narrow(result.masks))
        _write_tiff(kept / f"{image.name}.tif", image.image)
        truth = image.masks
        if truth is not None:
            _write_tiff(kept / f"{image.name}_masks.tif", truth.astype(np.int32))
        score = None if truth is None else float(average_precision(truth, result.masks)[0])
        records[image.name] = MaskRecord(
            file=file,
            digest=array_digest(result.masks.astype(np.uint32)),
            canonical_digest=array_digest(canonical(result.masks).astype(np.uint32)),
            n_objects=int(np.unique(result.masks[result.masks > 0]).size),
            seconds=round(result.seconds, 4),
            ap50=None if score is None or np.isnan(score) else score,
            n_true=None if truth is None else int(np.unique(truth[truth > 0]).size),
        )
        if request.spec.ledger != "off":
            write_segmented(keeper.ledger, image.name, result.flows, records[image.name])
        child.tell("image", name=image.name, n_objects=records[image.name].n_objects)
    return records


def _narrow(masks: Any) -> Any:
    import numpy as np

    return masks.astype(np.uint16) if masks.max(initial=0) < 2**16 else masks


def _write_tiff(path: Path, array: Any) -> None:
    import tifffile

    photometric = "rgb" if array.ndim == 3 and array.shape[-1] == 3 else "minisblack"
    tifffile.imwrite(
        path,
        array,
        compression="zlib",
        metadata=None,
        software=False,
        photometric=photometric,
        planarconfig="contig" if array.ndim == 3 else None,
    )


@contextmanager
def _watched(spec: Spec, log: WarningLog, network: Any, loose: Any) -> Iterator[None]:
    """What a mode wants to see, or leave alone, of single operations."""
    if spec.mode == "warn":
        with log.observing(network):
            yield
    else:
        with loose:
            yield


def _never_called(loose: Any, spec: Spec) -> list[str]:
    if spec.loose is None or loose.n_calls:
        return []
    return [f"{spec.loose} was never called, so leaving it loose changed nothing"]


def _moved_since(before: dict[str, Any]) -> dict[str, Any]:
    """What the switches are now, where they were moved: written down, for the run is finished.

    Its bits are what they are and can be compared; what did not hold is the mode that the spec
    asks for, and the manifest, the verdict's reasons and a note to the user say so.
    """
    after = modes.switches()
    return {name: after[name] for name in before if before[name] != after[name]}


def _vacuous(spec: Spec, weights: WeightsRecord | None, masks: dict[str, MaskRecord]) -> list[str]:
    from cellrepro.model.training import trains_nothing

    reasons = []
    if weights is not None and weights.n_changed == 0:
        why = trains_nothing(spec.epochs, spec.learning_rate)
        reasons.append(why or "training changed no weight")
    if not any(record.n_objects for record in masks.values()):
        reasons.append(f"no object was found in any of the {len(masks)} images")
    return reasons
