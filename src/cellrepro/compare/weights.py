"""Networks side by side, parameter by parameter, from safetensors files.

Equality is decided by the bits of every parameter, never by a hash or a norm that swapped or
negated values leave unchanged (``torch.hash_tensor`` and the L1 norm do, PyTorch 2.15.0), and
never by the bytes of the file, which also hold metadata. So NaN payloads and the sign of zero
count. Distances are computed in float64, from one tensor at a time: memory is bounded by the
largest tensor, not by the file.
"""

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput

# Type codes of the safetensors format (little-endian) as NumPy reads them. NumPy has no bfloat16:
# its 16 bits are the upper half of a float32, see `_values`.
_NUMPY_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}
_CHUNK_VALUES = 2**21  # float64 values that `similarity` holds at a time over all files: 16 MiB
_PARAMETER_KINDS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


@dataclass(frozen=True)
class TensorComparison:
    """One tensor of a that b holds under the same name.

    Attributes
    ----------
    name : str
        As in the files.
    shape, dtype : tuple of int, str
        Of a; the dtype as safetensors spells it, such as ``F32`` or ``BF16``.
    shape_b, dtype_b : tuple of int, str
        Of b.
    n : int
        Parameters; where the shapes differ, of the larger one.
    n_differing : int
        Parameters with other bits; all of them where shape or dtype differ.
    l2 : float
        Euclidean length of b - a; NaN where the shapes differ. Where bits are equal the difference
        is 0, also between two NaNs or two infinities.
    relative_l2 : float
        ``l2`` over the length of a; 0 if ``l2`` is 0, infinite if only a is all zero.
    cosine : float
        Of the angle between a and b; 1 if ``l2`` is 0 (so also for two zero vectors), NaN if
        exactly one is all zero, because that has no direction.
    max_abs : float
        Largest difference of one parameter; 0 for a tensor without parameters.
    mean_a, std_a, mean_b, std_b : float
        Mean and population standard deviation of each; NaN for a tensor without parameters.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    shape_b: tuple[int, ...]
    dtype_b: str
    n: int
    n_differing: int
    l2: float
    relative_l2: float
    cosine: float
    max_abs: float
    mean_a: float
    std_a: float
    mean_b: float
    std_b: float


@dataclass(frozen=True)
class WeightsComparison:
    """How two files of weights differ.

    Attributes
    ----------
    equal : bool
        Whether both hold the same names, shapes and dtypes, and the same bits in every parameter.
    n_tensors, n_parameters : int
        In either file: a name both hold counts once, with the larger shape.
    n_differing : int
        Parameters with other bits, in another shape or dtype, or in one file only.
    only_a, only_b : tuple of str
        Tensors in one file only, in natural order.
    l2, relative_l2, cosine, max_abs : float
        As in `TensorComparison`, over all parameters as one vector. NaN if the two are not the
        same network (a name or shape differs): a distance over what they share would understate
        it. Two files without parameters have distance 0; see ``verdict``.
    max_abs_name : str or None
        The tensor with the largest difference of one parameter, NaN counting as the largest; None
        if ``max_abs`` is 0 or the two are not the same network.
    per_tensor : tuple of TensorComparison
        Every name both hold, in natural order (block 2 before block 10).
    """

    equal: bool
    n_tensors: int
    n_parameters: int
    n_differing: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    l2: float
    relative_l2: float
    cosine: float
    max_abs: float
    max_abs_name: str | None
    per_tensor: tuple[TensorComparison, ...]

    @property
    def verdict(self) -> Verdict:
        """``identical``, ``different``, or ``vacuous`` if neither file holds a parameter."""
        if not self.equal:
            return Verdict.DIFFERENT
        return Verdict.IDENTICAL if self.n_parameters else Verdict.VACUOUS


@dataclass(frozen=True, eq=False)
class Similarity:
    """Every file of weights against every other; N files in the order given.

    Attributes
    ----------
    paths : tuple of Path
        The N files.
    equal : ndarray of bool, shape (N, N)
        Same names, shapes, dtypes and bits.
    l2, relative_l2, cosine, max_abs : ndarray of float64, shape (N, N)
        As in `WeightsComparison`, row as a and column as b: all but ``relative_l2``, which is
        relative to the row's network, are symmetric. NaN where the two are not the same network.
    """

    paths: tuple[Path, ...]
    equal: NDArray[np.bool_]
    l2: NDArray[np.float64]
    relative_l2: NDArray[np.float64]
    cosine: NDArray[np.float64]
    max_abs: NDArray[np.float64]


def compare_weights(path_a: str | Path, path_b: str | Path) -> WeightsComparison:
    """Get whether two networks are equal to the last bit, and where and how far they are not.

    Parameters
    ----------
    path_a, path_b : str or Path
        Safetensors files. Tensors are read one at a time.

    Returns
    -------
    WeightsComparison
        Also where names, shapes or dtypes differ; that is a finding, not an error. Equal shapes
        with different dtypes (float32 and bfloat16) have a distance, and all bits count as other.

    Raises
    ------
    BadInput
        If a file is missing, incomplete, no safetensors file, or holds a dtype without a value
        in float64 (complex, 8 bits and less).
    """
    a, b = _open(path_a), _open(path_b)
    shared = [name for name in a.tensors if name in b.tensors]
    only_a = _natural_order(set(a.tensors) - set(b.tensors))
    only_b = _natural_order(set(b.tensors) - set(a.tensors))
    sums = [_compare_tensor(a, b, name) for name in _natural_order(shared)]
    rows = tuple(row for row, _ in sums)
    n_unshared = sum(a.tensors[name].n for name in only_a) + sum(
        b.tensors[name].n for name in only_b
    )
    same_network = not only_a and not only_b and all(row.shape == row.shape_b for row in rows)
    total = sum((part for _, part in sums), _Sums()) if same_network else _Sums.undefined()
    same_layout = same_network and all(row.dtype == row.dtype_b for row in rows)
    n_differing = n_unshared + sum(row.n_differing for row in rows)
    return WeightsComparison(
        equal=same_layout and n_differing == 0,
        n_tensors=len(rows) + len(only_a) + len(only_b),
        n_parameters=n_unshared + sum(row.n for row in rows),
        n_differing=n_differing,
        only_a=only_a,
        only_b=only_b,
        l2=total.l2,
        relative_l2=total.relative_l2,
        cosine=total.cosine,
        max_abs=total.max_abs,
        max_abs_name=_name_of_largest(rows) if same_network else None,
        per_tensor=rows,
    )


def similarity(
    paths: Sequence[str | Path], *, digests: Sequence[str | None] | None = None
) -> Similarity:
    """Get how far each of N networks is from each other one.

    Parameters
    ----------
    paths : sequence of str or Path
        Safetensors files. One tensor of all files is read at a time, in pieces if it is large.
    digests : sequence of str or None, optional
        Of the files' content, in the same order, None where unknown. Files with equal digests are
        taken as equal and read once, as are links to one file; the digests are not checked.

    Returns
    -------
    Similarity
        Pairs are computed one by one, not from scalar products: those cancel where networks are
        close, and would report 1e-8 of their length for two that differ by less.

    Raises
    ------
    BadInput
        If there is no file, there are not as many digests as paths, or a file cannot be read, as
        in `compare_weights`.
    """
    if not paths:
        raise BadInput("no weights file was given to compare; give at least one path")
    if digests is not None and len(digests) != len(paths):
        raise BadInput(
            f"{len(digests)} digests were given for {len(paths)} weights files; give one per "
            "file, in the same order, None where unknown"
        )
    files = [_open(path) for path in paths]
    slots = _slots_of_equal_content(files, digests)
    distinct = [files[slots.index(slot)] for slot in range(max(slots) + 1)]
    table = _similarity_of_distinct(distinct)
    every_pair = np.ix_(slots, slots)
    return Similarity(
        paths=tuple(file.path for file in files),
        equal=table.equal[every_pair],
        l2=table.l2[every_pair],
        relative_l2=table.relative_l2[every_pair],
        cosine=table.cosine[every_pair],
        max_abs=table.max_abs[every_pair],
    )


def distribution(
    path: str | Path,
    *,
    bins: int = 101,
    names: Iterable[str] | None = None,
    limits: Mapping[str, float] | None = None,
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Get a histogram of the weights of each layer group.

    Parameters
    ----------
    path : str or Path
        A safetensors file. It is read twice, one tensor at a time; once with ``limits``.
    bins : int
        Per histogram, at least 1. An odd number gives 0 a bin in the middle.
    names : iterable of str, optional
        The tensors to count; all by default.
    limits : mapping of str to float, optional
        Magnitude at which the histogram of a group ends, instead of its own largest one, so
        that files can be compared over common intervals; see `magnitudes`. It must name every
        group, and weights beyond are in no bin.

    Returns
    -------
    dict of str to (counts, edges)
        Per `layer_group`, in natural order. ``counts``: ndarray of int64, shape (bins,);
        ``edges``: ndarray of float64, shape (bins + 1,), from minus to plus the largest magnitude
        of the group (-1 to 1 if that is 0). Infinities and NaNs are in no bin, so that ``counts``
        sums to the number of finite weights.

    Raises
    ------
    BadInput
        If the file cannot be read, as in `compare_weights`, does not hold one of the names,
        ``bins`` is below 1, or ``limits`` lacks a group.
    """
    if bins < 1:
        raise BadInput(f"{bins} bins were asked for, and a histogram has at least 1; try 101")
    file = _open(path)
    chosen = _natural_order(file.tensors if names is None else _known_names(file, names))
    largest = _magnitudes(file, chosen) if limits is None else limits
    groups = list(dict.fromkeys(layer_group(name) for name in chosen))
    missing = [group for group in groups if group not in largest]
    if missing:
        raise BadInput(
            f"limits names {sorted(largest)}, but {path} also holds {', '.join(missing)}; give "
            "the largest of `magnitudes` over all files"
        )
    result = {
        group: (
            np.zeros(bins, np.int64),
            np.linspace(-largest[group] or -1.0, largest[group] or 1.0, bins + 1),
        )
        for group in groups
    }
    for name in chosen:
        counts, edges = result[layer_group(name)]
        # Intervals given by their number and ends are found six times faster than by their edges.
        counts += np.histogram(_finite_values(file, name), bins, (edges[0], edges[-1]))[0]
    return result


