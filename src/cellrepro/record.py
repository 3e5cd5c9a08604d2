"""Record how each segmentation was made, in a script or notebook of one's own.

Nothing of this file needs the rest of the package: it works with Python 3.8 and newer, NumPy, and
Cellpose 2, 3 or 4, and can be copied beside a script (then ``from record import recorded``)::

    from cellrepro.record import recorded

    model = recorded(CellposeModel(gpu=True), "results")
    masks, flows, styles = model.eval(image, diameter=30, record_as="img_03")

writes ``results/img_03_masks.json``. The model is called as before and gives what it gave before.
The fields of a record are in ``record_schema.json`` of the package, and in ``docs/recorder.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import operator
import os
import platform
import secrets
import sys
import time
import warnings
import weakref
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    Array = np.ndarray[tuple[int, ...], np.dtype[np.generic[object]]]

FORMAT = "cellrepro record 1"
"""Stands in every record; its number changes with the meaning of a field."""

Model = TypeVar("Model")


class Segments(Protocol):
    """What every model of Cellpose has."""

    def eval(self, x: object, *arguments: object, **named_arguments: object) -> object:
        """Give masks, flows and styles."""


class _Tensor(Protocol):
    """What a tensor of PyTorch has, as far as it is used here."""

    dtype: object
    shape: Sequence[int]
    is_mkldnn: bool

    def numel(self) -> int: ...
    def detach(self) -> _Tensor: ...
    def cpu(self) -> _Tensor: ...
    def contiguous(self) -> _Tensor: ...
    def to_dense(self) -> _Tensor: ...
    def view(self, dtype: object) -> _Tensor: ...
    def numpy(self) -> Array: ...


class _Network(Protocol):
    """What a network of PyTorch has, as far as it is used here."""

    def state_dict(self, *, keep_vars: bool) -> Mapping[str, _Tensor]: ...


_BLOCK = 2**18  # bytes of a file that are read at a time
_FEW = 64  # elements of an array among the arguments that are written out
_IMAGE_ENDINGS = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".npy", ".nd2", ".czi", ".lif", ".nrrd")
_DISTRIBUTIONS = ("cellpose", "torch", "numpy", "segment-anything")
_FOR_EACH_IMAGE = ("diameter", "rescale", "channels")
"""Arguments of which Cellpose takes one value for each image of a list."""


def recorded(model: Model, folder: str | Path = ".", *, name: str | None = None) -> Model:
    """Give a model of Cellpose whose ``eval`` also records how its masks were made.

    Parameters
    ----------
    model : CellposeModel, Cellpose or CellposeDenoiseModel
        Of Cellpose 2, 3 or 4. It is left as it is.
    folder : str or Path
        Where records are written; it is made if it is not there. Give the folder of the masks:
        `cellrepro explain`, `compare` and `describe` look there.
    name : str, optional
        Name of the image, for a script that segments only one. Without it, and without
        ``record_as`` in a call, a record is named after its own content.

    Returns
    -------
    CellposeModel, Cellpose or CellposeDenoiseModel
        Stands in front of ``model`` and does what that does. Its ``eval`` takes one argument more:
        ``record_as``, the name of the image, or the path of the image or of the masks; for a list
        of images a list of names. Of a path that leads out of ``folder`` the name alone counts.

    Raises
    ------
    TypeError
        If it is no model whose ``eval`` takes images and gives masks.

    Notes
    -----
    ``NAME_masks.json`` replaces an older record of the same pixels, never one of different pixels.
    Where a record cannot be written, a warning says why, and the masks are returned all the same.
    """
    if isinstance(model, RecordedModel):
        model = model.__dict__["_recorder"].model
    parameters = inspect.signature(getattr(model, "eval", _no_eval)).parameters
    if "x" not in parameters or "cellprob_threshold" not in {*parameters, *_inner_names(model)}:
        raise TypeError(
            f"recorded() got a {type(model).__name__}, whose eval gives no masks; expected a "
            "CellposeModel, Cellpose or CellposeDenoiseModel"
        )
    recorder = _Recorder(cast(Segments, model), Path(folder), name)
    recorder.networks()  # digests that are computed once, before the first image
    return cast(Model, RecordedModel(recorder))


def masks_digest(masks: Array) -> str:
    """SHA-256 of the labels of an image, whatever the integers in which they are stored.

    Parameters
    ----------
    masks : ndarray of int, shape (Y, X) or (Z, Y, X)
        0 is background.

    Returns
    -------
    str
        64 digits in lower-case hex: of the shape, as Python writes it, and the labels as
        little-endian 32-bit integers in C order.

    Raises
    ------
    ValueError
        If they are no whole numbers from 0 to 4294967295.

    Examples
    --------
    >>> a = np.array([[0, 1], [2, 2]])
    >>> masks_digest(a.astype(np.uint16)) == masks_digest(a.astype(np.int64))
    True
    """
    if masks.dtype.kind not in "iu":
        raise ValueError(f"masks of dtype {masks.dtype} are no label image; expected integers")
    lowest, highest = (int(masks.min()), int(masks.max())) if masks.size else (0, 0)
    if lowest < 0 or highest >= 2**32:
        raise ValueError(
            f"masks hold numbers from {lowest} to {highest}; expected 0 to {2**32 - 1}"
        )
    digest = hashlib.sha256(str(masks.shape).encode())
    digest.update(np.ascontiguousarray(masks, dtype="<u4").data)
    return digest.hexdigest()


class RecordedModel:
    """Stands in front of a model of Cellpose; made by `recorded`."""

    _recorder: _Recorder

    def __init__(self, recorder: _Recorder) -> None:
        self.__dict__["_recorder"] = recorder

    def __getattr__(self, name: str) -> object:
        if name == "_recorder":
            raise AttributeError(name)  # while it is copied, nothing is there yet
        return getattr(self._recorder.model, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._recorder.model, name, value)

    def __repr__(self) -> str:
        return f"recorded({self._recorder.model!r})"

    def eval(
        self,
        x: object,
        *arguments: object,
        record_as: str | Path | list[str | Path] | None = None,
        **named_arguments: object,
    ) -> object:
        """Segment as the model itself does, and record how.

        Parameters
        ----------
        x : ndarray or list of ndarray
            As for the model.
        *arguments : object
            As for the model.
        record_as : str or Path, or a list of them, optional
            Name of the image, or path of the image or of the masks; one for each image of a list.
        **named_arguments : object
            As for the model's ``eval``, which documents them.

        Returns
        -------
        tuple
            What the model gives.

        Raises
        ------
        ValueError
            If there are more or fewer names than images.
        """
        recorder = self._recorder
        images = _images_of(x)
        names = recorder.names(record_as, len(images))
        call = recorder.described_call(images, arguments, named_arguments)
        start = time.perf_counter()
        result = recorder.model.eval(x, *arguments, **named_arguments)
        seconds = time.perf_counter() - start
        if call is not None:
            recorder.write(call, result, seconds=seconds, names=names, is_list=_is_list(x))
        return result


@dataclass(frozen=True)
class _CallOfEval:
    """A call of ``eval``, as it was before the network ran."""

    images: list[object]
    """As they were passed."""
    received: list[dict[str, object]]
    """Digest, type, shape and axes of each, before ``eval`` could change it."""
    passed: dict[str, object]
    """Arguments that were passed, by name."""
    defaults: dict[str, object]
    """Defaults of the other arguments."""
    normalize: dict[str, object] | None
    """Every field of the normalisation; None for Cellpose 2, which has none."""

    def of_image(self, i: int) -> dict[str, object]:
        """Give the arguments that were passed for one of the images."""
        n_images = len(self.images)
        return {name: _for_image(name, v, i, n_images) for name, v in self.passed.items()}

    def image(self, i: int) -> dict[str, object]:
        """Describe one of the images, and whether ``eval`` has changed it meanwhile.

        Cellpose 4.2.1.1 scales the intensities of arrays of float32 in place.
        """
        received = self.received[i]
        now = _array(_as_array(self.images[i]))
        return {**received, "changed_by_eval": now["digest"] != received["digest"]}


@dataclass(frozen=True)
class _KnownNetwork:
    """A network as it was when its digest was computed."""

    tensors: Sequence[weakref.ref[_Tensor]]
    """Its parameters and buffers."""
    state: Sequence[tuple[object, ...]]
    """The type of each, and a CRC of its values."""
    digest: str

    def is_still(self, tensors: Sequence[_Tensor], state: Sequence[tuple[object, ...]]) -> bool:
        """Whether these are the same tensors, and nobody has changed them."""
        known = [reference() for reference in self.tensors]
        is_same = len(known) == len(tensors) and all(map(operator.is_, known, tensors))
        return is_same and state == self.state


@dataclass(frozen=True)
class _Recorder:
    """Describes the calls of one model, and writes their records."""

    model: Segments
    """A model of Cellpose."""
    folder: Path
    """Where records are written."""
    name: str | None
    """Name of the image, where a call gives none."""
    known_files: dict[object, str] = field(default_factory=dict)
    """Digests of files that have not changed since."""
    known_networks: dict[str, _KnownNetwork] = field(default_factory=dict)
    """The same of networks, by role."""

    def names(self, record_as: object, n_images: int) -> list[str | None]:
        """Give the name of each image; None for one that is named after its record."""
        if record_as is None or isinstance(record_as, (str, os.PathLike)):
            given = self.name if record_as is None else os.fspath(record_as)
            if given is None or n_images == 1:
                return [given] * n_images
            stem = _stem(given)
            return [str(Path(given).with_name(f"{stem}_{i}")) for i in range(n_images)]
        several = [os.fspath(name) for name in record_as]  # type: ignore[attr-defined]
        if len(several) != n_images:
            raise ValueError(
                f"record_as has {len(several)} names for {n_images} images; expected one for each"
            )
        return cast("list[str | None]", several)

    def described_call(
        self, images: list[object], arguments: tuple[object, ...], named: dict[str, object]
    ) -> _CallOfEval | None:
        """Describe a call; None, with a warning, where that fails, as the masks matter more."""
        try:
            passed, defaults = _arguments(self.model, arguments, named)
        except TypeError:
            return None  # wrong arguments: Cellpose says so itself
        try:
            in_force = {**defaults, **passed}
            return _CallOfEval(
                images=images,
                received=[_received(image, in_force) for image in images],
                passed=passed,
                defaults=defaults,
                normalize=_normalize_in_force(self.model, in_force),
            )
        except Exception as error:
            _warn(f"this call of eval is not recorded: {error!r}")
            return None

    def circumstances(self) -> dict[str, object]:
        """Describe all that does not depend on the image: networks, device, versions."""
        networks = self.networks()
        return {
            "model": _class_name(self.model),
            "networks": networks,
            "device": _device(self.model),
            "precision": networks[0]["dtype"] if networks else None,
            "torch": _torch_settings(),
            "versions": _versions(),
            "system": {"system": platform.system(), "machine": platform.machine()},
        }

    def networks(self) -> list[dict[str, object]]:
        """Describe every network of the model, that which segments first."""
        described = []
        for role, owner, name in _NETWORKS:
            holder = getattr(self.model, owner, None) if owner else self.model
            network = getattr(holder, name, None)
            if network is not None and hasattr(network, "state_dict"):
                paths = getattr(holder, "pretrained_model", None) if name == "net" else None
                described.append(self._network(role, network, holder, _as_list(paths)))
        size_model = getattr(self.model, "pretrained_size", None)
        if size_model:
            described.append({"role": "size", "files": self._files([size_model])})
        return described

    def _network(
        self, role: str, network: _Network, holder: object, paths: Sequence[object]
    ) -> dict[str, object]:
        by_name = _tensors_of(network)
        tensors = list(by_name.values())
        state = [_state(tensor) for tensor in tensors]
        known = self.known_networks.get(role)
        if known is None or not known.is_still(tensors, state):
            known = _KnownNetwork([*map(weakref.ref, tensors)], state, _tensors_digest(by_name))
            self.known_networks[role] = known
        sizes = {
            name: float(value)
            for name in ("diam_mean", "diam_labels")
            for value in [getattr(holder, name, None)]
            if value is not None
        }
        return {
            "role": role,
            "files": self._files(paths),
            "digest": known.digest,
            "dtype": ", ".join(sorted({str(tensor.dtype).split(".")[-1] for tensor in tensors})),
            "n_parameters": sum(tensor.numel() for tensor in tensors),
            **sizes,
        }

    def _files(self, paths: Sequence[object]) -> list[dict[str, object]]:
        """Path and SHA-256 of files of weights; no digest of one that is gone."""
        files: list[dict[str, object]] = []
        for given in paths:
            path = Path(str(given))
            digest = None
            if path.is_file():
                status = path.stat()
                state = (str(path), status.st_size, status.st_mtime_ns)
                if state not in self.known_files:
                    self.known_files[state] = _file_digest(path)
                digest = self.known_files[state]
            files.append({"path": str(path), "digest": digest})
        return files

    def write(
        self,
        call: _CallOfEval,
        result: object,
        *,
        seconds: float,
        names: list[str | None],
        is_list: bool,
    ) -> None:
        """Write a record for each image; a warning says where that fails."""
        try:
            outputs = result if isinstance(result, tuple) else (result,)
            circumstances = self.circumstances()
            for i, name in enumerate(names):
                index = i if is_list else None
                passed = call.of_image(i)
                in_force = {**call.defaults, **passed}
                record = {
                    "format": FORMAT,
                    **circumstances,
                    "arguments": {"passed": passed, "defaults": call.defaults},
                    "normalize": call.normalize,
                    "diameter_used": _diameter_used(self.model, in_force, outputs, index),
                    "image": {**call.image(i), "index": index},
                    "masks": _masks(_output_of(outputs[0], index)),
                }
                self._write_one(record, name, seconds)
        except Exception as error:
            _warn(f"this call of eval is not recorded: {error!r}")

    def _write_one(self, record: dict[str, object], name: str | None, seconds: float) -> None:
        digits = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:8]
        path = self.folder / f"cellpose-{digits}_masks.json"
        if name is not None:
            place = _within(self.folder, name)
            path = self.folder / place.with_name(f"{_stem(name)}_masks.json")
            if not _may_replace(path, record):
                taken = path
                path = path.with_name(f"{_stem(name)}_{digits}_masks.json")
                _warn(f"{taken} is of different pixels and is kept; this record is {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        timed = {**record, "recorded_at": now, "seconds": round(seconds, 3)}
        if not _may_replace(path, record):
            raise FileExistsError(f"{path} is no record of these pixels, and is kept")
        _write_whole(path, json.dumps(timed, indent=1, ensure_ascii=False) + "\n")


_NETWORKS = (
    ("segmentation", "", "net"),
    ("segmentation", "cp", "net"),
    ("segmentation of planes XZ and YZ", "", "net_ortho"),
    ("restoration", "dn", "net"),
    ("restoration of the second channel", "dn", "net_chan2"),
)
"""Role; attribute of the model that holds the network (``Cellpose.cp``); its attribute there."""


def _within(folder: Path, name: str) -> Path:
    """Give a path relative to the folder of the records; of one that leads out of it, its name."""
    whole = os.path.abspath(folder / name)  # noqa: PTH100 - links in the folder stay as they are
    try:
        return Path(whole).relative_to(os.path.abspath(folder))  # noqa: PTH100
    except ValueError:
        return Path(Path(name).name)


def _no_eval() -> None:
    """Stand in for a missing ``eval``."""


def _inner_names(model: object) -> list[str]:
    """Arguments that ``Cellpose.eval`` of Cellpose 3 hands on to the model inside."""
    inner = getattr(model, "cp", None)
    return list(inspect.signature(inner.eval).parameters) if inner is not None else []


def _arguments(
    model: Segments, arguments: tuple[object, ...], named: dict[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Give what was passed to ``eval`` by name, and the defaults of the rest."""
    signature = inspect.signature(model.eval)
    bound = signature.bind(None, *arguments, **named)
    passed: dict[str, object] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            passed.update(value)
        elif name != "x":
            passed[name] = value
    parameters = dict(signature.parameters)
    handed_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if handed_on:
        inner = inspect.signature(getattr(model, "cp").eval).parameters  # noqa: B009 (of some models)
        parameters = {**inner, **parameters}
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in passed and parameter.default is not inspect.Parameter.empty
    }
    for name in _FOR_EACH_IMAGE:
        if isinstance(passed.get(name), np.ndarray):
            passed[name] = passed[name].tolist()  # type: ignore[attr-defined]
    # Plain values at once: Cellpose, or the script, may change a list or dictionary later.
    return (
        cast("dict[str, object]", _plain(passed)),
        cast("dict[str, object]", _plain(defaults)),
    )


