"""The network that made a result: found by what its files record, else Cellpose's own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from cellrepro.explanation.conditions import MODEL
from cellrepro.explanation.files_at_hand import is_file_here
from cellrepro.explanation.recorded_settings import (
    MODEL_DIGEST,
    MODEL_PATH,
    NOT_RECORDED,
    STORED_NETWORK,
    RecordedSettings,
)
from cellrepro.model.cellpose_generation import generation_of, known_version
from cellrepro.model.encoders import PRETRAINED
from cellrepro.model.weight_sources import ModelSource, cellpose_folder, find_model
from samebits.errors import BadInput
from samebits.words import some

if TYPE_CHECKING:
    from cellrepro.store.store import Store

_MOST_AT_HAND = 6
_NO_NETWORK = ("size_", ".txt", ".part")  # in names of other files in Cellpose's folder


class FoundNetwork(NamedTuple):
    """A network, and a remark on how it was found."""

    source: ModelSource | None
    """None where it is not on this machine, or nobody recorded it."""
    remark: str = ""
    """Empty where there is nothing to say."""


def recorded_network(record: RecordedSettings, store: Store) -> FoundNetwork:
    """Find the network that files record: by its path, in Cellpose's folder, or as a stored run.

    A file that has changed since is not taken.
    """
    recorded = record.value(MODEL_PATH)
    label = str(record.value(MODEL))
    if recorded == NOT_RECORDED:
        recorded = record.value(MODEL)
    if not isinstance(recorded, str) or recorded in (NOT_RECORDED, ""):
        return FoundNetwork(None)
    name = PureWindowsPath(recorded).name  # the last part of a path of any system
    in_folder = str(cellpose_folder() / name)
    digest = record.value(MODEL_DIGEST)
    remark = f"its network {recorded} is not on this machine; give it with --model"
    of_cellpose = {name} & {*generation_of().names}
    of_store = [label] if STORED_NETWORK.fullmatch(label) else []  # its folder may have moved
    for candidate in (recorded, in_folder, *of_cellpose, *of_store):
        source = _source_of(candidate, store)
        if source is None:
            continue
        if digest in (NOT_RECORDED, source.digest):
            taken = f"its network was {recorded}, and {candidate} is taken for it"
            return FoundNetwork(source, "" if candidate == recorded else taken)
        if source.digest is not None:
            remark = (
                f"{candidate} is not the network that made it, whose file had the digest {digest}: "
                "it was replaced since; give the earlier file with --model"
            )
    return FoundNetwork(None, remark)


class OtherNetwork(NamedTuple):
    """The network that a side records, where it was segmented again with a different one."""

    letter: str
    """Of the side."""
    name: str
    """As it is recorded, or the run that made it."""
    given: str
    """The one with which it was segmented again."""
    is_here: bool
    """Whether it was found on this machine."""


def _source_of(candidate: str, store: Store) -> ModelSource | None:
    """The network that a path or name refers to on this machine, if any."""
    if is_file_here(candidate):
        return find_model(candidate, store)
    with suppress(BadInput):
        return find_model(candidate, store)
    return None


def usual_network(version: str | None, *, is_provided: bool) -> FoundNetwork:
    """Give the default network of a version of Cellpose, for results that record none."""
    installed = known_version()
    version = version or installed
    at_hand = _networks_at_hand()
    listed = f"networks in {cellpose_folder()}: {some(at_hand, _MOST_AT_HAND) or 'none yet'}"
    generation = generation_of(version)
    is_loaded = is_provided or generation.networks == generation_of().networks
    if not is_loaded:
        raise BadInput(
            f"neither side says which network made it. Cellpose {version} did, and the Cellpose "
            f"{installed} that is here does not load its networks: give --model with one for "
            f"Cellpose {installed} ({listed})"
        )
    name = generation.default_network
    download = "" if name in at_hand else ", and is downloaded first"
    return FoundNetwork(
        ModelSource(name, PRETRAINED),
        f"neither side says which network made it, and no --model was given: {name} is taken, as "
        f"Cellpose {version} does by itself{download} ({listed})",
    )


def _networks_at_hand() -> list[str]:
    """The names of the networks in Cellpose's own folder."""
    folder = cellpose_folder()
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return [name for name in names if not any(word in name for word in _NO_NETWORK)]