def magnitudes(path: str | Path) -> dict[str, float]:
    """Get the largest magnitude among the finite weights of each layer group.

    Parameters
    ----------
    path : str or Path
        A safetensors file. It is read once, one tensor at a time.

    Returns
    -------
    dict of str to float
        Per `layer_group`, in natural order; 0 for a group without finite weights.

    Raises
    ------
    BadInput
        If the file cannot be read, as in `compare_weights`.
    """
    file = _open(path)
    return _magnitudes(file, _natural_order(file.tensors))


def layer_group(name: str) -> str:
    """Get the part of the network that a tensor belongs to, from its name.

    That is the first two dotted components, three where the second is ``blocks``, without the
    kind of parameter at the end.

    Parameters
    ----------
    name : str
        As in a PyTorch ``state_dict``.

    Returns
    -------
    str
        The group.

    Examples
    --------
    >>> layer_group("encoder.blocks.0.attn.qkv.weight")
    'encoder.blocks.0'
    >>> layer_group("encoder.neck.2.bias")
    'encoder.neck'
    >>> layer_group("encoder.pos_embed")
    'encoder.pos_embed'
    >>> layer_group("out.weight")
    'out'
    >>> layer_group("W2")
    'W2'
    """
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] in _PARAMETER_KINDS:
        parts = parts[:-1]
    return ".".join(parts[:3] if parts[1:2] == ["blocks"] else parts[:2])


