"""Describe a file, such as weights, masks or a baseline; a stored run; or the name of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.number_remarks import number_remarks
from cellrepro.comparison.state_comparison import descriptions_of
from cellrepro.comparison.weight_reading import open_file
from cellrepro.comparison.weight_tensors import Tensor, pieces, values
from cellrepro.digests.digests import array_digest, file_digest
from cellrepro.digests.torch_files import is_saved_by_torch
from cellrepro.errors import BadInput, no_such_file
from cellrepro.explanation.commands import Commands, recorded_commands
from cellrepro.explanation.file_kinds import FileKind, may_hold_weights, recognised, unknown
from cellrepro.explanation.hand_edits import hand_edits
from cellrepro.explanation.mask_file_record import label_image_record, seg_file_record
from cellrepro.explanation.recorded_lines import command_lines, value_lines
from cellrepro.explanation.recorded_settings import RecordedSettings
from cellrepro.explanation.references import MASK_ENDINGS, reference_kind
from cellrepro.explanation.run_log import is_run_log, log_record
from cellrepro.explanation.run_record import run_commands, run_record
from cellrepro.images.decoding import SEG_ENDING
from cellrepro.images.image_file import read_labels
from cellrepro.images.seg_file import read_seg
from cellrepro.libraries import has_library
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.known_weights import (
    CHECKPOINT,
    OF_SEVERAL_GPUS,
    OFFICIAL_NAMES,
    known_to_cellpose,
    recognise,
)
from cellrepro.results import Result, Row
from cellrepro.spec import defaults
from cellrepro.store import baseline_file, checkpoints
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import grouped, joined

_PARAMETERS_AT_A_TIME = 2**18

DescribedKind = Literal[
    "weights", "tensors", "_seg.npy", "label image", "baseline", "run", "run.log", "name", "other"
]


@dataclass(frozen=True, repr=False)
class Description(Result):
    """What a file is; what does not apply is None."""

    kind: DescribedKind
    """``weights``, ``tensors`` (a file of tensors without a network), ``label image``,
    ``_seg.npy``, ``baseline``, ``run``, ``run.log``, ``name`` or ``other``: the details then say
    ``what`` it is, and the ``next`` step."""
    generation: str | None = None
    """Generation of Cellpose: ``2 or 3``, ``4 (SAM)``, ``4 (DINO)``."""
    dtype: str | None = None
    """Type of the numbers in weights or in a label image."""
    n_parameters: int | None = None
    """Numbers in all tensors of the weights."""
    digest: str | None = None
    """SHA-256 of the file; of a run, of its weights."""
    loads_as: str | None = None
    """As what the installed Cellpose would load it: ``itself``, the name of another network that it
    takes without a word, ``a partly random network``, or None where it refuses it."""
    official_name: str | None = None
    """Name of Cellpose's published weights that have this digest."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else is known of this kind, by name."""
    note: str = ""
    """Why it does not load, or what deserves attention."""
    recorded: RecordedSettings | None = None
    """What the files of masks or of a run record of how they were made."""
    commands: Commands | None = None
    """How Cellpose is called with that; None where too little is recorded."""
    says_commands: bool = field(default=False, repr=False)
    """Whether its lines end with these calls."""

    def sentence(self) -> str:
        """Say what it is, and what Cellpose makes of it."""
        if self.kind == "other":
            return f"{self.details['what']}; {self.details['next']}"
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

    def lines(self) -> list[str]:
        """Give a line for each fact."""
        if self.kind == "other":
            return [str(self.details["what"]), f"  next: {self.details['next']}"]
        of_cellpose = f" {self.official_name} of Cellpose" if self.official_name else ""
        lines = [f"{self.kind}{of_cellpose}"]
        for name, value in self._shown().items():
            if isinstance(value, Mapping):
                lines += [f"  {key}: {part}" for key, part in value.items()]
            elif value is not None:
                lines.append(f"  {name.replace('_', ' ')}: {value}")
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.recorded is not None and self.kind != "run":  # whose settings stand in the store
            lines += value_lines(self.recorded)
        if self.says_commands:
            lines += command_lines(self.recorded, self.commands)
        return lines

    def _shown(self) -> dict[str, object]:
        """Facts by their names in a terminal; None stands for no line."""
        n_parameters = self.n_parameters
        of_network = n_parameters is not None or self.kind == "name"
        loads_as = self.loads_as or ("not at all" if has_library("cellpose") else None)
        return {
            "Cellpose": self.generation or ("none" if n_parameters else None),
            "dtype": self.dtype,
            "parameters": grouped(n_parameters) if n_parameters else n_parameters,
            "SHA-256": self.digest,
            "loads as": loads_as if of_network else None,
            **{name: value for name, value in self.details.items() if name != "settings"},
        }


def describe(
    reference: str, *, log: str | Path | None = None, store: str | Path = defaults.STORE
) -> Description:
    """Describe a file, a run of the store, or the name of a network.

    ``log`` is Cellpose's log of the run that made masks; what it records is added.
    """
    described = _described(reference, Path(reference), Store(store))
    if log is None:
        return described
    if described.recorded is None:
        raise BadInput(f"--log is {log}, and {reference} holds no masks that it could be of")
    record = described.recorded.with_more_of(log_record(Path(log)))
    return replace(described, recorded=record, commands=recorded_commands(record))


