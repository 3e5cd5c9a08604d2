"""``bioimageio.yaml``, the resource description of a package, and its check by the specification.

Version 0.5.14 of the specification; ``bioimageio.spec`` validates it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import cast

import yaml
from pydantic import ValidationError

from cellrepro.exchange.bioimageio.credits import CELLPOSE_PAPERS, Citation, Credits
from cellrepro.exchange.bioimageio.packaged_run import TILE_SIZE, InputTile, Scaling
from cellrepro.exchange.bioimageio.tolerance import Tolerance
from samebits.digests import file_digest
from samebits.errors import BadInput

FORMAT_VERSION = "0.5.14"
DESCRIPTION = "bioimageio.yaml"
README = "README.md"
NETWORK = "cellpose_network.py"
WEIGHTS = "weights.pt"
ENVIRONMENT = "environment.yaml"
TEST_INPUT = "test_input.npy"
TEST_OUTPUT = "test_output.npy"
COVER = "cover.png"
PASSPORT = "passport.intoto.jsonl"

OUTPUT = "flows"
OUTPUT_CHANNELS = ("flow_y", "flow_x", "cell_probability")

_MOST_LETTERS = 400  # of a validation error of the specification

Plain = Mapping[str, object]


def describe_package(
    folder: Path,
    *,
    name: str,
    summary: str,
    credits: Credits,
    timestamp: str,
    tile: InputTile,
    scaling: Scaling,
    architecture: Plain,
    n_parameters: int,
    pytorch: str,
    tolerance: Tolerance,
    ours: Plain,
    attachments: Sequence[str] = (),
) -> dict[str, object]:
    """The content of ``bioimageio.yaml``, with the digests of the files in the folder.

    ``timestamp`` is when the run began (ISO 8601), ``architecture`` the arguments of the network's
    class, ``pytorch`` the version that computed the test output, ``ours`` the content of
    ``config.cellrepro``.
    """

    def file(name: str, **more: object) -> dict[str, object]:
        return {"source": name, "sha256": file_digest(folder / name), **more}

    papers = (*credits.citations, *CELLPOSE_PAPERS)
    return {
        "format_version": FORMAT_VERSION,
        "type": "model",
        "name": name,
        "description": summary,
        "documentation": file(README),
        "covers": [file(COVER)],
        "authors": [_without_none(vars(author)) for author in credits.authors],
        "cite": [_citation(paper) for paper in papers],
        "license": credits.license,
        "tags": ["2d", "cells", "pytorch", "instance-segmentation", "cellpose", "reproducibility"],
        "timestamp": timestamp,
        "attachments": [file(name) for name in attachments],
        "inputs": [_input(tile, scaling, file(TEST_INPUT))],
        "outputs": [_output(file(TEST_OUTPUT))],
        "weights": {
            "pytorch_state_dict": file(
                WEIGHTS,
                architecture=file(NETWORK, callable="packaged_network", kwargs=dict(architecture)),
                pytorch_version=pytorch,
                dependencies=file(ENVIRONMENT),
            )
        },
        "config": {
            "bioimageio": {
                "reproducibility_tolerance": [
                    {
                        "output_ids": [OUTPUT],
                        "weights_formats": ["pytorch_state_dict"],
                        "relative_tolerance": tolerance.relative_tolerance,
                        "absolute_tolerance": tolerance.absolute_tolerance,
                        "mismatched_elements_per_million": (
                            tolerance.mismatched_elements_per_million
                        ),
                    }
                ],
                "architecture_type": "vision transformer",
                "task": "instance segmentation",
                "model_parameter_count": n_parameters,
            },
            "cellrepro": dict(ours),
        },
    }


def _citation(citation: Citation) -> dict[str, object]:
    return _without_none({"text": citation.text, "doi": citation.doi, "url": citation.url})


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _axes(channels: Sequence[str]) -> list[dict[str, object]]:
    return [
        {"type": "batch"},
        {"type": "channel", "channel_names": list(channels)},
        {"type": "space", "id": "y", "size": TILE_SIZE},
        {"type": "space", "id": "x", "size": TILE_SIZE},
    ]


def _input(tile: InputTile, scaling: Scaling, test_tensor: Plain) -> dict[str, object]:
    n_channels = tile.n_channels
    names = ["intensity"] if n_channels == 1 else [f"channel_{i + 1}" for i in range(n_channels)]
    return {
        "id": "image",
        "description": "A part of an image, as it was read, in which cells have a diameter of "
        "about 30 pixels",
        "axes": _axes(names),
        "test_tensor": test_tensor,
        "data": {"type": "float32"},
        "preprocessing": _preprocessing(scaling),
    }


def _preprocessing(scaling: Scaling) -> list[dict[str, object]]:
    if scaling.percentiles is None:
        return []
    low, high = scaling.percentiles
    return [
        {
            "id": "scale_range",
            "kwargs": {"axes": ["y", "x"], "min_percentile": low, "max_percentile": high},
        },
        {"id": "ensure_dtype", "kwargs": {"dtype": "float32"}},
    ]


def _output(test_tensor: Plain) -> dict[str, object]:
    return {
        "id": OUTPUT,
        "description": "Flows in y and in x, and the logit of being cell; "
        "cellpose.dynamics.compute_masks makes masks of them",
        "axes": _axes(OUTPUT_CHANNELS),
        "test_tensor": test_tensor,
        "data": {"type": "float32"},
    }


def write_description(values: Plain, path: Path) -> None:
    """Write ``bioimageio.yaml``; the same values give the same bytes."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=100)
    path.write_text(text, encoding="utf-8", newline="\n")


