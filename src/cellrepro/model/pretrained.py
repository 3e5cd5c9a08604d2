"""Networks that Cellpose loads by itself, held to be whole."""

from __future__ import annotations

import http.client
import inspect
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.words import some

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.weight_sources import ModelSource


def load_pretrained(source: ModelSource) -> CellposeNetwork:
    """Load through Cellpose, which downloads its named networks on first use.

    Parameters
    ----------
    source : ModelSource
        A file in Cellpose's format or in safetensors, or the name of one of Cellpose's networks.

    Raises
    ------
    BadInput
        If Cellpose does not know the name, cannot read the file, or would leave a part of the
        network at random.
    NotPossibleHere
        If the weights would have to be downloaded, and cannot be.
    """
    import torch
    from cellpose import models
    from safetensors.torch import load_file

    path = source.path
    wanted = str(source.path or source.label)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            if path is not None and not zipfile.is_zipfile(path):  # into the format Cellpose reads
                path = Path(scratch, "weights.pth")
                torch.save(load_file(wanted), path)
            if path is None and wanted not in models.MODEL_NAMES:  # it would take another one
                raise BadInput(
                    f"this Cellpose knows no model {wanted!r}; expected {some(models.MODEL_NAMES)}"
                )
            options: dict[str, Any] = {"device": torch.device("cpu")}
            if "use_bfloat16" in inspect.signature(models.CellposeModel).parameters:
                options["use_bfloat16"] = False
            model = models.CellposeModel(pretrained_model=str(path or wanted), **options)
            if not options.keys() & {"use_bfloat16"}:  # Cellpose 3: another network, another `eval`
                model.net.loaded_by = model
            _refuse_incomplete(model.net, model.pretrained_model, wanted)
    except BadInput:
        raise
    except Exception as error:  # what unpickling another file ends in can be nearly any
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        if source.path is None and isinstance(error, OSError | http.client.HTTPException):
            raise NotPossibleHere(
                f"the weights of {wanted!r} are not on this machine and cannot be downloaded "
                f"({reason}); download them elsewhere and put them into Cellpose's folder of "
                "models, or name the file"
            ) from error
        cached = models.MODEL_DIR / source.label
        remedy = f"; remove {cached} to have it downloaded again" if source.path is None else ""
        raise BadInput(
            f"Cellpose cannot load {wanted!r}: {reason}; expected weights of a Cellpose 4 "
            f"network, whole{remedy}"
        ) from error
    return model.net


def _refuse_incomplete(network: CellposeNetwork, path: str, wanted: str) -> None:
    """Refuse weights that lack a parameter: Cellpose leaves it at random (4.2.1.1, ``vit.py``)."""
    import torch

    parameters = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    names = {name.removeprefix("module.") for name in parameters}
    fixed = {"diam_labels", "diam_mean"}  # not drawn; training sets the first
    missing = [name for name in network.state_dict() if name not in names | fixed]
    if missing:
        raise BadInput(
            f"{wanted!r} lacks {len(missing)} parameters of Cellpose's network, among them "
            f"{missing[0]}, which Cellpose would fill with random numbers; expected weights of a "
            "Cellpose 4 network, whole"
        )