# Reading: the format is eight bytes of header length, a JSON header, then the tensors' bytes
# (https://huggingface.co/docs/safetensors). The library's own NumPy reader has no bfloat16.


@dataclass(frozen=True)
class _Tensor:
    dtype: str
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file

    @property
    def n(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class _WeightsFile:
    path: Path
    tensors: dict[str, _Tensor]

    def bits(
        self, name: str, start: int = 0, stop: int | None = None
    ) -> NDArray[np.unsignedinteger]:
        """Parameters start to stop of one tensor as unsigned integers of their width, flat."""
        tensor = self.tensors[name]
        width = np.dtype(_NUMPY_TYPES[tensor.dtype]).itemsize
        n = (tensor.n if stop is None else min(stop, tensor.n)) - start
        content = np.fromfile(
            self.path, f"<u{width}", count=n, offset=tensor.offset + start * width
        )
        if len(content) != n:
            raise BadInput(f"{self.path} became shorter while it was read; let its writer finish")
        return content


def _open(path: str | Path) -> _WeightsFile:
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        with safe_open(path, framework="numpy"):
            pass  # the library checks the header, every range in it and the file's length
        with path.open("rb") as stream:
            n_header = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(n_header))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; give a .safetensors file of weights") from None
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"{path} cannot be read as a safetensors file ({error}); if it was copied or "
            "downloaded, do that again, and if it is a PyTorch checkpoint, save its state_dict "
            "with safetensors.torch.save_file first"
        ) from error
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if entry["dtype"] not in _NUMPY_TYPES:
            raise BadInput(
                f"{path} holds {name} as {entry['dtype']}, and {', '.join(_NUMPY_TYPES)} can be "
                "compared; store it as one of these"
            )
    return _WeightsFile(
        path,
        {
            name: _Tensor(
                entry["dtype"], tuple(entry["shape"]), 8 + n_header + entry["data_offsets"][0]
            )
            for name, entry in header.items()
        },
    )


