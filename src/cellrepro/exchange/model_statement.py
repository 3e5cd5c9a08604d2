"""A statement about a file that Cellpose loads, written from the network of a run.

It is an in-toto Statement with the predicate of SLSA provenance, as a passport is. A reader checks
the file by its SHA-256, or the same network in another file by the digest over its tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cellrepro.comparison.weight_tensors import Network
from cellrepro.exchange.json_records import JsonObject, as_json, read_record
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.provenance import (
    PROVENANCE,
    BuildDefinition,
    Builder,
    Provenance,
    RunDetails,
    build_type_of,
)
from cellrepro.exchange.statement import Attestation, ResourceDescriptor, Statement
from cellrepro.store.unchanged import digest_once
from cellrepro.words import short_digest
from samebits.errors import BadInput

CELLPOSE_FILE = "urn:cellrepro:buildtype:cellpose-file:v1"
"""A file that Cellpose loads, written from the trained weights of a run and loaded back."""
TENSORS_DIGEST = "cellrepro_tensors"
"""Name of the digest of a network: SHA-256 of the sorted lines ``sha256  NAME DTYPE SHAPE``,
each ended by a line feed. The SHA-256 is that of the tensor's bytes, the name is written as in
JSON, a shape as ``2x3``.
"""

_N_AT_ONCE = 2**20  # elements of a tensor that are held in memory


@dataclass(frozen=True)
class ModelStatement:
    """A statement about one file, as it was read."""

    attestation: Attestation
    """The statement itself, with its signatures."""
    build_type: str
    """`CELLPOSE_FILE`."""
    file: str
    """Its name, without a folder."""
    sha256: str
    """Digest of its bytes."""
    tensors: str | None
    """Digest of its network, as `TENSORS_DIGEST` explains."""


def tensors_digest(network: Network) -> str:
    """The digest of a network, the same in every kind of file; see `TENSORS_DIGEST`."""
    lines = []
    for name, tensor in network.items():
        digest = hashlib.sha256()
        for start in range(0, tensor.n, _N_AT_ONCE):
            digest.update(tensor.read(start, start + _N_AT_ONCE).tobytes())
        shape = "x".join(map(str, tensor.shape))
        lines.append(f"{digest.hexdigest()}  {json.dumps(name)} {tensor.dtype} {shape}\n".encode())
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()


def model_statement(
    file: ResourceDescriptor,
    *,
    parameters: JsonObject,
    dependencies: tuple[ResourceDescriptor, ...],
    builder: Builder,
    byproducts: tuple[ResourceDescriptor, ...],
) -> Statement:
    """Write a statement about a file with a network."""
    provenance = Provenance(
        build_definition=BuildDefinition(
            build_type=CELLPOSE_FILE,
            external_parameters=parameters,
            resolved_dependencies=dependencies,
        ),
        run_details=RunDetails(builder=builder, byproducts=byproducts),
    )
    return Statement((file,), PROVENANCE, as_json(provenance))


# -- read ------------------------------------------------------------------------------------


def is_model_statement(statement: Statement) -> bool:
    """Whether a statement is about a file with a network."""
    return build_type_of(statement) == CELLPOSE_FILE


def read_model_statement(attestation: Attestation, *, where: str) -> ModelStatement:
    """Validate a statement about a file."""
    try:
        provenance = read_record(Provenance, attestation.statement.predicate)
        (subject,) = attestation.statement.subject
    except ValueError as error:
        raise BadInput(f"{where}: a damaged statement about a model's file ({error})") from error
    name = subject.name or ""
    if name in ("", ".", "..") or set("/\\\0") & set(name) or subject.sha256 is None:
        raise BadInput(f"{where}: a statement about a model's file without a name or its SHA-256")
    return ModelStatement(
        attestation=attestation,
        build_type=provenance.build_definition.build_type,
        file=name,
        sha256=subject.sha256,
        tensors=subject.digest.get(TENSORS_DIGEST),
    )


def check_model_file(model: ModelStatement, *, beside: Path) -> Iterator[Problem]:
    """Compare the file with the SHA-256 of its statement, if it lies beside the bundle."""
    path = beside.with_name(model.file)
    if not path.is_file():
        return
    digest = digest_once(path)
    if digest != model.sha256:
        yield Problem(
            "damaged",
            f"its SHA-256 is {short_digest(digest)}, and {short_digest(model.sha256)} is attested",
            str(path),
            "ask its sender for both files as they were exported together",
        )
