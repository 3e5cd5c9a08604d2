"""One of two results of an image: its masks, and what is recorded of how they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cellrepro.errors import CellreproError
from cellrepro.explanation.conditions import IMAGE_CROP, MODEL, VERSION, Condition, Crop
from cellrepro.explanation.hand_edits import HandEdit
from cellrepro.explanation.image_readings import reading_of, received_pixels
from cellrepro.explanation.mask_file_record import recorded_masks
from cellrepro.explanation.recorded_network import OtherNetwork, recorded_network, usual_network
from cellrepro.explanation.recorded_settings import (
    MODEL_DIGEST,
    NOT_RECORDED,
    GenerationNumber,
    RecordedSettings,
    generation_number,
)
from cellrepro.explanation.run_log import USUAL_NAME, log_record
from cellrepro.explanation.run_record import run_record
from cellrepro.explanation.search_values import TRIED
from cellrepro.explanation.trials import n_cells_in
from cellrepro.images.decoding import SEG_ENDING
from cellrepro.images.outlines import Outlines
from cellrepro.model.cellpose_generation import known_version
from cellrepro.model.weight_sources import ModelSource, find_model, started_from
from cellrepro.process.cellpose_versions import is_installed, python_of
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput
from samebits.results import derived
from samebits.words import amount

SideKind = Literal[
    "stored run", "_seg.npy", "label image", "label image with its record", "outlines"
]


@dataclass(frozen=True)
class Side:
    """One of two results of an image."""

    name: str
    """The path of the file, or ``KEY/MACHINE/REPEAT`` of a run."""
    kind: SideKind
    """Stored run, _seg.npy, label image with or without its record, outlines."""
    masks: np.ndarray = field(repr=False)
    """0 is background."""
    known: Condition = field(repr=False)
    """Settings by name; one that is missing nobody recorded."""
    recorded: Mapping[str, Any]
    """What is recorded and cannot be varied: restoration, changes by hand, the machine, and the
    version of Cellpose as long as that is not provided."""
    model: ModelSource | None = field(default=None, repr=False)
    """The network that made it, where that is recorded."""
    pixels_read: np.ndarray | None = field(default=None, repr=False)
    """The image as a stored run read it."""
    record: RecordedSettings = field(default_factory=RecordedSettings, repr=False)
    """The same values, each with the file that records it."""
    edits: tuple[HandEdit, ...] = field(default=(), repr=False)
    """Cells that were drawn or removed by hand."""
    run: Repeat | None = field(default=None, repr=False)
    """The stored run that it is of."""
    outlines: Outlines | None = field(default=None, repr=False)
    """From which the masks were drawn, where the file holds no label image."""
    log: Path | None = field(default=None, repr=False)
    """Cellpose's log that was given as that of its run."""

    @derived
    def written_by(self) -> str:
        """What wrote its files; empty where they do not tell."""
        return self.record.written_by

    @derived
    def generation(self) -> GenerationNumber | None:
        """Generation of that Cellpose: ``2`` (or older), ``3`` or ``4``."""
        return self.record.generation

    @derived
    def sources(self) -> dict[str, str]:
        """The file that records a value, by the value's name."""
        return {name: entry.source for name, entry in self.record.values.items()}

    @derived
    def remarks(self) -> tuple[str, ...]:
        """What a reader has to know beyond the values, one sentence each."""
        return self.record.remarks

    @property
    def n_cells(self) -> int:
        """How many cells it has."""
        return n_cells_in(self.masks)

    def against_record(self, name: str, value: object) -> bool:
        """Whether a value with which it was made again is another one than its file records."""
        is_found = name in TRIED and name in self.known
        return is_found and self.known[name] != value

    def drawn_like(self, other: Side) -> Side:
        """Draw its outlines, if it is made of such, in an image of the size of the other's."""
        if self.outlines is None:
            return self
        shape = other.masks.shape
        if other.outlines is not None:
            shape = tuple(map(max, self.masks.shape, shape))
        drawn = self.outlines.drawn(shape)
        side = replace(self, masks=drawn.labels)
        return side.with_remark("; ".join(drawn.notes))

    def in_crop(self, crop: Crop) -> Side:
        """Add the part of the image that it shows to what is known."""
        return replace(self, known={**self.known, IMAGE_CROP: crop})

    def with_reading_of(self, image: np.ndarray) -> Side:
        """Add how a run or a script read this image, (Y, X) or (Y, X, C), to what is known."""
        if self.pixels_read is not None:
            return replace(self, known={**self.known, **reading_of(image, self.pixels_read)})
        received = received_pixels(self.record, image)
        return replace(self, known={**self.known, **received.reading}).with_remark(received.remark)

    def with_recorded_network(self, store: Store) -> Side:
        """Add the network that its files record, where that is to be found."""
        if self.model is not None:
            return self
        network = recorded_network(self.record, store)
        return replace(self, model=network.source).with_remark(network.remark)

    def with_remark(self, remark: str) -> Side:
        """Add a sentence for the reader; an empty one adds nothing."""
        if not remark:
            return self
        record = replace(self.record, remarks=(*self.record.remarks, remark))
        return replace(self, record=record)

    def network_unlike(self, given: ModelSource, store: Store, letter: str) -> OtherNetwork | None:
        """The network that it records, if that is surely another one than a given one."""
        source = self.model or recorded_network(self.record, store).source
        name = self.record.value(MODEL) if source is None else source.label
        digest = self.record.value(MODEL_DIGEST) if source is None else source.digest
        if given.digest is None:
            is_other = source is not None and source.label != given.label
        else:
            is_other = digest not in (None, NOT_RECORDED, given.digest)
        if not is_other:
            return None
        return OtherNetwork(letter, str(name), given.label, is_here=source is not None)

    @property
    def version(self) -> str | None:
        """Version of Cellpose; the first of a generation where that alone is known."""
        version = self.known.get(VERSION) or self.recorded.get(VERSION)
        if version is not None:
            return str(version)
        generation = self.record.generation
        if generation in (None, generation_number(known_version())):
            return None
        return f"{generation}.0"

    def with_log(self, log: str | Path | None) -> Side:
        """Add what Cellpose's log of the same run records; its own files count first."""
        if log is None:
            return self._with_log_mentioned()
        record = self.record.with_more_of(log_record(Path(log)))
        return replace(
            self, known=record.known, recorded=record.beyond, record=record, log=Path(log)
        )

    def _with_log_mentioned(self) -> Side:
        """Say of one without a record that a log lies beside it, which may be of any run."""
        beside = Path(self.name).with_name(USUAL_NAME)
        if self.record.tells_settings or self.kind == "stored run" or not beside.is_file():
            return self
        remark = (
            f"{beside} is not used, as nothing says that it is of this run; --log-a or --log-b "
            "takes it for A or B"
        )
        return self.with_remark(remark)

    def with_cellpose_provided(self) -> Side:
        """Install the Cellpose that made it, if need be, in an environment of its own.

        Its version can then be varied; where it cannot be installed, it stays a mere record.
        """
        version = self.recorded.get(VERSION)
        if version is None:
            return self
        try:
            if not is_installed(version):
                python_of(version)
        except CellreproError:
            return self
        recorded = {name: value for name, value in self.recorded.items() if name != VERSION}
        return replace(self, known={**self.known, VERSION: version}, recorded=recorded)

    def condition(self, sources: Mapping[str, ModelSource]) -> Condition:
        """What is known, with the label of its network if that is among the sources."""
        if self.model is None or self.model.label not in sources:
            return self.known
        return {**self.known, MODEL: self.model.label}


