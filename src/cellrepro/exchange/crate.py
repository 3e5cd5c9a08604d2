"""The RO-Crate 1.1 of an exported file, by the profile Process Run Crate, for other programs.

It says which program made which files from which images, and when. Nothing here reads it back:
manifests and passports have all that cellrepro needs. It does not depend on the time of export.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from cellrepro.exchange.archive.entry_names import PASSPORTS_FILE
from cellrepro.exchange.input_lookup import INPUTS
from cellrepro.exchange.provenance import package_url
from cellrepro.extras import absent, needs
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store.manifest import Manifest
from cellrepro.store.stored_run import MANIFEST, NOTEBOOK, SPEC, WEIGHTS, Repeat
from samebits.words import amount

if TYPE_CHECKING:
    from rocrate.model import ContextEntity, DataEntity
    from rocrate.rocrate import ROCrate

CRATE_VERSION: Literal["1.1"] = "1.1"
"""The newest version of RO-Crate that version 0.5 of the profile supports."""
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_MASKS = "masks"
_MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".ipynb": "application/x-ipynb+json",
    ".parquet": "application/vnd.apache.parquet",
    ".safetensors": "application/octet-stream",
}
"""By the ending of a file."""

Properties = dict[str, object]


@dataclass(frozen=True)
class CratePart:
    """A file of the archive."""

    name: str
    """Path inside the archive."""
    size: int
    """Bytes."""
    digest: str
    """SHA-256."""


def crate_json(repeats: Sequence[Repeat], parts: Iterable[CratePart]) -> bytes:
    """The content of ``ro-crate-metadata.json``."""
    missing = absent(["rocrate"])
    if missing:
        raise needs(missing, what="an exported file of runs")
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version=CRATE_VERSION)
    _Description(crate, {part.name: part for part in parts}).describe(repeats)
    document = crate.metadata.generate()
    document["@graph"].sort(key=lambda entity: str(entity["@id"]))
    return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n".encode()


@dataclass(frozen=True)
class _Description:
    """Fills a crate with the files and actions of repeats."""

    crate: ROCrate
    parts: Mapping[str, CratePart]

    def describe(self, repeats: Sequence[Repeat]) -> None:
        """Describe the archive, and one action for each repeat."""
        last_end = max(repeat.manifest.ended for repeat in repeats)
        root = self.crate.root_dataset
        root["name"] = f"{amount(len(repeats), 'run')} of cellrepro"
        root["description"] = (
            "Trainings and segmentations with Cellpose, with all that it takes to check them and "
            "to carry them out again: cellrepro verify FILE"
        )
        root["datePublished"] = _time(last_end)  # the time of export would change the bytes
        root["conformsTo"] = self._context(
            PROFILE, "CreativeWork", {"name": "Process Run Crate", "version": "0.5"}
        )
        root["license"] = self._context("#licence", "CreativeWork", _LICENCE)
        self._file(PASSPORTS_FILE, "Passports and receipts: statements of in-toto")
        actions = [self._action(repeat) for repeat in repeats]
        root["mentions"] = actions if len(actions) > 1 else actions[0]

    def _action(self, repeat: Repeat) -> ContextEntity:
        """The action of one repeat: software, inputs, results, times."""
        manifest = repeat.manifest
        folder = f"runs/{repeat.name}"
        used = [
            self._file(f"runs/{repeat.spec.key}/{SPEC}", "What was asked for"),
            self._images(manifest),
        ]
        made = [self._masks(f"{folder}/{_MASKS}/", manifest)]
        for name, described in _DESCRIBED.items():
            if f"{folder}/{name}" in self.parts:
                made.append(self._file(f"{folder}/{name}", described))
        properties: Properties = {
            "name": f"{repeat.spec.label}, repeat {manifest.repeat}",
            "description": f"Carried out on {manifest.device}, machine {repeat.machine}",
            "instrument": [self._application(*each) for each in _software(manifest).items()],
            "object": used,
            "result": made,
            "startTime": _time(manifest.began),
            "endTime": _time(manifest.ended),
            "actionStatus": "http://schema.org/CompletedActionStatus",
        }
        return self._context(f"#{repeat.name}", "CreateAction", properties)

    def _application(self, name: str, version: str) -> ContextEntity:
        """A program; ``version`` is empty where it is not known."""
        if not version:
            return self._context(f"pkg:pypi/{name}", "SoftwareApplication", {"name": name})
        return self._context(
            package_url(name, version),
            "SoftwareApplication",
            {"name": name, "version": version, "softwareVersion": version},
        )

    def _images(self, manifest: Manifest) -> DataEntity | ContextEntity:
        """The images: their folder if the archive has it, otherwise only their digest."""
        digest = manifest.data.digest
        folder = f"{INPUTS}/{digest[:KEY_LENGTH]}/"
        n_train = manifest.data.n_train
        n_test = manifest.data.n_test
        properties: Properties = {
            "name": "Images, and masks drawn by people where there are some",
            "description": f"{n_train} for training, {n_test} for tests",
            "sha256": digest,
        }
        if folder in self._image_folders:
            return self._folder(folder, properties)
        return self._context(f"urn:sha256:{digest}", "CreativeWork", properties)

    @cached_property
    def _image_folders(self) -> frozenset[str]:
        """The image folders in the archive."""
        inside = [name for name in self.parts if name.startswith(f"{INPUTS}/")]
        return frozenset(f"{INPUTS}/{name.split('/')[1]}/" for name in inside)

    def _masks(self, folder: str, manifest: Manifest) -> DataEntity:
        properties: Properties = {
            "name": f"Label images of {amount(len(manifest.masks), 'image')}",
            "description": f"{amount(manifest.n_objects, 'object')}; 0 is background",
            "encodingFormat": "image/tiff",
        }
        return self._folder(folder, properties)

    # -- entities

    def _file(self, name: str, described: str) -> DataEntity:
        from rocrate.model import File

        part = self.parts[name]
        ending = name[name.rindex(".") :]
        properties = {
            "name": described,
            "contentSize": str(part.size),
            "encodingFormat": _MEDIA_TYPES[ending],
            "sha256": part.digest,
        }
        return self.crate.add(File(self.crate, dest_path=name, properties=properties))

    def _folder(self, name: str, properties: Properties) -> DataEntity:
        from rocrate.model import Dataset

        return self.crate.add(Dataset(self.crate, dest_path=name, properties=properties))

    def _context(self, name: str, kind: str, properties: Properties) -> ContextEntity:
        from rocrate.model import ContextEntity

        known = self.crate.get(name)
        if known is not None:
            return known
        described = {"@type": kind, **properties}
        return self.crate.add(ContextEntity(self.crate, name, properties=described))


_LICENCE: Properties = {
    "name": "No licence is stated",
    "description": "Whoever hands these runs on says under which terms they may be used",
}
"""RO-Crate 1.1 requires a licence, which only a person can choose."""

_DESCRIBED = {
    MANIFEST: "What happened: the machine, versions, digests, times",
    WEIGHTS: "The trained network",
    NOTEBOOK: "The notebook that carried it out, as executed",
    "ledger.parquet": "Digests of every step",
}
"""Files of a repeat that are described if the archive has them."""


def _software(manifest: Manifest) -> dict[str, str]:
    """Versions of the programs that carried a repeat out: cellrepro, and Cellpose if it was used.

    Each action names its own, as runs of two versions of Cellpose can be in one file.
    """
    versions = {name: manifest.versions.get(name, "") for name in ("cellrepro", "cellpose")}
    return {name: version for name, version in versions.items() if version or name == "cellrepro"}


def _time(moment: datetime) -> str:
    """A time in the format that the profile's validator accepts."""
    return moment.isoformat(timespec="seconds")
