"""Checks of files from elsewhere by their format, before any library reads them whole.

Their digests are right, but the sender chose these: a file with the right digest can still exhaust
memory or mean two things to two readers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.exchange.strict_json import read_json
from cellrepro.images.decoding import decode_labels, read_bytes
from cellrepro.store.manifest import MaskRecord
from samebits.digests import array_digest
from samebits.errors import BadInput
from samebits.libraries import has_library
from samebits.words import amount

_MOST_NOTEBOOK_BYTES = 2**26
_MOST_NOTEBOOK_DEPTH = 64
_MOST_TENSORS = 100_000
_MOST_HEADER_BYTES = 2**26
_DTYPES = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"}
"""Allowed for tensors of networks, as safetensors names them."""
_TYPES_OF_COLUMNS = {"int32", "int64", "double", "bool", "string"}
"""Allowed in ledgers, as PyArrow names them."""
_MOST_FROM_A_BYTE = 100
"""Limit of the bytes of a table for each byte of its file; ledgers need up to ten."""
_ALWAYS_ALLOWED = 2**24  # bytes of a table, however small its file is
_ROWS_AT_ONCE = 128


def check_masks(path: Path, record: MaskRecord) -> None:
    """Refuse a label image whose labels do not have the digest in the manifest."""
    labels = decode_labels(path, read_bytes(path)).pixels
    if labels.dtype not in (np.uint16, np.uint32):
        raise BadInput(f"{path}: labels of type {labels.dtype}, expected uint16 or uint32")
    digests = possible_digests(labels.astype(np.uint32, copy=False))
    if record.digest not in digests:
        raise BadInput(
            f"{path}: the digest of its labels begins with {digests[0][:12]}, and with "
            f"{record.digest[:12]} in its manifest"
        )


def possible_digests(labels: NDArray[np.uint32]) -> list[str]:
    """The digests of labels, also as a stack of one plane, whose axis is lost in decoding."""
    arrays = [labels, labels[np.newaxis]] if labels.ndim == 2 else [labels]
    return [array_digest(array) for array in arrays]


def check_image(path: Path) -> None:
    """Refuse an image or label image that cannot be decoded."""
    decode_labels(path, read_bytes(path))


def check_network(path: Path) -> None:
    """Refuse weights that are no valid safetensors file with the tensors of a network."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            dtypes = {str(file.get_slice(name).get_dtype()) for name in names[:_MOST_TENSORS]}
        with path.open("rb") as stream:
            header = stream.read(int.from_bytes(stream.read(8), "little"))
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInput(f"{path}: no whole safetensors file ({error})") from error
    # safetensors takes the last of two tensors of one name, other readers may take the first.
    read_json(header, where=str(path), most_bytes=_MOST_HEADER_BYTES)
    if not names or len(names) > _MOST_TENSORS:
        raise BadInput(f"{path}: {amount(len(names), 'tensor')}, expected those of a network")
    if not dtypes <= _DTYPES:
        raise BadInput(f"{path}: tensors of type {', '.join(sorted(dtypes - _DTYPES))}")
    unprintable = [name for name in names if not name.isprintable()]
    if unprintable:
        raise BadInput(f"{path}: the tensor {unprintable[0][:80]!a} has an unprintable name")


def check_notebook(path: Path) -> None:
    """Refuse what is no notebook in Jupyter's format 4."""
    if path.stat().st_size > _MOST_NOTEBOOK_BYTES:
        raise BadInput(f"{path}: more than {_MOST_NOTEBOOK_BYTES} bytes of notebook")
    notebook = read_json(
        path.read_bytes(),
        where=str(path),
        most_bytes=_MOST_NOTEBOOK_BYTES,
        most_depth=_MOST_NOTEBOOK_DEPTH,
    )
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4:
        raise BadInput(f"{path}: no notebook in Jupyter's format 4")
    if not isinstance(notebook.get("metadata"), dict):
        raise BadInput(f"{path}: a notebook without metadata")
    cells = notebook.get("cells")
    kinds = {"code", "markdown", "raw"}
    if not isinstance(cells, list) or not all(
        isinstance(cell, dict) and cell.get("cell_type") in kinds for cell in cells
    ):
        raise BadInput(f"{path}: a notebook whose cells are none")


def check_ledger(path: Path) -> None:
    """Refuse a ledger with nested columns, or with more rows than its size can hold.

    Without pyarrow, which alone could read it, nothing is checked.
    """
    if not has_library("pyarrow"):
        return
    import pyarrow
    from pyarrow import parquet

    size = path.stat().st_size
    try:
        metadata = parquet.read_metadata(path)
        types = {str(field.type) for field in metadata.schema.to_arrow_schema()}
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        n_bytes = sum(group.total_byte_size for group in groups)
        most = max(_ALWAYS_ALLOWED, _MOST_FROM_A_BYTE * size)
        if types <= _TYPES_OF_COLUMNS and max(metadata.num_rows, n_bytes) <= most:
            # Rows can share a large text through a dictionary: bytes are counted as they are read.
            n_bytes = 0
            with parquet.ParquetFile(path) as table:
                for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False):
                    n_bytes += batch.nbytes
                    if n_bytes > most:
                        break
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        why = " ".join(str(error).split())  # PyArrow's reasons take several lines
        raise BadInput(f"{path}: no ledger that can be read ({why})") from error
    if not types <= _TYPES_OF_COLUMNS:
        strange = ", ".join(sorted(types - _TYPES_OF_COLUMNS))
        raise BadInput(f"{path}: columns of type {strange[:80]}, which no ledger has")
    if metadata.num_rows > size or n_bytes > most:
        raise BadInput(
            f"{path}: {metadata.num_rows} rows of {n_bytes} bytes or more in a file of {size}, "
            "which no ledger has"
        )