def _described(reference: str, path: Path, store: Store) -> Description:
    if is_run_log(path):
        record = log_record(path)
        return Description("run.log", recorded=record, commands=recorded_commands(record))
    if path.suffix.lower() not in MASK_ENDINGS and not checkpoints.is_one(path):
        other = recognised(path)
        if other is not None:
            return _of_other(other)
    kind = reference_kind(path)
    if kind == "folder":
        raise BadInput(f"{path} is a folder; expected one file in it, or a KEY of the store")
    if not path.exists():
        return _of_run_or_name(reference, store)
    if kind == "masks":
        return _of_masks(path)
    if kind == "baseline":
        details = baseline_file.read(path).record
        return Description("baseline", digest=file_digest(path), details=details)
    if path.is_file() and not may_hold_weights(path):
        return _of_other(unknown(path))
    return _of_weights(path)


def _of_other(kind: FileKind) -> Description:
    return Description("other", details={"what": kind.name, "next": kind.next_step})


def _of_weights(path: Path) -> Description:
    """Describe a file of tensors: a network, a checkpoint with one, or what has none."""
    content = open_file(path)
    beside_network = dict(descriptions_of(content))
    if not content.network:
        return Description(
            "tensors", digest=_digest_of(path), details=beside_network, note=content.why_no_network
        )
    tensors = content.network
    saved_by_torch = is_saved_by_torch(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    network = recognise(shapes, saved_by_torch=saved_by_torch)
    details: dict[str, Any] = {
        "format": "PyTorch" if saved_by_torch else "safetensors",
        "network": network.network,
        **_diameters(tensors),
    }
    under = content.under
    if under:
        details |= {"found_under": under, **beside_network}
    loads_as = network.loads_as
    note = network.note
    obstacle = _obstacle(tensors.values(), under, loads_as)
    if obstacle is not None:
        loads_as = None
        note = obstacle
    note = "; ".join(filter(None, (_not_finite(tensors.values()), note)))
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


def _diameters(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The mean diameters that a network carries: of its training cells, and its own."""
    diameters = {}
    for name, of in (("diam_labels", "training_cells"), ("diam_mean", "network")):
        tensor = tensors.get(name)
        if tensor is not None and tensor.n == 1:
            (diameter,) = values(tensor.read(0, 1), tensor.dtype).tolist()
            diameters[f"mean_diameter_of_the_{of.replace(' ', '_')}"] = (
                f"{diameter:g} pixels ({name})"
            )
    return diameters


def _not_finite(tensors: Iterable[Tensor]) -> str:
    """Say how many parameters are NaN or infinite; empty where none is."""
    n_all = n_nan = n_infinite = 0
    for tensor in tensors:
        n_all += tensor.n
        if not tensor.is_real:
            continue
        for (bits,) in pieces([tensor], _PARAMETERS_AT_A_TIME):
            numbers = values(bits, tensor.dtype)
            n_nan += int(np.count_nonzero(np.isnan(numbers)))
            n_infinite += int(np.count_nonzero(np.isinf(numbers)))
    parts = [f"{n} {what}" for n, what in ((n_nan, "NaN"), (n_infinite, "infinite")) if n]
    if not parts:
        return ""
    return (
        f"of {n_all} parameters {joined(parts)}: its training has diverged, and it finds nothing "
        "that means anything; train with a lower learning rate"
    )


def _digest_of(path: Path) -> str:
    """SHA-256 of a file; for a checkpoint of the lab, of the tensors in it."""
    return file_digest(path / checkpoints.STATE if path.is_dir() else path)


def _obstacle(tensors: Iterable[Tensor], under: str, loads_as: str | None) -> str | None:
    """Say why Cellpose refuses a file whose network it would load; None where it takes it."""
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
        record = label_image_record(path, masks)
        return Description(
            "label image",
            dtype=str(masks.dtype),
            digest=file_digest(path),
            details=details,
            note="; ".join(number_remarks(masks)),
            recorded=record,
            commands=recorded_commands(record, is_stack=masks.ndim > 2),
        )
    recorded = {name: value for name, value in seg.settings.items() if name != "ismanual"}
    if recorded.get("manual_changes"):  # the pixels of each, a hundred thousand characters
        recorded["manual_changes"] = [f"{edit.kind} at {edit.place}" for edit in hand_edits(seg)]
    details["settings"] = recorded
    drawn = seg.settings.get("ismanual")
    details["n_manual"] = sum(map(bool, drawn)) if isinstance(drawn, list) else 0
    record = seg_file_record(path, seg)
    return Description(
        "_seg.npy",
        digest=file_digest(path),
        details=details,
        note="; ".join(number_remarks(masks)),
        recorded=record,
        commands=recorded_commands(record, is_stack=masks.ndim > 2),
    )


def _of_run_or_name(reference: str, store: Store) -> Description:
    try:
        repeat = store.find(reference)
    except BadInput as error:
        if Path(reference).is_symlink():
            raise BadInput(
                f"{reference} is a link to {Path(reference).readlink()}, which is not there; give "
                "the file itself, or make the link anew"
            ) from error
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
        commands=run_commands(repeat),
    )
