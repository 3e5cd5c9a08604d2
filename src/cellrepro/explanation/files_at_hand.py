"""The network and the image that two results record, where they lie on this computer.

So that a proposed command can be run as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath

from cellrepro.explanation.cellpose_call import IMAGE, NETWORK
from cellrepro.explanation.conditions import MODEL
from cellrepro.explanation.recorded_settings import (
    FILENAME,
    MODEL_DIGEST,
    MODEL_PATH,
    STORED_NETWORK,
)
from cellrepro.explanation.settings_of_both import SettingOfBoth, is_missing


def network_at_hand(settings: Sequence[SettingOfBoth], store: str | Path) -> str:
    """Give the network that both record, where this computer has it; else `NETWORK`."""
    from cellrepro.model.cellpose_generation import generation_of

    by_name = {setting.name: setting for setting in settings}
    if any(each.differs for each in map(by_name.get, (MODEL, MODEL_DIGEST)) if each):
        return NETWORK
    recorded = [
        str(by_name[name].a)
        for name in (MODEL_PATH, MODEL)
        if name in by_name and by_name[name].is_recorded_by_both and not by_name[name].differs
    ]
    for network in recorded:
        if is_file_here(network):
            return _as_typed(Path(network))
        is_stored = STORED_NETWORK.fullmatch(network) and Path(store, "runs", network).is_dir()
        if is_stored or network in generation_of().names:
            return network
    return NETWORK


def image_at_hand(settings: Sequence[SettingOfBoth], masks: Iterable[str | Path]) -> str:
    """Give the image that was segmented, by its recorded path or beside the masks; else `IMAGE`.

    Of two different ones neither is given.
    """
    recorded = next((setting for setting in settings if setting.name == FILENAME), None)
    if recorded is None:
        return IMAGE
    folders = [Path(each).parent for each in masks]
    names = [str(name) for name in (recorded.a, recorded.b) if name and not is_missing(name)]
    found = {_found(name, folders) for name in names}
    files = {file.resolve(): file for file in found if file is not None}
    return _as_typed(next(iter(files.values()))) if len(files) == 1 else IMAGE


def _found(name: str, folders: Iterable[Path]) -> Path | None:
    beside = (folder / PureWindowsPath(name).name for folder in folders)
    return next((file for file in (Path(name), *beside) if is_file_here(file)), None)


def is_file_here(recorded: str | Path) -> bool:
    """Whether a path that a file records is one here; what no system takes for a path is none."""
    try:
        return Path(recorded).is_file()
    except (OSError, ValueError):  # too long a name, a zero in it
        return False


def _as_typed(file: Path) -> str:
    """A path from the working folder on, where it lies below it: as a user would type it."""
    here = Path.cwd()
    is_below = file.is_absolute() and file.is_relative_to(here)
    return str(file.relative_to(here) if is_below else file)
