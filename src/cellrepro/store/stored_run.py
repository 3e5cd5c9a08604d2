"""Finished runs in a store: a spec with its repeats, and the files of each repeat."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from cellrepro.errors import Damaged
from cellrepro.progress import note_once
from cellrepro.spec.spec import Spec
from cellrepro.store import store_paths
from cellrepro.store.manifest import Manifest, ResultSummary
from cellrepro.store.tiff_pages import check_pages_of_file
from cellrepro.store.unchanged import RESTORE, ReadingBudget, refuse_damaged, repair_of
from cellrepro.wrong_fields import wrong_fields
from samebits.digests import array_digest
from samebits.errors import BadInput
from samebits.shown_text import short

MANIFEST = "manifest.json"
SPEC = "spec.json"
WEIGHTS = "weights.safetensors"
NOTEBOOK = "notebook.ipynb"

Record = TypeVar("Record")
Model = TypeVar("Model", bound=BaseModel)

MOST_RECORD_BYTES = 2**28
"""The largest manifest or spec that is read; a manifest has about a kilobyte for each image."""


def read_record(path: Path, parse: Callable[[bytes], Record]) -> Record:
    """Read a JSON file of a store; the error names the file where it cannot be parsed."""
    try:
        return parse(store_paths.regular_bytes(path, most_bytes=MOST_RECORD_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
        raise BadInput(
            f"{path} is not a {path.stem} that this version of cellrepro reads ({why}); "
            f"move {path.parent} out of the store and run it again"
        ) from error


def read_spec(text: bytes) -> Spec:
    """Read a stored ``spec.json``: its types hold, the rules for new requests do not.

    A rule that is added later must not make a run unreadable that was stored before it.
    """
    try:
        return Spec.model_validate_json(text)
    except ValidationError as error:
        try:
            return _without_rules(Spec, json.loads(text))
        except (ValueError, TypeError):
            raise error from None


def _without_rules(kind: type[Model], document: object) -> Model:
    """Build a model field by field: each value is checked for its type, and no validator runs."""
    if not isinstance(document, dict):
        raise ValueError(f"{document!r:.40} in place of the fields of a {kind.__name__.lower()}")
    unknown = document.keys() - kind.model_fields.keys()
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        annotation: Any = field.annotation
        if name not in document:
            if field.is_required():
                raise ValueError(f"{name} is missing")
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            values[name] = _without_rules(annotation, document[name])
        else:
            values[name] = _adapter(annotation).validate_python(document[name])
    return kind.model_construct(**values)


@functools.lru_cache
def _adapter(annotation: Any) -> TypeAdapter:
    return TypeAdapter(annotation)


@dataclass(frozen=True)
class RepeatRecord:
    """One repeat in the JSON of a run; digests are lower-case hex."""

    index: int
    """Number of the repeat, from 0."""
    machine: str
    """Machine on which it was computed, as its folder is named."""
    weights: str | None
    """Digest of the trained weights; null where nothing was trained."""
    masks: Mapping[str, str]
    """Digests of the masks, by image."""
    objects: Mapping[str, int]
    """Number of objects, by image."""
    ap50: float | None
    """Mean AP at IoU 0.5 against the ground truth; null where there is no truth."""
    ap50_train: float | None
    """Mean AP at IoU 0.5 on training images; null where these were not segmented."""
    train_scores: Mapping[str, float | None]
    """AP at IoU 0.5, by training image."""
    seconds: float
    """Seconds of all its phases together."""


@dataclass(frozen=True)
class Repeat:
    """One finished repeat, in the store or not yet in it."""

    folder: Path

    @functools.cached_property
    def manifest(self) -> Manifest:
        """The record of what happened, read once from ``manifest.json``."""
        return read_record(self.folder / MANIFEST, Manifest.model_validate_json)

    @functools.cached_property
    def outcome(self) -> ResultSummary:
        """How it came out: the manifest if that was read, else a part that is read much faster."""
        if "manifest" in vars(self):
            return self.manifest
        return read_record(self.folder / MANIFEST, ResultSummary.model_validate_json)

    @functools.cached_property
    def spec(self) -> Spec:
        """The spec of a repeat in the store."""
        return read_record(self.folder.parents[1] / SPEC, read_spec)

    @property
    def store_folder(self) -> Path:
        """The folder of the store that it lies in."""
        return self.folder.parents[3]

    @property
    def index(self) -> int:
        """Number of the repeat, from 0."""
        return self.manifest.repeat

    @functools.cached_property
    def machine(self) -> str:
        """Machine on which it was computed, as its folder is named."""
        return self.manifest.machine.name

    @functools.cached_property
    def name(self) -> str:
        """``KEY/MACHINE/REPEAT``, as commands accept it."""
        return f"{self.manifest.key}/{self.machine}/{self.manifest.repeat}"

    @property
    def json_record(self) -> RepeatRecord:
        """Its record in JSON."""
        manifest = self.manifest
        return RepeatRecord(
            index=manifest.repeat,
            machine=self.machine,
            weights=manifest.weights.digest if manifest.weights else None,
            masks={name: record.digest for name, record in manifest.masks.items()},
            objects={name: record.n_objects for name, record in manifest.masks.items()},
            ap50=manifest.ap50,
            ap50_train=manifest.ap50_train,
            train_scores=manifest.train_scores,
            seconds=round(sum(manifest.seconds.values()), 3),
        )

    @property
    def folder_name(self) -> str:
        """``KEY/MACHINE/REPEAT`` of a repeat in the store, by its folder."""
        return "/".join(self.folder.parts[-3:])

    @functools.cached_property
    def why_unreadable(self) -> str | None:
        """Why its manifest cannot be read, or is that of another repeat; None where all is well."""
        try:
            name = self.name
        except BadInput as error:
            return str(error)
        if name == self.folder_name:
            return None
        return (
            f"{self.folder / MANIFEST} is that of {short(name)}, in the folder of "
            f"{self.folder_name}; {RESTORE}"
        )

    def file(self, name: str) -> Path:
        """The path of one of its files; raises `Damaged` if that is no longer what was stored."""
        path = store_paths.inside(self.folder, name)
        expected = self.outcome.files.get(name)
        if expected is not None:
            refuse_damaged(path, expected)
        return path

    def has(self, name: str) -> bool:
        """Whether one of its files is there; it may still be damaged."""
        return store_paths.inside(self.folder, name).exists()

    def refuse_damage(self, *, reading: ReadingBudget | None = None) -> None:
        """Raise `Damaged` if weights or masks are no longer what the manifest says.

        A file that is absent, as in a store without weights, is no damage.
        """
        outcome = self.outcome
        of_masks = [record.file for record in outcome.masks.values()]
        for name in (WEIGHTS, *of_masks):
            expected = outcome.files.get(name)
            if expected is not None:  # no path objects: `list` looks at tens of thousands
                refuse_damaged(f"{self.folder}{os.sep}{name}", expected, reading=reading)

    @functools.cached_property
    def why_damaged(self) -> str | None:
        """Why it cannot be compared as it was stored; None where all is well."""
        try:
            self.refuse_damage()
        except BadInput as error:
            return str(error)
        lost = [one.file for one in self.outcome.masks.values() if not self.has(one.file)]
        return str(self._not_there(lost[0])) if lost else None

    def _not_there(self, name: str) -> Damaged:
        path = self.folder / name
        digest = self.outcome.files.get(name)
        repair = None if digest is None else repair_of(path, digest)
        return Damaged(f"{path} is not there; {repair or RESTORE}")

    @property
    def weights(self) -> Path | None:
        """The trained weights, none for a run that only segmented; `Damaged` if they changed."""
        return self.file(WEIGHTS) if self.has(WEIGHTS) else None

    def masks_shape(self, image: str) -> tuple[int, ...]:
        """The shape of an image's masks, from the header of their file."""
        import tifffile

        with tifffile.TiffFile(self.file(self.manifest.masks[image].file)) as file:
            return file.series[0].shape

    def masks(self, image: str) -> np.ndarray:
        """The labels of one image as they were stored."""
        import tifffile

        record = self.manifest.masks[image]
        path = self.file(record.file)
        if not path.exists():
            raise self._not_there(record.file)
        try:
            check_pages_of_file(path)
            masks = tifffile.imread(path)
        except Exception as error:  # of a damaged file nearly any, struct.error among them
            raise Damaged(f"the masks {path} cannot be read ({error}); {RESTORE}") from error
        digest = array_digest(masks.astype(np.uint32, copy=False))
        if digest != record.digest:
            raise Damaged(
                f"the masks {path} are not those that were stored: the digest of their labels "
                f"begins with {digest[:12]}, and with {record.digest[:12]} in the manifest; "
                f"{RESTORE}"
            )
        return masks


