"""One repeat, carried out in a process of its own; it leaves a finished folder, or an error."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cellrepro.asked.spec import Spec
from cellrepro.bits.digests import array_digest, tensor_digest, value_digest
from cellrepro.determinism import modes
from cellrepro.determinism.profiles import NUMERIC_VARIABLES, Profile, cpu_capability
from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.model.epoch_schedule import trains_nothing
from cellrepro.model.stages import Stages
from cellrepro.model.training_loop import Epoch, Team
from cellrepro.process.child import Child
from cellrepro.process.machine_here import numeric_class
from cellrepro.run.checkpointing import Keeper, Keeping, add_spec, as_after
from cellrepro.run.inputs import (
    read_images,
    scored_for_training,
    segmented_part,
    training_loop,
)
from cellrepro.run.plan import INITIAL_WEIGHTS, Request
from cellrepro.run.ranks import team_of
from cellrepro.run.until_found import Seeker
from cellrepro.same.labels import canonical
from cellrepro.same.metrics import average_precision
from cellrepro.store import this_machine
from cellrepro.store.checkpoints import Origin
from cellrepro.store.ledger import Ledger
from cellrepro.store.manifest import (
    ENVIRONMENT_FIELDS,
    DataRecord,
    Manifest,
    MaskRecord,
    TrainingRecord,
    WeightsRecord,
    mean_score,
)
from cellrepro.store.store import MANIFEST, STAGED_DATA, WEIGHTS
from cellrepro.trace.torch_warnings import WarningLog


def carry_out(
    child: Child, request: Request, *, repeat: int, staged: Path, keeping: Keeping
) -> Spec:
    """Train or segment as the spec says and leave everything in ``staged``.

    Returns
    -------
    Spec
        What was carried out: as requested, but for the number of epochs where a goal ended them.
    """
    # Long, because every block here needs what the one before it made.
    started = datetime.now(UTC).isoformat(timespec="seconds")
    spec, log, loose = request.spec, WarningLog(), child.loosened()
    seconds: dict[str, float] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        log.phase = name
        child.phase(name)
        begun = time.perf_counter()
        yield
        seconds[name] = round(time.perf_counter() - begun, 3)

    with ExitStack() as stack:
        with phase("import"):
            device = stack.enter_context(child.prepared())
            import torch

        stack.enter_context(log.listening())
        environment = _environment(child.setup.profile, device)
        with phase("data"):
            folder = read_images(request)
        with phase("model"):
            network, model = request.build(device, staged)
        keeper = Keeper(keeping, staged, level=spec.ledger, seed=spec.seed)
        child.setup.seed_all()
        if spec.ledger != "off":
            _write_beginning(keeper.ledger, spec, environment, folder, network)
        training = weights = None
        if spec.task == "train":
            initial = staged / INITIAL_WEIGHTS
            plain, numbers = spec.model_dump(mode="json"), environment["numeric_class"]
            origin = Origin(plain, repeat, numbers, model.initial_weights)
            with phase("train"), log.observing(network) if spec.mode == "warn" else loose:
                team = stack.enter_context(_ranks(child, request, device))
                training = _train(child, request, network, folder, keeper, origin, team)
            if request.goal is not None:
                spec = spec.model_copy(update={"epochs": len(training.train_losses)})
                keeper.ended_as(spec)
            started_from = keeper.origin.initial_weights if keeper.origin else model.initial_weights
            model = model.model_copy(update={"initial_weights": started_from})
            weights = _save(network, staged / WEIGHTS, initial, model.architecture)
            # Only after saving: what was trained is kept.
            network.dtype = getattr(torch, child.setup.profile.dtype)
        with phase("segment"), log.observing(network) if spec.mode == "warn" else loose:
            masks = _segment(child, request, network, folder, keeper, staged)
        train_scores: dict[str, float | None] = {}
        if training is not None:
            with phase("score"), loose:
                train_scores = _scores(spec, network, scored_for_training(folder))
                training.ap50_after = _scores_after(child, spec, network, folder, keeper)
        keeper.finish()
        set_to, found = environment["switches"], modes.switches()
    manifest = Manifest(
        key=spec.key,
        repeat=repeat,
        vacuous=_vacuous(spec, weights, masks, loose),
        started=started,
        seconds=seconds,
        peak_memory=this_machine.peak_memory(),
        **environment,
        seeds={"python": spec.seed, "numpy": spec.seed, "torch": spec.seed, "data": spec.data_seed},
        data=DataRecord(
            path=str(request.data.resolve()),
            digest=folder.digest,
            files=folder.files,
            n_train=len(folder.train),
            n_test=len(folder.test),
            segmented="test" if folder.test else "train",
            kept_as=None if spec.images_digest == folder.digest else spec.images_digest,
            warnings=list(folder.warnings),
        ),
        model=model,
        training=training,
        weights=weights,
        masks=masks,
        train_scores=train_scores,
        # Written down and no error: its bits are what they are and can be compared.
        moved={name: found[name] for name in set_to if set_to[name] != found[name]},
        warnings=log.records(),
    )
    for what in manifest.switches_that_moved:
        child.tell("note", f"note: {what}")
    (staged / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
    return spec


def _environment(profile: Profile, device: Any) -> dict[str, Any]:
    """What the numbers depend on beside the spec, as the manifest names it."""
    import torch

    found = numeric_class(profile, device)
    return {
        "machine": this_machine.machine(device, found["name"]),
        "host": this_machine.host(),
        "versions": this_machine.versions(),
        "distributions": this_machine.distributions(),
        "cuda": this_machine.cuda(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "cpu_capability": cpu_capability(),
        "numeric_libraries": this_machine.numeric_libraries(),
        "numeric_class": found,
        "variables": {name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ},
        "switches": modes.switches(),
    }


# -- training ------------------------------------------------------------------------------


def _ranks(child: Child, request: Request, device: Any) -> AbstractContextManager[Team | None]:
    """The other ranks of a training that has several, started."""
    if request.spec.ranks == 1:
        return nullcontext()
    return team_of(child, request, device)


def _train(
    child: Child,
    request: Request,
    network: Any,
    folder: ImageFolder,
    keeper: Keeper,
    origin: Origin,
    team: Any,
) -> TrainingRecord:
    spec = request.spec
    seeker = None
    if request.goal is not None:
        seeker = Seeker(
            request.goal,
            folder,
            score=lambda images: mean_score(_scores(spec, network, images).values()),
            say=lambda sentence: child.tell("note", sentence),
        )

    def tell(epoch: Epoch) -> None:
        of = f"epoch {epoch.index + 1}/{spec.epochs}, loss {epoch.train_loss:.3f}"
        child.tell("done", f"{of}, learning rate {epoch.learning_rate:.1e}")

    def ended(epoch: Epoch) -> None:
        if seeker is not None and seeker.is_enough(epoch.index + 1) and not loop.finished:
            loop.end_here()
        keeper.epoch_ended(network, loop)
        tell(epoch)

    watching: dict[str, Any] = {"on_epoch": ended, "watch": keeper.watch(network)}
    loop = training_loop(spec, network, folder, team=team, **watching)
    if spec.ledger != "off":
        for name, array in loop.prepared.items():
            keeper.ledger.add("data", name, tensor_digest(array))
    for note in keeper.begin(origin, network, loop):
        child.tell("note", f"note: {note}")
    if team is not None:
        seeded = spec.seed is not None
        team.begin(network, loop, seeded=seeded, checkpoint=keeper.goes_on_from)
    for epoch in loop.training.epochs:  # those of a training that goes on
        tell(epoch)
    while not loop.finished:
        loop.step()
    done, epochs = loop.training, loop.training.epochs
    keeper.ledger.step, keeper.ledger.epoch = done.n_steps, len(epochs)
    return TrainingRecord(
        learning_rates=[epoch.learning_rate for epoch in epochs],
        train_losses=[epoch.train_loss for epoch in epochs],
        test_losses=[epoch.test_loss for epoch in epochs],
        n_steps=done.n_steps,
        n_removed=done.n_removed,
        resumed_at=keeper.resumed,
        continued_from=keeper.continued_from,
        until=None if seeker is None else seeker.record,
    )


def _save(network: Any, path: Path, initial: Path, architecture: str) -> WeightsRecord:
    """Write the trained weights and count what changed; removes the initial ones."""
    from cellrepro.model.network import save_weights

    n_changed = _n_changed(network, initial)
    initial.unlink()
    digest = save_weights(network, path, architecture=architecture)
    return WeightsRecord(digest=digest, n_changed=n_changed)


def _n_changed(network: Any, initial: Path) -> int:
    """How many parameters (scalars) are others than in a weights file, read tensor by tensor."""
    from safetensors import safe_open

    n_changed = 0
    with safe_open(initial, framework="pt") as file:
        for name, parameter in network.named_parameters():
            if name != "diam_labels":  # set from the data's diameters
                trained = parameter.detach().cpu()
                n_changed += int((trained != file.get_tensor(name)).sum())
    return n_changed


def _vacuous(
    spec: Spec, weights: WeightsRecord | None, masks: Mapping[str, MaskRecord], loose: Any
) -> list[str]:
    """Why an equality with this repeat would prove nothing."""
    reasons = []
    if weights is not None and weights.n_changed == 0:
        why = trains_nothing(spec.epochs, spec.learning_rate)
        reasons.append(why or "training changed no weight")
    if not any(record.n_objects for record in masks.values()):
        reasons.append(f"no object was found in any of the {len(masks)} images")
    if spec.loose is not None and not loose.n_calls:
        reasons.append(f"{spec.loose} was never called, so leaving it loose changed nothing")
    return reasons


# -- segmenting ----------------------------------------------------------------------------


def _segment(
    child: Child, request: Request, network: Any, folder: ImageFolder, keeper: Keeper, staged: Path
) -> dict[str, MaskRecord]:
    for name in ("masks", STAGED_DATA):
        (staged / name).mkdir()
    records: dict[str, MaskRecord] = {}
    images = segmented_part(folder)
    results = request.results(network, images, staged)
    in_stages = request.spec.ledger != "off" and request.spec.task == "segment"
    for index, image in enumerate(images):
        stages = Stages()
        watched = stages.watching() if in_stages else nullcontext()
        with keeper.watching_image(network, index), watched:
            result = next(results)
        record = records[image.name] = _keep_masks(image, result.masks, result.seconds, staged)
        if request.spec.ledger != "off":
            for stage, digest in stages.digests.items():
                keeper.ledger.add(stage, f"{image.name} {stage}", digest)
            for name, array in result.flows.items():
                keeper.ledger.add("flows", f"{image.name} {name}", tensor_digest(array))
            # Outlines first: other numbers for the same objects are the smaller difference.
            for what, digest in (("outlines", record.canonical_digest), ("labels", record.digest)):
                keeper.ledger.add("masks", f"{image.name} {what}", digest, value=record.n_objects)
        child.tell("done", f"{image.name}: {record.n_objects} objects")
    return records


def _scores_after(
    child: Child, spec: Spec, network: Any, folder: ImageFolder, keeper: Keeper
) -> dict[int, float]:
    """The mean score had training ended at each kept checkpoint; the last weights' is known."""
    images = [image for image in segmented_part(folder) if image.masks is not None]
    scores: dict[int, float] = {}
    for checkpoint in keeper.kept if images else ():
        if checkpoint.epoch < spec.epochs:
            child.phase(f"score after epoch {checkpoint.epoch}")
            as_after(checkpoint, network, child.setup.profile.dtype)
            mean = mean_score(_scores(spec, network, images).values())
            scores |= {} if mean is None else {checkpoint.epoch: mean}
    return scores


