"""Types of parameters that take other values in Python than words of a terminal.

Two files are compared without pydantic; what needs it to be read is in `terminal_values`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    import numpy as np


def _refuse_empty(_type: object, name: object) -> None:
    """Refuse an empty name, as of a shell's variable that is not set: Python takes it for ``.``."""
    if name == "":
        raise ValueError("an empty name; expected that of a file, a folder or a run")


if TYPE_CHECKING:  # what Python takes
    FileName = str | Path
    Quiet = bool
    Switch = bool
    Words = str | Sequence[str]
    Share = float | str
    Place = str | Sequence[int]
    MasksOfImages = str | Path | np.ndarray | Mapping[str, np.ndarray]
else:  # what a terminal writes; for it neither NumPy nor PyTorch is imported
    FileName = Annotated[str, Parameter(validator=_refuse_empty)]
    Quiet = Annotated[bool, Parameter(parse=False)]
    Words = str
    Switch = Annotated[bool, Parameter(negative=None)]  # --no-NAME, too
    Share = str
    Place = str
    MasksOfImages = str

IN_PYTHON = Parameter(parse=False)
"""Mark of a parameter that a call in Python has and no command."""
