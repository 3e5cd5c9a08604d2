"""The commands that make masks again of which files tell, also with a network of a store.

Cellpose knows no run of a store: its commands name the file that `cellrepro export` writes first.
Nor does it load this lab's own networks, such as ``tiny``; of one that is not here nobody knows
whether it is one of them, so the command is this lab's, which takes every network.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cellrepro.explanation.cellpose_call import IMAGE, NETWORK
from cellrepro.explanation.commands import Commands
from cellrepro.explanation.condition_commands import LabSetup, commands_for, is_of_lab
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION
from cellrepro.explanation.recorded_commands import recorded_commands
from cellrepro.explanation.recorded_network import recorded_network
from cellrepro.explanation.recorded_settings import (
    FILENAME,
    MODEL_PATH,
    NOT_RECORDED,
    STORED_NETWORK,
    RecordedSettings,
)
from cellrepro.model.encoders import ENCODERS, TINY
from cellrepro.model.weight_sources import ModelSource

if TYPE_CHECKING:
    from cellrepro.store.store import Store

_OF_LAB = TINY  # any of this lab's own


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
    network = str(record.beyond.get(MODEL_PATH, record.value(MODEL)))
    is_stored = STORED_NETWORK.fullmatch(network) is not None
    is_drawn = network in ENCODERS and MODEL_PATH not in record.values  # its weights, by a seed
    if not (is_stored or is_drawn or is_of_lab(network)):
        return recorded_commands(record, image=image, is_stack=is_stack)
    source = ModelSource(network, network) if is_drawn else recorded_network(record, store).source
    notes: tuple[str, ...] = ()
    if source is None:
        source = ModelSource(NETWORK, _OF_LAB)
        notes = (_where_it_is(network, is_stored=is_stored),)
    condition = {PRECISION: setup.dtype, **record.known, MODEL: source.label}
    version = record.value(VERSION)
    if version != NOT_RECORDED:
        condition[VERSION] = version
    name = record.value(FILENAME)
    recorded_image = IMAGE if name == NOT_RECORDED else str(name)
    commands = commands_for(image or recorded_image, condition, {source.label: source}, setup)
    return replace(commands, lab=replace(commands.lab, notes=(*commands.lab.notes, *notes)))


def _where_it_is(network: str, *, is_stored: bool) -> str:
    """Say where a network lies that is not found here."""
    if is_stored:
        return (
            f"{NETWORK} is the network of the run {network}, which is in no store here; with "
            "--store and the folder that holds this run, the command is whole"
        )
    return f"{NETWORK} is the file {network}, which was not found here as it was"
