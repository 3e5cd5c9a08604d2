"""Findings of `doctor` about Cellpose's own network: whether it is here, as it was published."""

from __future__ import annotations

from collections.abc import Iterator

from cellrepro.audits.findings import Finding
from cellrepro.errors import CellreproError
from cellrepro.explanation.describe import describe
from cellrepro.explanation.description import Description
from cellrepro.model.cellpose_generation import generation_of, installed_version
from cellrepro.model.known_weights import AS_IT_IS
from cellrepro.model.weight_sources import cellpose_folder

_DOWNLOAD_AGAIN = "remove the file, and Cellpose downloads it again when it next needs it"


def network_findings() -> Iterator[Finding]:
    """Look at the file of the network that the installed Cellpose takes where none is named.

    A warning where masks would not be those of the published network.
    """
    name = generation_of().default_network
    path = cellpose_folder() / name
    cellpose = f"Cellpose {installed_version()}"
    if not path.is_file():
        yield Finding(
            level="info",
            what=f"the network that {cellpose} takes by itself, {name}, is not in {path.parent}: "
            "it is downloaded there when it is first needed",
            remedy="nothing where there is a connection; without one, put the file there, or name "
            "another network with --model",
        )
        return
    size = f"{path.stat().st_size / 1e9:.2g} GB"
    try:
        network = describe(str(path))
    except (CellreproError, OSError) as error:
        yield Finding(
            level="warning",
            what=f"{path} ({size}), the network that {cellpose} takes by itself, cannot be read: "
            f"{error}",
            remedy=_DOWNLOAD_AGAIN,
        )
        return
    yield _judged(network, name, what=f"{path} ({size}, SHA-256 {str(network.digest)[:12]}…)")


def _judged(network: Description, name: str, *, what: str) -> Finding:
    """Say whether a file that can be read is the network of that name."""
    if network.official_name == name:
        return Finding(
            level="info",
            what=f"{what} is the network {name} as it was published, and Cellpose loads it",
            remedy="nothing",
        )
    if network.loads_as != AS_IT_IS:
        return Finding(
            level="warning",
            what=f"{what} is not one that Cellpose loads as it is: {network.note}",
            remedy=_DOWNLOAD_AGAIN,
        )
    known_as = (
        f"the network {network.official_name}" if network.official_name else "none known here"
    )
    return Finding(
        level="warning",
        what=f"{what} is not the network {name} as it was published: it is {known_as}, and masks "
        "that are made with it by that name are not comparable with those of others",
        remedy=f"{_DOWNLOAD_AGAIN}; keep your own network under a name of its own",
    )