def readable(repeats: Iterable[Repeat]) -> Iterator[Repeat]:
    """Pass over the repeats whose manifest cannot be read, or is not theirs, with a note for each.

    Their files may still be damaged.
    """
    for repeat in repeats:
        if repeat.why_unreadable is None:
            yield repeat
        else:
            note_once(f"passed over: {repeat.why_unreadable}")


def undamaged(repeats: Iterable[Repeat]) -> Iterator[Repeat]:
    """Leave out the damaged ones among repeats that nobody named, with a note for each.

    What lies beside those that a user asked about must not take the answer away.
    """
    for repeat in repeats:
        if repeat.why_damaged is None:
            yield repeat
        else:
            note_once(f"left out: {repeat.why_damaged}")


@dataclass(frozen=True)
class Run:
    """One spec and its stored repeats, machine by machine, in order."""

    spec: Spec
    repeats: tuple[Repeat, ...]

    @functools.cached_property
    def machines(self) -> dict[str, dict[int, Repeat]]:
        """The repeats of each machine, by its name and their index, as the folders are named."""
        by_machine: dict[str, dict[int, Repeat]] = {}
        for repeat in self.repeats:
            of_machine = by_machine.setdefault(repeat.folder.parent.name, {})
            of_machine[int(repeat.folder.name)] = repeat
        return by_machine

    def machine_with_all(self, n_repeats: int) -> str | None:
        """The first machine with repeats 0 to ``n_repeats`` - 1; imports may leave gaps."""
        indices = set(range(n_repeats))
        return next((name for name, of in self.machines.items() if indices <= of.keys()), None)

    @functools.cached_property
    def key(self) -> str:
        """The spec's key."""
        return self.spec.key

    def listed(self) -> str:
        """The repeats of each machine: ``laptop-0a1b2c3d/0, 1; a100-9f8e7d6c/0``."""
        return "; ".join(
            f"{name}/{', '.join(map(str, repeats))}" for name, repeats in self.machines.items()
        )
