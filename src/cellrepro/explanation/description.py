"""What a file, a stored run or the name of a network is: the answer of `describe`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cellrepro.explanation.baseline_limits import limits_line
from cellrepro.explanation.commands import Commands, command_lines
from cellrepro.explanation.file_kinds import NOT_USED
from cellrepro.explanation.recorded_cause import STRONGEST_FIRST
from cellrepro.explanation.recorded_settings import DRAWN, FILENAME, REMOVED, RecordedSettings
from cellrepro.explanation.setting_meanings import recorded_in_words
from cellrepro.explanation.settings_of_both import (
    is_usual_value,
    network_diameter,
    setting_in_words,
    setting_text,
    value_text,
)
from cellrepro.images.image_axes import size_text
from cellrepro.model.known_weights import AS_IT_IS
from cellrepro.store.baseline_file import cells_by_image, held_text
from cellrepro.store.installed_versions import PACKAGES
from samebits.libraries import has_library
from samebits.results import Result, Row, table_lines
from samebits.words import amount, grouped, some

DescribedKind = Literal[
    "weights",
    "tensors",
    "image",
    "_seg.npy",
    "label image",
    "outlines",
    "baseline",
    "run",
    "run.log",
    "name",
    "other",
]


_DIGESTS = {"digest": "SHA-256", "canonical_digest": "SHA-256 of the cells, whatever their numbers"}
_IN_FIRST_LINE = frozenset(
    {"shape", "axes", "n_objects", "n_pieces", "n_channels", "smallest", "largest"}
    | {"name", "label", "task", "n_images"}
)
"""Details of an image, masks, outlines or a run that their first line says."""
_OF_RUN = {
    "verdict": "verdict",
    "repeats": "repeats",
    "epochs": "epochs",
    "learning_rate": "learning rate at its peak",
    "started": "started",
    "computed_on": "computed on",
}
"""Details of a run that come before those of its weights, with their titles."""
_NOT_LOADED = "not this file (see the note)"
_MOST_USUAL = 4
_FIRST_USUAL = ("cellprob_threshold", "flow_threshold", "min_size", "niter")
_MOST_LIBRARIES = 3
_LIBRARIES = frozenset({"python", *PACKAGES}) - {"cellpose"}
"""What a record of the lab names beside the version of Cellpose."""
_MOST_PLANES = 12
_OF_EDITS = {DRAWN: "drawn", REMOVED: "removed"}


@dataclass(frozen=True, repr=False)
class Description(Result):
    """What a file is; what does not apply is None."""

    kind: DescribedKind
    """``weights``, ``tensors`` (a file of tensors without a network), ``image`` (a picture, in
    which no masks are found), ``label image``, ``_seg.npy``, ``outlines`` of cells, ``baseline``,
    ``run``, ``run.log``, ``name`` or ``other``: the details then say ``what`` it is, and the
    ``next`` step."""
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
    file: str | None = None
    """Name of the file; None of a run, and of the name of a network."""
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
        parts = [self._first_line()]
        if self.loads_as is not None and self.loads_as != AS_IT_IS:
            parts.append(f"the installed Cellpose loads {self.loads_as}")
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
        """Say what it is and what is in it, a line for each fact; digests come last."""
        if self.kind == "other":
            step = self.details["next"]
            return [
                str(self.details["what"]),
                f"  {step}" if step == NOT_USED else f"  next: {step}",
            ]
        if self.kind == "baseline":
            return [*_baseline_lines(self.details), f"  {_DIGESTS['digest']}: {self.digest}"]
        lines = [self._first_line()]
        if self.says_commands and self.kind != "image":
            lines.append("  to make it again:")
            lines += command_lines(self.recorded, self.commands)
        for name, value in self._shown().items():
            if isinstance(value, Mapping):
                lines += [f"  {key}: {part}" for key, part in value.items()]
            elif value is not None:
                lines.append(f"  {name.replace('_', ' ')}: {value}")
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.recorded is not None and self.kind != "run":  # whose settings stand in the store
            lines += _value_lines(self.recorded, self.file)
        digests = {"digest": self.digest, **self.details}
        lines += [f"  {words}: {digests[n]}" for n, words in _DIGESTS.items() if digests.get(n)]
        return lines

    def _first_line(self) -> str:
        """What a reader asks first: the kind, and of masks and images how much there is of it."""
        details = self.details
        if self.kind == "image":
            channels = amount(details["n_channels"], "channel")
            size = size_text(details["shape"], details["axes"])
            values = (
                f"values {setting_text(details['smallest'])} to {setting_text(details['largest'])}"
            )
            return f"image: {size}, {channels}, {self.dtype}, {values}; no masks found in it"
        if self.kind == "outlines":
            return f"outlines of {amount(details['n_objects'], 'cell')}: {details['format']}"
        if "shape" in details and "n_objects" in details:
            size = size_text(details["shape"])
            if "n_pieces" in details:
                numbers = amount(details["n_objects"], "number")
                return f"{self.kind}: {numbers} in {details['n_pieces']} separate pieces, {size}"
            return f"{self.kind}: {amount(details['n_objects'], 'cell')} in {size}"
        if self.kind == "run":
            cells = amount(details["n_objects"], "cell")
            images = amount(details["n_images"], "image")
            return f"run {details['name']}: {details['label']}; {cells} in {images}"
        if self.kind == "name":
            if "what" in details:
                return str(details["what"])
            is_known = self.loads_as == AS_IT_IS
            return (
                "name of a network"
                if is_known
                else "no file, run or network of this Cellpose has this name"
            )
        return self._weights_line() if self.kind == "weights" else self.kind

    def _weights_line(self) -> str:
        if self.official_name:
            return f"weights of {self.official_name}, a network of Cellpose {self.generation}"
        if self.generation is None:
            return "weights of a network that Cellpose does not have"
        kind = self.details.get("network")
        return f"weights of a network of Cellpose {self.generation}{f': {kind}' if kind else ''}"

    def _shown(self) -> dict[str, object]:
        """Facts by their names in a terminal; None stands for no line."""
        n_parameters = self.n_parameters
        of_network = n_parameters is not None or self.kind == "name"
        loads_as = self.loads_as or (_NOT_LOADED if has_library("cellpose") else None)
        if loads_as == AS_IT_IS:
            loads_as = "the network it holds" if n_parameters is not None else None
        left_out = {"settings", "what", "n_manual", "largest_label", *_DIGESTS}
        if self.kind == "weights":
            left_out.add("network")
        if self.kind == "outlines":
            left_out.add("format")
        if self.kind in ("image", "outlines", "label image", "_seg.npy", "run"):
            left_out |= _IN_FIRST_LINE
        details = {name: value for name, value in self.details.items() if name not in left_out}
        by_plane = details.pop("n_objects_by_plane", None)
        largest = self.details.get("largest_label")
        numbers = f"up to {largest}" if largest else None
        if numbers and self.dtype:
            numbers += f", {self.dtype}"
        of_run = {title: details.pop(name) for name, title in _OF_RUN.items() if name in details}
        return {
            **(of_run if self.kind == "run" else {}),
            "type of its parameters": self.dtype if n_parameters is not None else None,
            "parameters": grouped(n_parameters) if n_parameters else n_parameters,
            "the installed Cellpose loads": loads_as if of_network else None,
            "cells in each plane": by_plane and some(list(map(str, by_plane)), _MOST_PLANES),
            **details,
            "numbers of the cells": numbers,
        }


def _baseline_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """What a baseline holds, what later masks are held to, and what made it."""
    yield f"baseline: {held_text(record)}"
    yield from table_lines(cells_by_image(record), indent=4)
    yield f"  {limits_line(record.get('limits', {}), record.get('proposed_from'))}"
    for tolerance in record.get("reproducibility_tolerance", ()):
        ppm = tolerance["mismatched_elements_per_million"]
        yield f"  as a tolerance for bioimage.io: {grouped(ppm)} differing pixels per million"
    if record.get("weights"):
        yield f"  SHA-256 of the weights: {record['weights']}"
    versions = [f"{name} {version}" for name, version in record.get("versions", {}).items()]
    if versions:
        yield f"  with: {some(versions, _MOST_LIBRARIES)} (--json has them all, and the spec)"


def _rank(name: str) -> int:
    """What decides most comes first, names and versions last."""
    return STRONGEST_FIRST.index(name) if name in STRONGEST_FIRST else len(STRONGEST_FIRST)


def _value_lines(record: RecordedSettings, file: str | None) -> Iterator[str]:
    """Say what files record of one result: edits by hand, then settings, the usual ones in one."""
    sources = Counter(entry.source for entry in record.values.values())
    main = max(sources, key=sources.__getitem__, default="")
    if record.written_by:
        where = f", recorded in {main}" if len(sources) > 1 or main != file else ""
        yield f"  written by: {record.written_by}{where}"
    edits = {name: record.value(name) for name in _OF_EDITS if name in record.values}
    if edits:
        cells = [
            f"{amount(int(str(n)), 'cell')} {_OF_EDITS[name]}" for name, n in edits.items() if n
        ]
        yield f"  edits by hand: {', '.join(cells) or 'none'}"
    usual: list[str] = []
    libraries: list[str] = []
    for name in sorted(record.values, key=_rank):
        if name in edits:
            continue
        entry = record.values[name]
        if name in _LIBRARIES:
            libraries.append(f"{name} {entry.value}")
            continue
        source = f" ({entry.source})" if entry.source != main else ""
        text = f"{value_text(name, entry.value)}{source}"
        if name == "diameter":
            unit = "" if entry.value is None else " pixels"
            unset_as = network_diameter(name, [record.generation])
            value = setting_in_words(name, entry.value, unset_as=unset_as)
            yield f"  diameter: {value}{unit}{source}"
        elif is_usual_value(name, entry.value, record.generation):
            usual.append(f"{name} {text}")
        else:
            yield f"  {'image' if name == FILENAME else recorded_in_words(name)}: {text}"
    if usual:
        usual.sort(key=lambda text: text.split()[0] not in _FIRST_USUAL)
        yield f"  as usual in Cellpose: {some(usual, _MOST_USUAL)}"
    if libraries:
        yield f"  with: {some(libraries, _MOST_LIBRARIES)} (--json has them all)"
    yield from (f"  note: {remark}" for remark in record.remarks)
