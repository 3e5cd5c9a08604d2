"""Networks that Cellpose loads by itself; those with missing parameters are refused."""

from __future__ import annotations

import http.client
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.model.cellpose_generation import generation_of, installed_version
from cellrepro.torch_files import format_of, is_saved_by_torch
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import amount, some

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.weight_sources import ModelSource

NOT_DRAWN = frozenset({"diam_labels", "diam_mean"})
"""Parameters that are the same in every new network; training sets the first."""


def load_pretrained(source: ModelSource) -> CellposeNetwork:
    """Load through Cellpose, which downloads its named networks on first use."""
    try:
        if source.path is None:
            _refuse_unknown_name(source.label)
            return _load(source.label, source.label)
        if is_saved_by_torch(source.path):
            return _load(str(source.path), str(source.path))
        with tempfile.TemporaryDirectory() as scratch:
            converted = _in_cellpose_format(source.path, Path(scratch))
            return _load(str(converted), str(source.path))
    except BadInput:
        raise
    except Exception as error:  # what unpickling another file ends in can be nearly any
        raise _cannot_load(source, error) from error


def known_to_cellpose(name: str) -> bool:
    """Whether Cellpose has a model of that name, its own or one that the user registered."""
    from cellpose import models

    return name in {*models.MODEL_NAMES, *models.get_user_models()}


def _refuse_unknown_name(name: str) -> None:
    """Refuse a name that Cellpose does not know: it would take another network (4.2.1.1)."""
    from cellpose import models

    if name not in models.MODEL_NAMES:
        raise BadInput(
            f"this Cellpose knows no model {name!r}; expected {some(models.MODEL_NAMES)}"
        )


def _in_cellpose_format(path: Path, scratch: Path) -> Path:
    """Write the parameters of a safetensors file in the format that Cellpose reads."""
    import torch
    from safetensors.torch import load_file

    converted = scratch / "weights.pth"
    torch.save(load_file(path), converted)
    return converted


def _load(name_or_path: str, asked_for: str) -> CellposeNetwork:
    """Load a network by its name or a file in Cellpose's format; messages say ``asked_for``."""
    import torch
    from cellpose import models

    cpu = torch.device("cpu")
    if generation_of().has_precision:
        model = models.CellposeModel(pretrained_model=name_or_path, device=cpu, use_bfloat16=False)
    else:  # Cellpose 3: another network, another `eval`
        model = models.CellposeModel(pretrained_model=name_or_path, device=cpu)
        model.net.loaded_by = model
    _refuse_incomplete(model.net, model.pretrained_model, asked_for)
    return model.net


def _cannot_load(source: ModelSource, error: Exception) -> BadInput | NotPossibleHere:
    """The error for a network that Cellpose failed to load."""
    from cellpose import models

    reason = (str(error).strip() or repr(error)).splitlines()[0]
    is_named = source.path is None
    if is_named and isinstance(error, OSError | http.client.HTTPException):
        return NotPossibleHere(
            f"the weights of {source.label!r} are not on this machine and cannot be downloaded "
            f"({reason}); download them elsewhere and put them into Cellpose's folder of "
            "models, or name the file"
        )
    cached = models.MODEL_DIR / source.label
    networks = generation_of().networks
    remedy = f"; remove {cached} to have it downloaded again" if is_named else ""
    return BadInput(
        f"Cellpose {installed_version()} cannot load {str(source.path or source.label)!r}: "
        f"{reason}; expected whole weights of a network of {networks}{remedy}; "
        "`cellrepro describe FILE` says of which Cellpose a file is, and --cellpose VERSION "
        "segments with that version in an environment of its own"
    )


def _refuse_incomplete(network: CellposeNetwork, path: str, asked_for: str) -> None:
    """Refuse weights that lack a parameter: Cellpose leaves it at random (4.2.1.1, ``vit.py``)."""
    import torch

    is_mapped = format_of(Path(path)) == "archive"  # PyTorch maps no file in its format before 1.6
    parameters = torch.load(path, map_location="cpu", mmap=is_mapped, weights_only=True)
    names = {name.removeprefix("module.") for name in parameters}
    missing = [name for name in network.state_dict() if name not in names | NOT_DRAWN]
    if missing:
        raise BadInput(
            f"{asked_for!r} lacks {amount(len(missing), 'parameter')} of Cellpose's network, among "
            f"them {missing[0]}, which Cellpose would fill with random numbers; expected whole "
            f"weights of a network of {generation_of().networks}"
        )