# -- the check -----------------------------------------------------------------------------


def refuse_unknown_license(license_id: str) -> None:
    """Refuse a licence that the specification does not know."""
    from bioimageio.spec.generic.v0_3 import LicenseId

    try:
        LicenseId(license_id)
    except ValidationError as error:
        listed = str(error.errors()[0].get("ctx", {}).get("expected", ""))
        known = re.findall(r"'([^']+)'", listed)
        near = get_close_matches(license_id, known, 3)
        proposal = f"; do you mean {' or '.join(near)}?" if near else ""
        raise BadInput(
            f"--license {license_id!r} is none that the specification of bioimage.io knows; "
            f"expected an identifier of https://spdx.org/licenses, as CC-BY-4.0{proposal}"
        ) from error


def refuse_invalid(values: Plain, folder: Path) -> None:
    """Validate a description and its files with ``bioimageio.spec``, offline.

    Whether a GitHub user or a page exists is left to bioimage.io.
    """
    from bioimageio.spec import ValidationContext, build_description
    from bioimageio.spec.common import BioimageioYamlContent, Sha256

    papers = values["cite"]
    assert isinstance(papers, list)
    addresses: dict[str, Sha256 | None] = {
        str(paper["url"]): None for paper in papers if "url" in paper
    }
    offline = ValidationContext(root=folder, log_warnings=False, progressbar=False)
    without_users = {**values, "authors": _without_users(values["authors"])}
    checks = (
        (without_users, offline.replace(perform_io_checks=True, known_files=addresses)),
        (dict(values), offline.replace(perform_io_checks=False)),
    )
    for described, context in checks:
        with _quiet():
            content = cast("BioimageioYamlContent", described)
            summary = build_description(content, context=context).validation_summary
        if summary.status == "failed":
            problems = [
                f"{'.'.join(map(str, error.loc))}: {error.msg[:_MOST_LETTERS]}"
                for detail in summary.details
                for error in detail.errors
            ]
            raise BadInput(
                f"the specification of bioimage.io does not accept the package: "
                f"{'; '.join(problems)}"
            )


def _without_users(authors: object) -> list[dict[str, object]]:
    """Authors without their GitHub users, which ``bioimageio.spec`` would look up on the web."""
    assert isinstance(authors, list)
    return [{name: v for name, v in author.items() if name != "github_user"} for author in authors]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of the libraries, which are not about the user's input."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
