"""The weights of a run, and the arguments of the class that a package builds from them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

from cellrepro.determinism import profiles
from cellrepro.errors import BadInput
from cellrepro.exchange.bioimageio.measuring import Architecture
from cellrepro.model.cellpose_generation import generation_of, installed_version
from cellrepro.model.encoders import ENCODERS, PRETRAINED
from cellrepro.model.weight_sources import ModelSource, started_from
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.store.store import Store
from cellrepro.store.stored_run import WEIGHTS, Repeat

NETWORK_FILE = Path(__file__).parents[2] / "model" / "packaged_network.py"
"""Source file that a package includes as its architecture."""

_FIRST_GENERATION = (4, 2)
_PATCH_OF_CELLPOSE = 8  # pixels (4.2.1.1)


@dataclass(frozen=True)
class PackagedWeights:
    """The weights of a network, and its architecture."""

    file: Path
    """Safetensors in float32."""
    architecture: str
    """One of `cellrepro.model.encoders.ARCHITECTURES`."""
    n_parameters: int
    """Numbers in all tensors."""

    @property
    def sizes(self) -> Architecture:
        """The arguments of the network's class."""
        if self.architecture == PRETRAINED:
            return Architecture(_PATCH_OF_CELLPOSE)
        encoder = ENCODERS[self.architecture]
        sizes: dict[str, float | list[int]] = {
            "width": encoder.width,
            "depth": encoder.depth,
            "heads": encoder.heads,
            "mlp_ratio": encoder.mlp_ratio,
            "global_blocks": list(encoder.global_blocks),
        }
        return Architecture(encoder.patch, sizes)


def refuse_other_generation() -> None:
    """Refuse a version of Cellpose whose networks a package cannot build."""
    if generation_of().first < _FIRST_GENERATION:
        raise BadInput(
            "packages of bioimage.io need networks of Cellpose 4.2 or newer, and Cellpose "
            f"{installed_version()} is installed; `cellrepro setup FOLDER` makes a lab with a "
            "newer one in an environment of its own"
        )


def packaged_weights(repeat: Repeat, store: Store, scratch: Path) -> PackagedWeights:
    """Find the weights with which a repeat segmented; those of a segmentation are written anew."""
    refuse_other_generation()
    architecture = repeat.manifest.model.architecture
    file = repeat.weights
    if file is None and repeat.manifest.weights is not None:
        raise BadInput(
            f"the weights of {repeat.name} are not in this store; export the run there with "
            "--weights, and import it again"
        )
    if file is None:
        file = in_child(
            functools.partial(
                written_weights, source=started_from(repeat, store), file=scratch / WEIGHTS
            ),
            Setup(profiles.load("cpu"), seed=repeat.spec.seed),
            label="reading the network",
        )
    return PackagedWeights(file, architecture, _checked_parameters(file))


def written_weights(child: Child, *, source: ModelSource, file: Path) -> Path:
    """Runs in a child process: load a network as a run does, and write its weights."""
    from cellrepro.model.weights_file import save_weights

    with child.opened(source, dtype="float32") as opened:
        save_weights(opened.network, file, architecture=source.architecture)
    return file


def _checked_parameters(file: Path) -> int:
    """Count the parameters, and refuse a network that a package cannot build."""
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    if "W2" not in shapes or "encoder.cls_token" in shapes:
        kind = "a CPDINO" if "encoder.cls_token" in shapes else "no Cellpose-SAM"
        raise BadInput(
            f"{file} holds {kind} network; a package of bioimage.io can hold a network of "
            "Cellpose-SAM alone, whose class is in the cellpose package that everyone can install"
        )
    return sum(math.prod(shape) for shape in shapes.values())