def _scores(spec: Spec, network: Any, images: Sequence[LabelledImage]) -> dict[str, float | None]:
    """The score of each image, whose masks are not kept."""
    from cellrepro.model.inference import segment

    found = segment(network, tuple(images), **spec.settings.arguments())
    return {
        image.name: _score(image, result.masks) for image, result in zip(images, found, strict=True)
    }


def _score(image: LabelledImage, masks: Any) -> float | None:
    """Average precision at IoU 0.5; none without a truth, or where both are empty."""
    found = float("nan") if image.masks is None else average_precision(image.masks, masks)[0]
    return None if found != found else float(found)


def _keep_masks(image: LabelledImage, masks: Any, seconds: float, staged: Path) -> MaskRecord:
    """Write masks, image and ground truth as the store keeps them."""
    import numpy as np

    file, truth = f"masks/{image.name}.tif", image.masks
    _write_tiff(staged / file, masks.astype(np.uint16) if masks.max(initial=0) < 2**16 else masks)
    _write_tiff(staged / STAGED_DATA / f"{image.name}.tif", image.image)
    if truth is not None:
        _write_tiff(staged / STAGED_DATA / f"{image.name}_masks.tif", truth.astype(np.int32))
    return MaskRecord(
        file=file,
        digest=array_digest(masks.astype(np.uint32)),
        canonical_digest=array_digest(canonical(masks).astype(np.uint32)),
        n_objects=np.unique(masks[masks > 0]).size,
        seconds=round(seconds, 4),
        ap50=_score(image, masks),
        n_true=None if truth is None else np.unique(truth[truth > 0]).size,
    )


