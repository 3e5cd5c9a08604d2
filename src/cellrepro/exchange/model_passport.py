"""Export of a statement about a network from elsewhere: what is known of it, what is not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.errors import BadInput
from cellrepro.exchange.attestation import Attestation
from cellrepro.exchange.bundle import BUNDLE_ENDING, bundle_text
from cellrepro.exchange.model_statement import (
    AFTER_THE_FACT,
    TENSORS_DIGEST,
    model_statement,
    tensors_digest,
)
from cellrepro.exchange.signed.signer import find_signer, fingerprint_of
from cellrepro.exchange.statement import Builder, ResourceDescriptor
from cellrepro.exchange.strict_json import JsonObject
from cellrepro.explanation.describe import describe
from cellrepro.explanation.description import Description
from cellrepro.results import Result, Row, derived
from cellrepro.store.whole_files import new_file, write_whole
from cellrepro.version import __version__
from cellrepro.words import joined

UNKNOWN = (
    "images",
    "starting weights",
    "settings of the training",
    "seeds",
    "epochs",
    "machine",
    "versions",
    "who trained it",
    "when",
)
"""What a passport of a run says and a file of weights does not."""


@dataclass(frozen=True, repr=False)
class ModelPassport(Result):
    """A statement about a network from elsewhere in a new file."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    model: Path
    """The file with the network."""
    tensors: str
    """Digest over the tensors, the same in any other kind of file."""
    known: Mapping[str, object]
    """What the file itself shows."""
    unknown: tuple[str, ...]
    """What the file does not show."""
    signed_by: str | None
    """Fingerprint of the key that signed; null where none was given."""

    @derived
    def runs(self) -> tuple[str, ...]:
        """None: nobody knows of which run the network is."""
        return ()

    def sentence(self) -> str:
        """Say what is known, and what is not."""
        shown = [f"{name} {value}" for name, value in self.known.items() if value is not None]
        return (
            f"{self.file} says of {self.model} what the file itself shows ({', '.join(shown)}); "
            f"unknown are {joined(self.unknown)}"
        )

    def rows(self) -> list[Row]:
        """Give each thing that is known or unknown."""
        known = [{"what": name, "value": value} for name, value in self.known.items()]
        return [*known, *({"what": name, "value": "unknown"} for name in self.unknown)]

    def lines(self) -> list[str]:
        """Give each thing that is known in a line, and all that is not in one."""
        known = [f"  {name}: {value}" for name, value in self.known.items() if value is not None]
        return [
            f"{self.file}: what can be known of {self.model}",
            *known,
            f"  unknown: {', '.join(self.unknown)}",
        ]


def export_model_passport(
    model: str | Path, file: str | Path, *, sign: str | Path | None = None
) -> ModelPassport:
    """Write what can be known of a network from elsewhere, and that the rest is unknown.

    Nothing is claimed of how it was trained: a later reader can check that he has the same
    network, and sees what nobody recorded.

    Parameters
    ----------
    model : str or Path
        A file of weights, as `cellrepro.describe` takes it.
    file : str or Path
        ``NAME.intoto.jsonl``; nothing may be there.
    sign : str or Path, optional
        ``KEY.pub`` of OpenSSH: you say that this is the file that you had.

    Returns
    -------
    ModelPassport
        Its ``str`` says what is known and what is not. The same file gives the same bytes.

    Raises
    ------
    BadInput
        If the file holds no network, or the new one exists.
    """
    source = Path(model)
    path = new_file(file, ending=BUNDLE_ENDING, holds="a passport")
    if not source.is_file():
        raise BadInput(f"{source}: no such file; expected a file with a network")
    description = describe(str(source))
    if description.kind != "weights" or description.digest is None:
        what = description.details.get("what", description.kind)
        why = f": {description.note}" if description.note else ""
        raise BadInput(f"{source} is {what}; expected a file with a network{why}")
    signer = find_signer(sign)
    tensors = tensors_digest(open_weights(source))
    known = _known(description)
    statement = model_statement(
        ResourceDescriptor(
            name=source.name, digest={"sha256": description.digest, TENSORS_DIGEST: tensors}
        ),
        build_type=AFTER_THE_FACT,
        parameters=dict.fromkeys(UNKNOWN, None),
        dependencies=(),
        builder=Builder(id="urn:cellrepro:machine:unknown", version={"cellrepro": __version__}),
        byproducts=(
            ResourceDescriptor(name="known", annotations=known),
            ResourceDescriptor(name="unknown", annotations={"names": list(UNKNOWN)}),
        ),
    )
    text = bundle_text([Attestation.of(statement, signer=signer)])
    write_whole(path, text)
    return ModelPassport(
        file=path,
        digest=hashlib.sha256(f"{text}\n".encode()).hexdigest(),
        model=source,
        tensors=tensors,
        known=known,
        unknown=UNKNOWN,
        signed_by=fingerprint_of(signer),
    )


def _known(description: Description) -> JsonObject:
    """What the file itself shows, the same on every machine."""
    return {
        "official name": description.official_name,
        "generation of Cellpose": description.generation,
        "network": description.details.get("network"),
        "format": description.details.get("format"),
        "found under": description.details.get("found_under"),
        "dtype": description.dtype,
        "parameters": description.n_parameters,
    }
