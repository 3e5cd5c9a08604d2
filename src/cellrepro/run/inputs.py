"""What a request needs first: its images, and the loop that trains a network on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.images.image_axes import FLAT, Axes
from cellrepro.model.batch_gradients import Team
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.model.training_loop import Epoch, TrainingLoop, nothing_after
from cellrepro.run.plan import CHANGED_SINCE, Request
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.spec.spec import Spec
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.model.watches import Watch


def read_images(request: Request) -> ImageFolder:
    """Read the images of a request, and refuse others than those of its spec."""
    spec = request.spec
    axes = axes_of(spec.task, spec.settings.not_default())
    folder = read_folder(request.data, to_train=spec.task == "train", axes=axes)
    if folder.digest != spec.data_digest:
        raise BadInput(CHANGED_SINCE.format(f"images in {request.data}"))
    return folder


def axes_of(task: str, settings: Mapping[str, Any] | None) -> Axes:
    """The axes that images may have: stacks are segmented, not trained on."""
    if task == "train":
        return FLAT
    checked = Settings().replaced(**(settings or {}))
    return Axes(stacks=True, channel=checked.channel_axis, z=checked.z_axis, are_settings=True)


def training_loop(
    spec: Spec,
    network: CellposeNetwork,
    folder: ImageFolder,
    *,
    on_epoch: Callable[[Epoch], None] = nothing_after,
    watch: Watch | None = None,
    team: Team | None = None,
) -> TrainingLoop:
    """Make the training loop of a spec, before its first step."""
    return TrainingLoop(
        network,
        folder.train,
        folder.test,
        n_epochs=spec.epochs,
        learning_rate=spec.learning_rate,
        batch_size=spec.batch_size,
        images_per_epoch=spec.images_per_epoch,
        data_seed=spec.data_seed,
        settings=spec,
        on_epoch=on_epoch,
        watch=watch,
        team=team,
        image_by_image=spec.mode == "portable",
    )