def _values(bits: NDArray[np.unsignedinteger], dtype: str) -> NDArray[np.float64]:
    """The numbers that the bits stand for; 64-bit integers are rounded beyond 2**53."""
    if dtype == "BF16":
        upper_half = bits.astype("<u4") << np.uint32(16)
        return upper_half.view("<f4").astype(np.float64)
    with np.errstate(invalid="ignore"):  # raised by casting a signalling NaN
        return bits.view(_NUMPY_TYPES[dtype]).astype(np.float64)


def _finite_values(file: _WeightsFile, name: str) -> NDArray[np.float64]:
    values = _values(file.bits(name), file.tensors[name].dtype)
    return values[np.isfinite(values)]


def _magnitudes(file: _WeightsFile, names: Iterable[str]) -> dict[str, float]:
    largest: dict[str, float] = {}
    for name in names:
        group = layer_group(name)
        magnitude = float(np.max(np.abs(_finite_values(file, name)), initial=0))
        largest[group] = max(largest.get(group, 0.0), magnitude)
    return largest


def _known_names(file: _WeightsFile, names: Iterable[str]) -> list[str]:
    chosen = list(names)
    for name in chosen:
        if name not in file.tensors:
            close = difflib.get_close_matches(name, file.tensors) or sorted(file.tensors)[:3]
            raise BadInput(f"{file.path} holds no tensor {name!r}; it holds for example {close}")
    return list(dict.fromkeys(chosen))