def _plain(value: object) -> object:
    """Give a value as JSON has it; for any other object its class, never its address."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist()) if value.size <= _FEW else _array(value)
    return f"<{_class_name(value)}>"


def _for_image(name: str, value: object, i: int, n_images: int) -> object:
    """The value of an argument for one of several images."""
    if name not in _FOR_EACH_IMAGE or not isinstance(value, list) or len(value) != n_images:
        return value
    if name == "channels" and not (isinstance(value[0], list) and len(value[0]) == 2):
        return value
    return value[i]


# -- images and masks ------------------------------------------------------------------------


def _is_list(x: object) -> bool:
    """Whether Cellpose takes this for several images, one by one."""
    return isinstance(x, list) or np.squeeze(_as_array(x)).ndim == 5


def _images_of(x: object) -> list[object]:
    if isinstance(x, list):
        return x
    return list(_as_array(x)) if _is_list(x) else [x]


def _as_array(image: object) -> Array:
    """View an image as an array; only a tensor on a GPU is copied."""
    if hasattr(image, "detach"):  # a tensor
        image = cast(_Tensor, image).detach().cpu()
    return np.asarray(cast("ArrayLike", image))


def _output_of(outputs: object, index: int | None) -> object:
    """The output for one image of a list, or for the only image."""
    return outputs if index is None else cast("Sequence[object]", outputs)[index]


def _received(image: object, arguments: dict[str, object]) -> dict[str, object]:
    """Describe an image as it was passed."""
    array = _as_array(image)
    return {
        **_array(array),
        "axes": _axes(array.ndim, arguments),
        "type": _class_name(image),
    }


def _array(array: Array) -> dict[str, object]:
    """Digest, type and shape; the digest is that of `digests.array_digest` in this package."""
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.sha256(f"{little_endian.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(little_endian).view(np.uint8).data)
    return {"digest": digest.hexdigest(), "dtype": str(array.dtype), "shape": list(array.shape)}


def _axes(n_axes: int, arguments: dict[str, object]) -> str | None:
    """Letters of the axes; None where the arguments leave Cellpose to guess."""
    letters = ["?"] * n_axes
    for name, letter in (("channel_axis", "C"), ("z_axis", "Z")):
        axis = arguments.get(name)
        if isinstance(axis, int) and -n_axes <= axis < n_axes:
            letters[axis] = letter
    rest = [i for i, letter in enumerate(letters) if letter == "?"]
    if len(rest) != 2:
        return None
    letters[rest[0]] = "Y"
    letters[rest[1]] = "X"
    return "".join(letters)


def _masks(masks: object) -> dict[str, object] | None:
    """Describe the label image that came out; None where none was asked for."""
    if not isinstance(masks, np.ndarray) or masks.ndim < 2:
        return None
    return {
        "digest": masks_digest(masks),
        "dtype": str(masks.dtype),
        "shape": list(masks.shape),
        "largest_label": int(masks.max(initial=0)),
    }


# -- what else decides about masks -----------------------------------------------------------


def _normalize_in_force(model: Segments, arguments: dict[str, object]) -> dict[str, object] | None:
    """Every field of the normalisation for this call.

    Cellpose 3 and 4 keep the defaults in a global dictionary that a call may change for the next.
    """
    names = getattr(type(model).eval, "__globals__", {})
    fields = names.get("normalize_default")
    if fields is None:
        return None
    given = arguments.get("normalize")
    if not isinstance(given, dict):
        given = {"normalize": given}
        if "invert" in arguments:
            given["invert"] = arguments["invert"]
    return cast("dict[str, object]", _plain({**fields, **given}))


def _diameter_used(
    model: object, arguments: dict[str, object], outputs: tuple[object, ...], index: int | None
) -> float | None:
    """Diameter in pixels by which the image was rescaled; None where it was not."""
    if hasattr(model, "sz") and len(outputs) > 3:  # Cellpose 2 and 3 with a model of sizes
        diameters = np.ravel(cast("ArrayLike", outputs[3]))
        return float(diameters[min(index or 0, diameters.size - 1)])
    diameter = arguments.get("diameter")
    if isinstance(diameter, (int, float)) and diameter > 0:
        return float(diameter)
    segmenting = getattr(model, "cp", model)
    usual = getattr(segmenting, "diam_labels", None)  # Cellpose 2 and 3
    if usual is None:
        return None
    rescale = arguments.get("rescale")
    if isinstance(rescale, (int, float)):
        return float(getattr(segmenting, "diam_mean", 30)) / rescale
    return float(usual)


def _device(model: object) -> dict[str, object]:
    """The device of the network, and its hardware."""
    device = getattr(model, "device", None) or getattr(getattr(model, "cp", None), "device", None)
    torch = sys.modules.get("torch")
    hardware = platform.processor() or platform.machine()
    has_cuda = bool(torch and torch.cuda.is_available())
    if torch and has_cuda and str(device).startswith("cuda"):
        hardware = torch.cuda.get_device_name(device)
    return {"name": str(device), "hardware": hardware, "cuda_available": has_cuda}


def _torch_settings() -> dict[str, object]:
    """Switches of PyTorch that change the last bits of a result."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    deterministic = getattr(torch, "are_deterministic_algorithms_enabled", None)
    return {
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": None if deterministic is None else deterministic(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "autocast": torch.is_autocast_enabled(),
    }