def _write_tiff(path: Path, array: Any) -> None:
    import tifffile

    colour = array.ndim >= 3 and array.shape[-1] in (2, 3)
    options: dict[str, Any] = {"photometric": "minisblack"}
    if colour:
        options |= {"planarconfig": "contig"}
        options["photometric"] = "rgb" if array.shape[-1] == 3 else "minisblack"
    options |= {"compression": "zlib", "compressionargs": {"level": 1}}  # the best one takes thrice
    tifffile.imwrite(path, array, metadata=None, software=False, **options)


# -- the ledger before the first step ------------------------------------------------------


def _write_beginning(
    ledger: Ledger, spec: Spec, environment: Mapping[str, Any], folder: ImageFolder, network: Any
) -> None:
    """Write down environment, spec, data as decoded, initial weights and seeded generators."""
    from cellrepro.trace.watches import StepWatch

    for name, value in flattened(environment):
        if name.partition(".")[0] in (*ENVIRONMENT_FIELDS, "cuda"):  # the rest stands elsewhere
            ledger.add("environment", name, value_digest(value), detail=value)
    add_spec(ledger, spec)
    for name, digest in folder.files.items():
        ledger.add("data", f"file {name}", digest)
    for image in (*folder.train, *folder.test):
        ledger.add("data", f"{image.name} decoded", tensor_digest(image.image))
        if image.masks is not None:
            ledger.add("data", f"{image.name} masks", tensor_digest(image.masks))
    watch = StepWatch(ledger)
    watch.weights("weights-init", network)
    watch.generators("at the start")


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """A nested plain value field by field, with dotted names; an empty mapping has no fields."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flattened(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