def _natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted with numbers as numbers: blocks.2 before blocks.10."""
    return tuple(sorted(names, key=_natural_key))


def _natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    # [0-9], not \d, which takes digits that int() refuses; the name itself settles "1" and "01".
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)], name


# Distances


@dataclass(frozen=True)
class _Sums:
    """What distances between two vectors are made of; the sum of two is that of both parts."""

    difference: float = 0.0  # sum of (b - a)**2
    squares_a: float = 0.0
    squares_b: float = 0.0
    product: float = 0.0
    max_abs: float = 0.0

    @classmethod
    def undefined(cls) -> "_Sums":
        return cls(math.nan, math.nan, math.nan, math.nan, math.nan)

    def __add__(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.difference + other.difference,
            self.squares_a + other.squares_a,
            self.squares_b + other.squares_b,
            self.product + other.product,
            float(np.maximum(self.max_abs, other.max_abs)),  # unlike max(), keeps NaN
        )

    @property
    def l2(self) -> float:
        return math.sqrt(self.difference)

    @property
    def relative_l2(self) -> float:
        if self.difference == 0:
            return 0.0
        return self.l2 / math.sqrt(self.squares_a) if self.squares_a else math.inf

    @property
    def cosine(self) -> float:
        if self.difference == 0:
            return 1.0
        if self.squares_a == 0 or self.squares_b == 0:
            return math.nan
        cosine = self.product / (math.sqrt(self.squares_a) * math.sqrt(self.squares_b))
        return float(np.clip(cosine, -1, 1))  # rounding can exceed 1


def _sums(
    values_a: NDArray[np.float64], values_b: NDArray[np.float64], same_bits: NDArray[np.bool_]
) -> _Sums:
    # Sums, not dot products: BLAS adds in an order that depends on its number of threads.
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        difference = np.abs(values_b - values_a)
        difference[same_bits | (values_a == values_b)] = 0  # NaN - NaN, inf - inf
        return _Sums(
            difference=float(np.square(difference).sum()),
            squares_a=float(np.square(values_a).sum()),
            squares_b=float(np.square(values_b).sum()),
            product=float((values_a * values_b).sum()),
            max_abs=float(difference.max(initial=0)),
        )


def _compare_tensor(a: _WeightsFile, b: _WeightsFile, name: str) -> tuple[TensorComparison, _Sums]:
    tensor_a, tensor_b = a.tensors[name], b.tensors[name]
    bits_a, bits_b = a.bits(name), b.bits(name)
    values_a, values_b = _values(bits_a, tensor_a.dtype), _values(bits_b, tensor_b.dtype)
    if tensor_a.shape != tensor_b.shape:
        n_differing, sums = max(tensor_a.n, tensor_b.n), _Sums.undefined()
    else:
        same_bits = np.zeros(tensor_a.n, bool)
        if tensor_a.dtype == tensor_b.dtype:
            same_bits = bits_a == bits_b
        n_differing = int(np.count_nonzero(~same_bits))
        sums = _sums(values_a, values_b, same_bits)
    mean_a, std_a = _mean_and_std(values_a)
    mean_b, std_b = _mean_and_std(values_b)
    row = TensorComparison(
        name=name,
        shape=tensor_a.shape,
        dtype=tensor_a.dtype,
        shape_b=tensor_b.shape,
        dtype_b=tensor_b.dtype,
        n=max(tensor_a.n, tensor_b.n),
        n_differing=n_differing,
        l2=sums.l2,
        relative_l2=sums.relative_l2,
        cosine=sums.cosine,
        max_abs=sums.max_abs,
        mean_a=mean_a,
        std_a=std_a,
        mean_b=mean_b,
        std_b=std_b,
    )
    return row, sums


def _mean_and_std(values: NDArray[np.float64]) -> tuple[float, float]:
    if not len(values):
        return math.nan, math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        return float(values.mean()), float(values.std())


def _name_of_largest(rows: Sequence[TensorComparison]) -> str | None:
    differing = [row for row in rows if row.max_abs != 0]  # NaN != 0
    if not differing:
        return None
    return max(differing, key=lambda row: (math.isnan(row.max_abs), row.max_abs)).name


# All pairs


def _slots_of_equal_content(
    files: Sequence[_WeightsFile], digests: Sequence[str | None] | None
) -> list[int]:
    """For each file the number of its content, from 0 in order of appearance."""
    slot_of: dict[object, int] = {}
    slots: list[int] = []
    for file, digest in zip(files, digests or [None] * len(files), strict=True):
        status = file.path.stat()
        keys: list[object] = [(status.st_dev, status.st_ino)]
        if digest is not None:
            keys.append(digest)
        known = [slot_of[key] for key in keys if key in slot_of]
        slots.append(known[0] if known else len(set(slots)))
        slot_of.update(dict.fromkeys(keys, slots[-1]))
    return slots


def _similarity_of_distinct(files: Sequence[_WeightsFile]) -> Similarity:
    n = len(files)
    networks = [{name: tensor.shape for name, tensor in file.tensors.items()} for file in files]
    equal = np.eye(n, dtype=bool)
    undefined = np.full((n, n), np.nan)
    result = Similarity(
        paths=tuple(file.path for file in files),
        equal=equal,
        l2=undefined.copy(),
        relative_l2=undefined.copy(),
        cosine=undefined.copy(),
        max_abs=undefined.copy(),
    )
    left = list(range(n))
    while left:
        members = [i for i in left if networks[i] == networks[left[0]]]
        left = [i for i in left if i not in members]
        _fill_in_one_network(result, files, members)
    return result


def _fill_in_one_network(
    result: Similarity, files: Sequence[_WeightsFile], members: Sequence[int]
) -> None:
    """Write the entries of the files that hold the same names and shapes into ``result``."""
    pairs = [(i, j) for i in members for j in members if i < j]
    total = dict.fromkeys(pairs, _Sums())
    equal = dict.fromkeys(pairs, True)
    for name, start, stop in _pieces(files[members[0]], len(members)) if pairs else ():
        dtypes = {i: files[i].tensors[name].dtype for i in members}
        bits = {i: files[i].bits(name, start, stop) for i in members}
        values = {i: _values(bits[i], dtypes[i]) for i in members}
        for i, j in pairs:
            same_bits = np.zeros(len(bits[i]), bool)
            if dtypes[i] == dtypes[j]:
                same_bits = bits[i] == bits[j]
            equal[i, j] &= dtypes[i] == dtypes[j] and bool(same_bits.all())
            total[i, j] += _sums(values[i], values[j], same_bits)
    for i in members:
        result.l2[i, i] = result.relative_l2[i, i] = result.max_abs[i, i] = 0
        result.cosine[i, i] = 1
    for (i, j), sums in total.items():
        swapped = _Sums(sums.difference, sums.squares_b, sums.squares_a, sums.product, sums.max_abs)
        for row, column, entry in ((i, j, sums), (j, i, swapped)):
            result.equal[row, column] = equal[i, j]
            result.l2[row, column] = entry.l2
            result.relative_l2[row, column] = entry.relative_l2
            result.cosine[row, column] = entry.cosine
            result.max_abs[row, column] = entry.max_abs


def _pieces(file: _WeightsFile, n_files: int) -> Iterator[tuple[str, int, int]]:
    """(name, start, stop) of all parameters, few enough at a time to hold them of every file."""
    step = max(1, _CHUNK_VALUES // n_files)
    for name, tensor in file.tensors.items():
        # A tensor without parameters is a piece as well: its dtype takes part in equality.
        for start in range(0, max(tensor.n, 1), step):
            yield name, start, start + step
