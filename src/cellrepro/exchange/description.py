"""What a file is, a run of the store or a model's name: files of passports among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cellrepro.exchange.bundle import BUNDLE_ENDING, read_bundle
from cellrepro.exchange.passport_file import PassportFile, describe_passports
from cellrepro.exchange.signed.keys import read_allowed_signers
from cellrepro.explanation import describe as changes_describe
from cellrepro.explanation.describe import Description
from cellrepro.explanation.file_kinds import holds_passports
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName


def describe(
    file: FileName,
    /,
    *,
    log: FileName | None = None,
    command: bool = False,
    store: FileName = defaults.STORE,
) -> Description | PassportFile:
    """Say what a file is (weights, masks, baseline, passport …), and how Cellpose loads it.

    Parameters
    ----------
    file : str or Path
        A weights file, a ``_seg.npy``, a label image, a baseline, passports
        ``NAME.intoto.jsonl``, Cellpose's ``run.log``, or any other file; ``KEY`` or ``KEY/REPEAT``
        of the store; or a name that Cellpose is given for a model.
    log : str or Path, optional
        Cellpose's ``run.log`` of the run that made the masks; what it records is added.
    command : bool
        Say also how Cellpose is called with what the file records.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Description or PassportFile
        What it is, and as what the installed Cellpose would load it; of passports whose runs they
        are of, and who signed them.

    Raises
    ------
    BadInput
        If it is a folder, a file that is not there or cannot be read, or a repeat that is not
        stored; or if a log is given for what is no masks.

    Examples
    --------
    What is this file of weights, and does Cellpose load it?

    ``cellrepro describe my_model.pth``

    With which settings did the GUI make these masks?

    ``cellrepro describe cells_seg.npy --command``
    """
    if str(file).endswith(BUNDLE_ENDING) and holds_passports(Path(file)):
        refuse_idle(("log", "command"), "for a file of passports")
        return describe_passports(read_bundle(file), read_allowed_signers())
    described = changes_describe.describe(str(file), log=log, store=store)
    return replace(described, says_commands=command)
