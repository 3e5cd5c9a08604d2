"""What of this machine and its packages decides a result beside the spec."""

from __future__ import annotations

from collections.abc import Iterator

from cellrepro.audits.finding import Finding
from cellrepro.determinism import known_operations
from cellrepro.determinism.profiles import Profile
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.store import this_machine

TESTED = {"cellpose": "4.2.1.1", "segment-anything": "1.0", "torch": "2.15.0"}
"""Versions whose behaviour the lab's claims about Cellpose were checked against."""


def version_findings(profile: Profile) -> Iterator[Finding]:
    """Look at the installed versions and at the machine's name."""
    yield from _of_versions()
    if profile.kind != "cuda" and this_machine.is_anonymous():
        yield Finding(
            level="warning",
            what="nothing tells this machine from another of its kind, as in a container without "
            "a machine-id",
            remedy=f"give each a name: {this_machine.MACHINE_VARIABLE}=NAME",
        )


def _of_versions() -> Iterator[Finding]:
    installed = {
        package: version.partition("+")[0] for package, version in this_machine.versions().items()
    }
    for package, tested in TESTED.items():
        if package == "segment-anything" and not generation_of().builds_own_networks:
            continue  # Cellpose 3 has no part of it
        version = installed.get(package, "not installed")
        if version != tested:
            is_listed = package != "torch" or version in known_operations.releases()
            remedy = f"install {package}=={tested}, or run `make test` to see what still holds"
            if package == "cellpose":
                remedy = (
                    "nothing, if your results are made with it: the lab segments with it as it is; "
                    f"`cellrepro setup FOLDER` makes a lab with {tested} beside it"
                )
            gap = "" if is_listed else ", and its operations are not among those the lab knows"
            yield Finding(
                level="warning",
                what=f"{package} is {version}; the lab was checked with {tested}, and other "
                f"versions give different bits{gap}",
                remedy=remedy,
            )
