"""The commands that make masks again of which files tell, also with a network of a store.

Cellpose knows no run of a store: its commands name the file that `cellrepro export` writes first.
Nor does it know this lab's own networks, such as ``tiny``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cellrepro.explanation.cellpose_call import IMAGE, NETWORK
from cellrepro.explanation.commands import Commands
from cellrepro.explanation.condition_commands import LabSetup, commands_for
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION
from cellrepro.explanation.recorded_commands import recorded_commands
from cellrepro.explanation.recorded_network import recorded_network
from cellrepro.explanation.recorded_settings import (
    FILENAME,
    MODEL_PATH,
    NOT_RECORDED,
    STORED_NETWORK,
    RecordedSettings,
    RecordedValue,
)
from cellrepro.model.encoders import ENCODERS
from cellrepro.model.weight_sources import ModelSource

if TYPE_CHECKING:
    from cellrepro.store.store import Store


def commands_of_record(
    record: RecordedSettings,
    store: Store,
    *,
    image: str | None = None,
    is_stack: bool = False,
    setup: LabSetup | None = None,
) -> Commands | None:
    """Write the calls that a record tells of; None where it tells too little."""
    setup = setup or LabSetup()
    network = str(record.value(MODEL))
    is_stored = STORED_NETWORK.fullmatch(network) is not None
    if MODEL_PATH in record.values or not (is_stored or network in ENCODERS):
        return recorded_commands(record, image=image, is_stack=is_stack)
    of_lab = ModelSource(network, network)  # its weights are drawn by a seed
    source = recorded_network(record, store).source if is_stored else of_lab
    if source is None:
        return _without_network(record, network, image=image, is_stack=is_stack)
    condition = {PRECISION: setup.dtype, **record.known, MODEL: source.label}
    version = record.value(VERSION)
    if version != NOT_RECORDED:
        condition[VERSION] = version
    name = record.value(FILENAME)
    recorded_image = IMAGE if name == NOT_RECORDED else str(name)
    return commands_for(image or recorded_image, condition, {source.label: source}, setup)


def _without_network(
    record: RecordedSettings, network: str, *, image: str | None, is_stack: bool
) -> Commands | None:
    """Put a word in capitals for a network that lies in another store, and say where it is."""
    entry = RecordedValue(NETWORK, record.source(MODEL))
    nameless = replace(record, values={**record.values, MODEL: entry})
    commands = recorded_commands(nameless, image=image, is_stack=is_stack)
    if commands is None:
        return None
    note = (
        f"{NETWORK} is the network of the run {network}, which is in no store here; with --store "
        "and the folder that holds this run, the commands are whole"
    )
    shell = replace(commands.shell, notes=(note, *commands.shell.notes))
    return replace(commands, shell=shell)