def read_side(
    reference: str, *, image: str | None, store: Store, with_network: bool = True
) -> Side:
    """Read the masks of one of two results, and what is recorded of how they were made."""
    path = Path(reference)
    if path.is_dir():
        raise BadInput(
            f"{reference} is a folder; expected one file with masks, as two results of one image "
            "are explained: give a file of each folder. `cellrepro compare` compares whole folders"
        )
    if not path.exists():
        return _of_run(reference, image, store, with_network=with_network)
    return _of_file(path)


def networks(sides: Sequence[Side], model: str | None, store: Store) -> dict[str, ModelSource]:
    """Find the networks with which two sides are made again, by label, the usual one first."""
    if model is not None:
        source = find_model(model, store)
        return {source.label: source}
    of_sides = [side.model for side in sides if side.model is not None]
    by_digest = {source.digest or source.label: source for source in of_sides}
    if not by_digest:
        remarks = "; ".join(
            f"{side.name}: {recorded_network(side.record, store).remark}" for side in sides
        )
        raise BadInput(f"no network is here with which the two can be made again. {remarks}")
    return {source.label: source for source in by_digest.values()}


def with_usual_networks(a: Side, b: Side) -> tuple[Side, Side, str]:
    """Give both sides the default network of their Cellpose, where neither records one."""
    if any(MODEL in side.recorded or side.model is not None for side in (a, b)):
        return a, b, ""
    both_recorded = a.version is not None and b.version is not None
    completed = []
    remarks = []
    for side, other in ((a, b), (b, a)):
        decisive = side if both_recorded or side.version is not None else other
        network = usual_network(decisive.version, is_provided=VERSION in decisive.known)
        completed.append(replace(side, model=network.source))
        remarks.append(network.remark)
    return completed[0], completed[1], "; ".join(dict.fromkeys(remarks))


def _of_file(path: Path) -> Side:
    file = recorded_masks(path)
    kind: SideKind = "label image with its record" if file.record.known else "label image"
    if path.name.endswith(SEG_ENDING):
        kind = "_seg.npy"
    if file.outlines is not None:
        kind = "outlines"
    side = _side(str(path), kind, file.masks, file.record)
    return replace(side, edits=file.edits, outlines=file.outlines)


def _of_run(reference: str, image: str | None, store: Store, *, with_network: bool) -> Side:
    repeat = store.find(reference)
    manifest = repeat.manifest
    name = image
    if name is None and len(manifest.masks) == 1:
        name = next(iter(manifest.masks))
    if name not in manifest.masks:
        asked = "" if name is None else f" no image {name!r};"
        raise BadInput(
            f"{repeat.name} has{asked} {amount(len(manifest.masks), 'image')}; expected --image "
            f"with the file of one of {', '.join(manifest.masks)}"
        )
    side = _side(repeat.name, "stored run", repeat.masks(name), run_record(repeat))
    side = replace(side, run=repeat)
    if not with_network:
        return side
    trained = manifest.weights is not None
    return replace(
        side,
        model=find_model(repeat.name, store) if trained else started_from(repeat, store),
        pixels_read=store.image(repeat.spec.images_digest, name),
    )


def _side(
    name: str,
    kind: SideKind,
    masks: np.ndarray,
    record: RecordedSettings,
) -> Side:
    return Side(name, kind, masks, known=record.known, recorded=record.beyond, record=record)
