"""``README.md`` of a package: what the network does, how it is used, how far results may differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from cellrepro.exchange.bioimageio import measured_words
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance
from cellrepro.exchange.bioimageio.packaged_run import TILE_SIZE, PackagedRun
from cellrepro.exchange.bioimageio.resource_description import NETWORK, PASSPORT
from cellrepro.spec.segmentation_settings import AFTER_NETWORK
from samebits.words import amount

_TEMPLATE = Path(__file__).with_name("readme.md.j2")
_SHOWN_VERSIONS = ("python", "torch", "cellpose", "numpy")


def readme_text(
    subject: PackagedRun,
    measured: MeasuredTolerance,
    *,
    name: str,
    verdict: str,
    passport: str,
    not_possible: Mapping[str, str],
) -> str:
    """Write the documentation of a package, as Markdown.

    ``verdict`` is that on the repeats of the run, in a sentence, ``passport`` the digest of the
    run's passport, ``not_possible`` the profiles that were not measured, and why.
    """
    import jinja2

    repeat = subject.repeat
    manifest = repeat.manifest
    settings = repeat.spec.settings.not_default()
    is_training = manifest.data.segmented == "train" and bool(manifest.training)
    environment = jinja2.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"code": _code, "plain": _plain}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        name=name,
        repeat=repeat,
        manifest=manifest,
        spec=repeat.spec,
        tile=subject.tile,
        tile_size=TILE_SIZE,
        scaling=subject.scaling,
        measured=measured,
        places=measured_words.place_rows(measured.places),
        not_measured=measured_words.not_measured(not_possible),
        verdict=verdict,
        passport=passport,
        passport_file=PASSPORT,
        network_file=NETWORK,
        words=measured_words,
        amount=amount,
        n_images=amount(len(manifest.masks), "image"),
        kind_of_images="training" if is_training else "test",
        after_network=[
            f"{name}={settings[name]!r}" for name in sorted(AFTER_NETWORK & settings.keys())
        ],
        before_network=[
            f"{name}={value!r}" for name, value in settings.items() if name not in AFTER_NETWORK
        ],
        versions=", ".join(
            f"{name} {manifest.versions[name]}"
            for name in _SHOWN_VERSIONS
            if name in manifest.versions
        ),
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _code(text: str) -> str:
    """Markdown of code."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    """Escape Markdown and HTML, which a name may hold."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", escape(one_line, quote=False))
