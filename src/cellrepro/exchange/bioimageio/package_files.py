"""The files of a package of bioimage.io: tests, weights, documentation, cover, description."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from cellrepro.comparison.judgement import Judgement, judge
from cellrepro.exchange.bioimageio import measured_words
from cellrepro.exchange.bioimageio.credits import Credits
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance, Place
from cellrepro.exchange.bioimageio.packaged_run import NETWORK_FILE, PackagedRun
from cellrepro.exchange.bioimageio.readme import readme_text
from cellrepro.exchange.bioimageio.resource_description import (
    COVER,
    DESCRIPTION,
    ENVIRONMENT,
    NETWORK,
    PASSPORT,
    README,
    TEST_INPUT,
    TEST_OUTPUT,
    WEIGHTS,
    describe_package,
    refuse_invalid,
    write_description,
)
from cellrepro.exchange.bundle import bundle_text
from cellrepro.exchange.cellpose_check import write_torch_file
from cellrepro.exchange.kept_passports import attestations_of
from cellrepro.exchange.statement import Attestation
from cellrepro.store.store import Store
from cellrepro.store.stored_run import readable
from samebits.results import json_names, plain


@dataclass(frozen=True)
class Package:
    """Everything that the files of a package are made from."""

    subject: PackagedRun
    """The repeat whose network it is, and the test input."""
    store: Store
    title: str
    """Name of the network."""
    credits: Credits
    judged: MeasuredTolerance
    """The tolerance, with the outputs that it rests on."""
    not_possible: Mapping[str, str]
    """The profiles that were not measured, and why."""

    @functools.cached_property
    def _attestations(self) -> Sequence[Attestation]:
        """The passport of the repeat, then its receipts."""
        return attestations_of(self.store, self.subject.repeat)

    @functools.cached_property
    def _judgement(self) -> Judgement:
        """The verdict over all repeats of the run."""
        run = self.store.find_run(self.subject.repeat.spec.key)
        return judge([repeat.outcome for repeat in readable(run.repeats)])

    def write_files(self, folder: Path) -> None:
        """Write all files of the package; its description is last, since that has their digests."""
        subject = self.subject
        np.save(folder / TEST_INPUT, subject.tile.pixels, allow_pickle=False)
        np.save(folder / TEST_OUTPUT, self.judged.expected, allow_pickle=False)
        write_cover(subject.tile.pixels, self.judged.masks, folder / COVER)
        write_torch_file(subject.weights.file, folder / WEIGHTS)
        (folder / PASSPORT).write_bytes(f"{bundle_text(self._attestations)}\n".encode())
        (folder / NETWORK).write_bytes(NETWORK_FILE.read_bytes())
        _write_text(folder / ENVIRONMENT, _environment_text(self._versions))
        _write_text(folder / README, self._documentation())
        values = self._description(folder)
        refuse_invalid(values, folder)
        write_description(values, folder / DESCRIPTION)

    @property
    def _versions(self) -> Mapping[str, str]:
        """Versions of the libraries that computed the test output."""
        return self.judged.places[0].outputs[0].machine.versions

    def _documentation(self) -> str:
        return readme_text(
            self.subject,
            self.judged,
            name=self.title,
            verdict=self._judgement.sentence(),
            passport=self._attestations[0].digest,
            not_possible=self.not_possible,
        )

    def _description(self, folder: Path) -> dict[str, object]:
        subject = self.subject
        return describe_package(
            folder,
            name=self.title,
            summary=self._summary(),
            credits=self.credits,
            timestamp=subject.repeat.manifest.started,
            tile=subject.tile,
            scaling=subject.scaling,
            architecture=subject.weights.sizes.arguments(),
            n_parameters=subject.weights.n_parameters,
            pytorch=self._versions["torch"],
            tolerance=self.judged.tolerance,
            ours=self._own_words(),
            attachments=(PASSPORT,),
        )

    def _summary(self) -> str:
        return (
            f"Cellpose network of the run {self.subject.repeat.spec.key} of cellrepro. Its "
            "reproducibility tolerance was "
            f"{measured_words.machine_text(self.judged)}"
        )[:1024]

    def _own_words(self) -> dict[str, object]:
        """The content of ``config.cellrepro``."""
        repeat = self.subject.repeat
        run = self.store.find_run(repeat.spec.key)
        judged = self.judged
        hidden = asdict(judged.hidden)
        smallest_object = hidden.pop("smallest_object")
        weights = repeat.manifest.weights
        verdict = self._judgement.overall
        return {
            "run": repeat.name,
            "key": repeat.spec.key,
            "verdict": None if verdict is None else str(verdict),
            "machines": sorted(run.machines),
            "weights": None if weights is None else weights.digest,
            "passport": self._attestations[0].digest,
            "data": repeat.manifest.data.digest,
            "test_image": {
                "name": self.subject.tile.image,
                "y": self.subject.tile.y,
                "x": self.subject.tile.x,
            },
            "tolerance": {
                "sentence": measured_words.machine_text(judged),
                "largest_difference": judged.difference,
                "factor": judged.factor,
                "factor_needed": judged.factor_needed,
                "default_holds": judged.default_holds,
                "masks": str(judged.verdict),
                "hidden": {**hidden, "diameter": judged.hidden.diameter},
                "smallest_object": smallest_object,
                "measured": [_place_record(place) for place in judged.places],
            },
        }


def _place_record(place: Place) -> dict[str, object]:
    machine = place.outputs[0].machine
    shown = {name: plain(getattr(place, name)) for name in json_names(Place)}
    return {**shown, "cuda": machine.cuda, "versions": dict(machine.versions)}


def _environment_text(versions: Mapping[str, str]) -> str:
    """A file of conda with the versions that computed the test output."""
    pinned = [
        f"{package}=={versions[name]}"
        for package, name in (("torch", "torch"), ("cellpose", "cellpose"))
        if name in versions
    ]
    environment = {
        "channels": ["conda-forge", "nodefaults"],
        "dependencies": ["python>=3.10", "pip", {"pip": pinned}],
    }
    return yaml.safe_dump(environment, sort_keys=False)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


_OUTLINE = (255, 200, 0)  # yellow


def write_cover(pixels: NDArray[np.float32], masks: NDArray[np.uint32], path: Path) -> None:
    """Write the test image, and beside it the same with the outlines of its objects."""
    from PIL import Image

    picture = _as_rgb(pixels[0])
    outlined = picture.copy()
    outlined[_is_outline(masks)] = _OUTLINE
    Image.fromarray(np.hstack([picture, outlined])).save(path, format="png")


def _as_rgb(channels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Each channel scaled to its range; shape (Y, X, 3)."""
    low = channels.min(axis=(1, 2), keepdims=True)
    extent = np.maximum(channels.max(axis=(1, 2), keepdims=True) - low, 1e-6)
    scaled = (255 * (channels - low) / extent).astype(np.uint8)
    if len(scaled) == 1:
        scaled = np.repeat(scaled, 3, axis=0)
    missing = 3 - len(scaled)
    return np.moveaxis(np.pad(scaled, ((0, missing), (0, 0), (0, 0))), 0, 2)


def _is_outline(masks: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Pixels of objects that touch another label or the background."""
    is_edge = np.zeros(masks.shape, bool)
    below = masks[1:] != masks[:-1]
    beside = masks[:, 1:] != masks[:, :-1]
    is_edge[1:] |= below
    is_edge[:-1] |= below
    is_edge[:, 1:] |= beside
    is_edge[:, :-1] |= beside
    return is_edge & (masks > 0)
