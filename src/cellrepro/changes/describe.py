"""What a file is: weights, a `_seg.npy`, a label image, a baseline; or a stored run, or a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cellrepro.asked import defaults
from cellrepro.bits.digests import array_digest, file_digest
from cellrepro.changes.commands import Commands
from cellrepro.changes.named import kind_of
from cellrepro.changes.record_reading import label_image_record, seg_file_record
from cellrepro.changes.recorded_commands import recorded_commands
from cellrepro.changes.recorded_settings import RecordedSettings
from cellrepro.changes.run_log import is_run_log, log_record
from cellrepro.changes.run_record import run_record
from cellrepro.errors import BadInput, no_such_file
from cellrepro.images.image_file import read_labels
from cellrepro.images.label_image import doubt
from cellrepro.images.seg_file import SEG_ENDING, read_seg
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.known_weights import (
    CHECKPOINT,
    OF_SEVERAL_GPUS,
    OFFICIAL_NAMES,
    known_to_cellpose,
    recognise,
)
from cellrepro.results import Result, Row
from cellrepro.same.labels import canonical
from cellrepro.same.state_comparison import descriptions_of
from cellrepro.same.weight_reading import open_file
from cellrepro.same.weight_tensors import Tensor
from cellrepro.store import baseline_file, checkpoints
from cellrepro.store.store import Repeat, Store

DescribedKind = Literal[
    "weights", "tensors", "_seg.npy", "label image", "baseline", "run", "run.log", "name"
]


@dataclass(frozen=True, repr=False)
class Description(Result):
    """What a file is; what does not apply is None.

    Attributes
    ----------
    kind : str
        ``weights``, ``tensors`` (a file of tensors without a network), ``label image``,
        ``_seg.npy``, ``baseline``, ``run``, ``run.log`` or ``name``.
    generation : str or None
        Of Cellpose: ``2 or 3``, ``4 (SAM)``, ``4 (DINO)``.
    dtype : str or None
        Of the weights, or of the label image.
    n_parameters : int or None
        Numbers in all tensors of the weights.
    digest : str or None
        SHA-256 of the file; of a run, of its weights.
    loads_as : str or None
        As what the installed Cellpose would load it: ``itself``, the name of another network that
        it takes without a word, ``a partly random network``, or None where it refuses it.
    official_name : str or None
        Of Cellpose's published weights, by their digest.
    details : mapping of str to object
        What else is known of this kind, by name.
    note : str
        Why it does not load, or what deserves attention.
    recorded : RecordedSettings or None
        Of masks and of a run: what the files record of how they were made.
    commands : Commands or None
        How Cellpose is called with that; None where too little is recorded.
    """

    kind: DescribedKind
    generation: str | None = None
    dtype: str | None = None
    n_parameters: int | None = None
    digest: str | None = None
    loads_as: str | None = None
    official_name: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    recorded: RecordedSettings | None = None
    commands: Commands | None = None

    def sentence(self) -> str:
        """Say what it is, and what Cellpose makes of it."""
        parts: list[str] = [self.kind]
        if self.official_name is not None:
            parts = [f"{self.kind} {self.official_name} of Cellpose"]
        if self.generation is not None:
            parts.append(f"of Cellpose {self.generation}")
        if self.loads_as is not None:
            parts.append(f"Cellpose loads it as {self.loads_as}")
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)

    def rows(self) -> list[Row]:
        """Give what is known beyond that."""
        known = {"dtype": self.dtype, "parameters": self.n_parameters, "SHA-256": self.digest}
        return [
            {"what": name, "value": value}
            for name, value in {**known, **self.details}.items()
            if value is not None
        ]


def describe(
    reference: str, *, log: str | Path | None = None, store: str | Path = defaults.STORE
) -> Description:
    """Say what a file is, or a run of the store, or a model's name.

    Parameters
    ----------
    reference : str
        Path of a weights file, a ``_seg.npy``, a label image, a baseline or Cellpose's
        ``run.log``; ``KEY`` or ``KEY/REPEAT`` of the store; or a name that Cellpose is given for a
        model.
    log : str or Path, optional
        Cellpose's ``run.log`` of the run that made masks; what it records is added.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Description
        What it is, and as what the installed Cellpose would load it.

    Raises
    ------
    BadInput
        If it is a folder, a file that is not there or cannot be read, or a repeat that is not
        stored; or if a log is given for what is no masks.
    """
    described = _described(reference, Path(reference), Store(store))
    if log is None:
        return described
    if described.recorded is None:
        raise BadInput(f"--log is {log}, and {reference} holds no masks that it could be of")
    record = described.recorded.with_more_of(log_record(Path(log)))
    return replace(described, recorded=record, commands=recorded_commands(record))


def _described(reference: str, path: Path, store: Store) -> Description:
    kind = kind_of(path)
    if kind == "folder":
        raise BadInput(f"{path} is a folder; expected one file in it, or a KEY of the store")
    if not path.exists():
        return _of_run_or_name(reference, store)
    if is_run_log(path):
        record = log_record(path)
        return Description("run.log", recorded=record, commands=recorded_commands(record))
    if kind == "masks":
        return _of_masks(path)
    if kind == "baseline":
        details = baseline_file.read(path).record
        return Description("baseline", digest=file_digest(path), details=details)
    return _of_weights(path)


def _of_weights(path: Path) -> Description:
    """Describe a file of tensors: a network, a checkpoint with one, or what has none."""
    content = open_file(path)
    beside = dict(descriptions_of(content))
    if not content.network:
        return Description(
            "tensors", digest=_digest_of(path), details=beside, note=content.why_no_network
        )
    tensors = content.network
    saved_by_torch = _is_saved_by_torch(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    network = recognise(shapes, saved_by_torch=saved_by_torch)
    details = {"format": "PyTorch" if saved_by_torch else "safetensors", "network": network.network}
    under = content.under
    if under:
        details |= {"found_under": under, **beside}
    loads_as = network.loads_as
    note = network.note
    obstacle = _obstacle(tensors.values(), under, loads_as)
    if obstacle is not None:
        loads_as = None
        note = obstacle
    digest = _digest_of(path)
    return Description(
        "weights",
        generation=network.generation,
        dtype=", ".join(sorted({tensor.dtype for tensor in tensors.values()})),
        n_parameters=sum(tensor.n for tensor in tensors.values()),
        digest=digest,
        loads_as=loads_as,
        official_name=OFFICIAL_NAMES.get(digest),
        details=details,
        note=note,
    )


def _digest_of(path: Path) -> str:
    """Of a file; of a checkpoint of the lab, of the file of its tensors."""
    return file_digest(path / checkpoints.STATE if path.is_dir() else path)


def _is_saved_by_torch(path: Path) -> bool:
    """Whether a file begins as a zip or a pickle, which ``torch.save`` writes or used to write."""
    if path.is_dir():
        return False
    with path.open("rb") as stream:
        return stream.read(2) in (b"PK", b"\x80\x02")


def _obstacle(tensors: Iterable[Tensor], under: str, loads_as: str | None) -> str | None:
    """Why Cellpose refuses a file whose network it would take; None where it does not."""
    if under:
        return CHECKPOINT.format(key=under)
    if loads_as and any(tensor.stored_as.startswith("module.") for tensor in tensors):
        return OF_SEVERAL_GPUS
    return None


def _of_masks(path: Path) -> Description:
    seg = read_seg(path) if path.name.endswith(SEG_ENDING) else None
    masks = read_labels(path) if seg is None else seg.masks
    renumbered = canonical(masks)
    details: dict[str, Any] = {
        "shape": masks.shape,
        "n_objects": int(renumbered.max(initial=0)),
        "largest_label": int(masks.max(initial=0)),
        "canonical_digest": array_digest(renumbered),
    }
    if seg is None:
        doubtful = doubt(masks)
        record = label_image_record(path, masks)
        return Description(
            "label image",
            dtype=str(masks.dtype),
            digest=file_digest(path),
            details=details,
            note="" if doubtful is None else f"it has {doubtful}",
            recorded=record,
            commands=recorded_commands(record),
        )
    recorded = {name: value for name, value in seg.settings.items() if name != "ismanual"}
    details["settings"] = recorded
    drawn = seg.settings.get("ismanual")
    details["n_manual"] = sum(map(bool, drawn)) if isinstance(drawn, list) else 0
    record = seg_file_record(path, seg)
    return Description(
        "_seg.npy",
        digest=file_digest(path),
        details=details,
        recorded=record,
        commands=recorded_commands(record),
    )


def _of_run_or_name(reference: str, store: Store) -> Description:
    try:
        repeat = store.find(reference)
    except BadInput as error:
        if Path(reference).is_absolute() or Path(reference).suffix:
            raise no_such_file(reference) from error
        if "/" in reference:
            raise
        if known_to_cellpose(reference):
            return Description("name", loads_as="itself", note="one of this Cellpose's models")
        note = (
            "neither a file nor a stored run nor a model of this Cellpose, which then takes its "
            "default; only its log says so"
        )
        return Description("name", loads_as=generation_of().default_network, note=note)
    return _of_run(repeat)


def _of_run(repeat: Repeat) -> Description:
    manifest = repeat.manifest
    details = {
        "name": repeat.name,
        "label": repeat.spec.label,
        "task": repeat.spec.task,
        "n_images": len(manifest.masks),
        "n_objects": manifest.n_objects,
    }
    record = run_record(repeat)
    of_weights = Description("run", note="it only segmented and holds no weights")
    if repeat.weights is not None:
        of_weights = _of_weights(repeat.weights)
    return replace(
        of_weights,
        kind="run",
        details={**details, **of_weights.details},
        recorded=record,
        commands=recorded_commands(record),
    )