def _versions() -> dict[str, object]:
    """Installed versions of the libraries that compute; None for one that is not installed."""
    versions: dict[str, object] = {"python": platform.python_version()}
    versions.update((name, _version(name)) for name in _DISTRIBUTIONS)
    # What was imported says more: "2.6.0+cpu"; and OpenCV has a dozen distributions.
    for name, module in (("torch", "torch"), ("numpy", "numpy"), ("opencv", "cv2")):
        imported = sys.modules.get(module)
        versions[name] = getattr(imported, "__version__", versions.get(name))
    return versions


@lru_cache(maxsize=None)
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


# -- digests and files -----------------------------------------------------------------------


def _tensors_of(network: _Network) -> dict[str, _Tensor]:
    """Parameters and buffers by name, without ``num_batches_tracked``.

    Cellpose 2 and 3 drop these counters when they first compute on a processor.
    """
    tensors = network.state_dict(keep_vars=True)
    return {n: tensor for n, tensor in tensors.items() if not n.endswith("num_batches_tracked")}


def _state(tensor: _Tensor) -> tuple[object, ...]:
    """The type of a tensor, and a CRC of its values, in half the time of a SHA-256.

    ``_version`` of a tensor would not do: writes through ``.data`` or NumPy, as of averaged
    weights, do not increment it, and tensors of inference mode have none.
    """
    return tensor.dtype, zlib.crc32(_values(tensor).data)


