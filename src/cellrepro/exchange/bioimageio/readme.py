"""``README.md`` of a package: what the network does, how it is used, how far results may differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from cellrepro.exchange.bioimageio.input_tile import TILE_SIZE, InputTile, Scaling
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance
from cellrepro.exchange.bioimageio.measured_words import (
    default_text,
    factor_text,
    hiding_text,
    machines_text,
    objects_text,
    place_rows,
    tolerance_text,
)
from cellrepro.exchange.bioimageio.resource_description import NETWORK, PASSPORT
from cellrepro.spec.segmentation_settings import AFTER_NETWORK
from cellrepro.store.stored_run import Repeat
from cellrepro.words import amount


@dataclass(frozen=True)
class ReadmeFacts:
    """The facts in the documentation of a package."""

    name: str
    """Name of the network."""
    repeat: Repeat
    """The repeat whose network it is."""
    tile: InputTile
    scaling: Scaling
    measured: MeasuredTolerance
    verdict: str
    """The verdict on the repeats of the run, in a sentence."""
    not_measured: str
    """The profiles that were not measured, in a sentence; may be empty."""
    passport: str
    """SHA-256 of the run's passport."""


def readme_text(facts: ReadmeFacts) -> str:
    """Write the documentation, as Markdown."""
    sections = (
        f"# {facts.name}\n\n{_what_it_is(facts)}",
        f"## How it is used\n\n{_use(facts)}",
        f"## How far results may lie apart\n\n{_tolerance(facts)}",
        f"## Validation\n\n{_validation(facts)}",
        f"## Where it comes from\n\n{_origin(facts)}",
        f"## What was not tried\n\n{_not_tried(facts)}",
    )
    return "\n\n".join(sections) + "\n"


def _what_it_is(facts: ReadmeFacts) -> str:
    manifest = facts.repeat.manifest
    if manifest.weights is not None:
        images = amount(manifest.data.n_train, "image")
        made = f"trained with cellrepro on {images}"
    else:
        images = amount(len(manifest.masks), "image")
        made = f"as cellrepro was given it to segment {images}"
    return (
        f"A network of Cellpose, {made} ({_code(facts.repeat.spec.data)}). For each pixel it gives "
        "the flow towards the centre of its cell and the logit of being cell; Cellpose makes masks "
        "of them."
    )


def _use(facts: ReadmeFacts) -> str:
    settings = facts.repeat.spec.settings.not_default()
    after = {name: settings[name] for name in sorted(AFTER_NETWORK & settings.keys())}
    before = {name: value for name, value in settings.items() if name not in AFTER_NETWORK}
    arguments = "".join(f", {name}={value!r}" for name, value in after.items())
    if facts.scaling.percentiles is None:
        scaling = "Intensities are taken as they are."
    else:
        low, high = facts.scaling.percentiles
        scaling = (
            f"The package scales each channel so that percentile {low:g} becomes 0 and percentile "
            f"{high:g} becomes 1, over the tile that it is given; Cellpose itself takes the "
            "percentiles of the whole image."
        )
    lines = [
        f"The input is a tile of {TILE_SIZE} x {TILE_SIZE} pixels with "
        f"{amount(facts.tile.n_channels, 'channel')}, in which cells have a diameter of about 30 "
        "pixels: larger images are cut into tiles that overlap, as Cellpose does.",
        scaling,
        "Masks of one tile:\n\n```python\n"
        "from cellpose.dynamics import resize_and_compute_masks\n\n"
        "flows, logit = output[0, :2], output[0, 2]\n"
        f"masks = resize_and_compute_masks(flows, logit{arguments})\n```",
    ]
    if before:
        given = ", ".join(f"`{name}={value!r}`" for name, value in before.items())
        lines.append(f"The run segmented whole images through Cellpose with {given}.")
    lines.append(
        f"The file `{NETWORK}` builds the network from the package `cellpose`, and is "
        "executed when the network is loaded. It computes in float32 on every device."
    )
    return "\n\n".join(lines)


def _tolerance(facts: ReadmeFacts) -> str:
    measured = facts.measured
    paragraphs = [
        f"`reproducibility_tolerance` is {tolerance_text(measured.tolerance)}.",
        f"It was {_plain(machines_text(measured))}. Of any two outputs the largest difference was "
        f"{measured.difference:.1e} of (the largest element plus the element); the tolerance is "
        f"{measured.factor:g} times that. {factor_text(measured)} {default_text(measured)}",
        _table(place_rows(measured.places)),
        f"From all of these outputs Cellpose makes {objects_text(measured)}.",
        hiding_text(measured.hidden),
    ]
    return "\n\n".join(paragraphs)


def _validation(facts: ReadmeFacts) -> str:
    manifest = facts.repeat.manifest
    images = amount(len(manifest.masks), "image")
    if manifest.ap50 is None:
        return f"The run has segmented {images} without a ground truth; nothing was scored."
    kind = "training" if manifest.data.segmented == "train" and manifest.training else "test"
    return (
        f"Mean average precision at an IoU of 0.5 over {images} ({kind} images) was "
        f"{manifest.ap50:.3f} when the run was made, through Cellpose and on whole images."
    )


def _origin(facts: ReadmeFacts) -> str:
    repeat = facts.repeat
    manifest = repeat.manifest
    spec = repeat.spec
    versions = ", ".join(
        f"{name} {manifest.versions[name]}"
        for name in ("python", "torch", "cellpose", "numpy")
        if name in manifest.versions
    )
    lines = [
        f"* run {_code(repeat.name)}, begun {manifest.started}",
        f"* began with {_code(spec.model)}, {manifest.model.n_parameters} parameters",
        f"* {versions}; profile {_code(spec.profile)}, mode `{spec.mode}`",
        f"* images: SHA-256 `{manifest.data.digest}`",
        f"* repeats of the run: {_plain(facts.verdict)}",
    ]
    if spec.task == "train":
        lines.insert(2, f"* {spec.epochs} epochs, seed {spec.seed}, data seed {spec.data_seed}")
    if manifest.weights is not None:
        lines.append(f"* weights: SHA-256 `{manifest.weights.digest}` of the safetensors file")
    lines.append(f"* passport: `{PASSPORT}`, SHA-256 `{facts.passport}`")
    return "\n".join(lines)


def _not_tried(facts: ReadmeFacts) -> str:
    parts = [
        "Only the network was compared, for one tile, not the whole of a segmentation of larger "
        "images.",
        facts.not_measured,
    ]
    return " ".join(part for part in parts if part)


def _table(rows: Sequence[dict[str, object]]) -> str:
    headings = list(rows[0])
    lines = [headings, ["---"] * len(headings)]
    lines += [[_plain(str(row[heading])) for heading in headings] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    """Markdown of code."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    """Escape Markdown and HTML, since names may come from other machines."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", escape(one_line, quote=False))
