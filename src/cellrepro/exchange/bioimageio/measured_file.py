"""The file that carries measured outputs to the machine on which a package is made.

It is a safetensors file with every distinct output once; the header has the circumstances as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from cellrepro.digests.digests import array_digest, file_digest
from cellrepro.errors import BadInput, no_such_file
from cellrepro.exchange.bioimageio.measuring import Circumstances, MeasuredOutput, PackagedTest
from cellrepro.exchange.strict_json import read_json
from cellrepro.spec.spec import Digest
from cellrepro.store.environment_record import MachineRecord
from cellrepro.store.whole_files import whole_file
from cellrepro.wrong_fields import wrong_fields

MEASUREMENTS_ENDING = ".measured.safetensors"
_MOST_BYTES = 256 * 2**20
_MOST_OUTPUTS = 10_000
_MOST_LETTERS = 200
_METADATA = "cellrepro"


_STRICT = ConfigDict(extra="forbid")


def _readable(machine: MachineRecord) -> MachineRecord:
    """Refuse names that a page or a terminal could not show as they are."""
    texts = [str(value) for value in machine.model_dump(exclude={"versions"}).values()]
    texts += [text for pair in machine.versions.items() for text in pair]
    if not all(len(text) <= _MOST_LETTERS and text.isprintable() for text in texts):
        raise ValueError(f"a name is longer than {_MOST_LETTERS} letters, or not readable")
    return machine


_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Name = Annotated[str, Field(max_length=_MOST_LETTERS, pattern=r"^[\w.+=-]+$")]


@dataclass(frozen=True)
class _OutputRecord:
    """The circumstances of one output, and the name of its tensor."""

    __pydantic_config__ = _STRICT

    machine: Annotated[MachineRecord, AfterValidator(_readable)]
    profile: _Name
    repeat: _Count
    threads: _Count
    output: Digest


@dataclass(frozen=True)
class _FileRecord:
    """The JSON in the header of the file."""

    __pydantic_config__ = _STRICT

    format: Literal["bioimageio-measured"]
    network: Digest
    test_input: Digest
    measured: Annotated[list[_OutputRecord], Field(min_length=1, max_length=_MOST_OUTPUTS)]


_FILE_RECORD = TypeAdapter(_FileRecord)


@dataclass(frozen=True)
class MeasuredSubject:
    """The network and the test input that were measured."""

    network: str
    """SHA-256 of its weights file."""
    test_input: str
    """SHA-256 of the scaled test input."""

    @classmethod
    def of(cls, test: PackagedTest) -> MeasuredSubject:
        """Digest the network and the test input."""
        return cls(file_digest(test.weights), array_digest(test.scaled))


def write_measured(path: Path, outputs: Sequence[MeasuredOutput], test: MeasuredSubject) -> None:
    """Write the outputs of this machine."""
    from safetensors.numpy import save_file

    distinct = {array_digest(measured.output): measured.output for measured in outputs}
    records = [
        _OutputRecord(
            machine=measured.circumstances.machine,
            profile=measured.circumstances.profile,
            repeat=measured.circumstances.repeat,
            threads=measured.circumstances.threads,
            output=array_digest(measured.output),
        )
        for measured in outputs
    ]
    record = _FileRecord(
        format="bioimageio-measured",
        network=test.network,
        test_input=test.test_input,
        measured=records,
    )
    with whole_file(path) as scratch:
        save_file(distinct, scratch, metadata={_METADATA: _FILE_RECORD.dump_json(record).decode()})


def read_measured(
    path: Path, test: MeasuredSubject, *, shape: tuple[int, ...]
) -> tuple[MeasuredOutput, ...]:
    """Read the outputs of another machine; those of another network or test input are refused."""
    if not path.is_file():
        raise no_such_file(path, expected=f"a file of measurements, NAME{MEASUREMENTS_ENDING}")
    n_bytes = path.stat().st_size
    if n_bytes > _MOST_BYTES:
        raise _no_measurements(path, f"it has {n_bytes} bytes, and at most {_MOST_BYTES} are read")
    record, tensors = _parts(path)
    if record.network != test.network:
        raise BadInput(
            f"{path} was measured with another network (its weights begin with "
            f"{record.network[:12]}, those of this run with {test.network[:12]}); measure the run "
            "that you export"
        )
    if record.test_input != test.test_input:
        raise BadInput(
            f"{path} was measured with another test input than the one of this package; give the "
            "same --image in both places"
        )
    outputs = []
    for item in record.measured:
        output = tensors.get(item.output)
        if output is None or output.shape != shape or output.dtype != np.float32:
            raise _no_measurements(path, f"output {item.output[:12]} is not there as expected")
        if array_digest(output) != item.output:
            raise _no_measurements(path, f"output {item.output[:12]} has been changed")
        circumstances = Circumstances(
            machine=item.machine, profile=item.profile, repeat=item.repeat, threads=item.threads
        )
        outputs.append(MeasuredOutput(circumstances, output))
    return tuple(outputs)


def _parts(path: Path) -> tuple[_FileRecord, Mapping[str, NDArray[np.float32]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_METADATA)
            if text is None:
                raise ValueError("nothing in it says what was measured")
            record = _FILE_RECORD.validate_python(read_json(text.encode(), where=str(path)))
            named = {item.output for item in record.measured}
            tensors = {name: file.get_tensor(name) for name in named & set(file.keys())}
    except ValidationError as error:
        raise _no_measurements(path, wrong_fields(error)) from error
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise _no_measurements(path, str(error)) from error
    return record, tensors


def _no_measurements(path: Path, why: str) -> BadInput:
    return BadInput(
        f"{path} holds no measurements of a package ({' '.join(why.split())}); expected a file "
        f"that `cellrepro export KEY NAME{MEASUREMENTS_ENDING} --bioimageio` has written"
    )