def _tensors_digest(tensors: Mapping[str, _Tensor]) -> str:
    """SHA-256 of tensors in the order of their names: name, type, shape and values of each."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_values(tensor).data)
    return digest.hexdigest()


def _values(tensor: _Tensor) -> Array:
    """The values of a tensor as contiguous bytes."""
    tensor = tensor.detach().cpu()
    if tensor.is_mkldnn:
        tensor = tensor.to_dense()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has no such type
        tensor = tensor.contiguous().view(sys.modules["torch"].int16)
    return np.ascontiguousarray(tensor.numpy()).view(np.uint8)


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _write_whole(path: Path, text: str) -> None:
    """Write a file atomically: to a scratch file of its own, which is then renamed."""
    scratch = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}.part")
    try:
        with scratch.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise


def _may_replace(path: Path, record: dict[str, object]) -> bool:
    """Whether a file is not there, or is a record of the same pixels."""
    if not path.exists():
        return True
    try:
        older = json.loads(path.read_text(encoding="utf-8"))
        return bool(older["format"] == FORMAT and _digest_of(older) == _digest_of(record))
    except (ValueError, KeyError, TypeError):
        return False


def _digest_of(record: dict[str, object]) -> object:
    """The digest of the pixels of a record."""
    return cast("dict[str, object]", record["image"])["digest"]


def _stem(name: str | Path) -> str:
    """The name of an image or of masks, without ``_masks`` and the ending of an image.

    >>> [_stem(name) for name in ("img_03", "a/img_03.tif", "img_03_masks.tif", "well.B2")]
    ['img_03', 'img_03', 'img_03', 'well.B2']
    """
    path = Path(name)
    stem = path.stem if path.suffix.lower() in _IMAGE_ENDINGS else path.name
    return stem[: -len("_masks")] if stem.endswith("_masks") and stem != "_masks" else stem


def _as_list(value: object) -> list[object]:
    """A list of paths; Cellpose 2 keeps a list, Cellpose 3 and 4 a single path."""
    if isinstance(value, (list, tuple)):
        return [*value]
    return [value] if value else []


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _warn(text: str) -> None:
    """Warn at the line that called ``eval``: the nearest frame outside this file."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
        level += 1
    warnings.warn(text, stacklevel=level)
