"""Matplotlib's pyplot, imported where it is used: a tenth of the seconds in which a child starts.

Cellpose imports it for a picture that its command line can save (4.0 to 4.2).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from samebits.libraries import has_library

_PYPLOT = "matplotlib.pyplot"


class _StandIn(ModuleType):
    """Stands for pyplot, and imports it when a name of it is read or set."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system and `inspect` ask every module for these
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._imported(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._imported(), name, value)

    def _imported(self) -> ModuleType:
        if sys.modules.get(_PYPLOT) is self:
            del sys.modules[_PYPLOT]
        return importlib.import_module(_PYPLOT)


def import_pyplot_late() -> None:
    """Let what imports pyplot from here on import it when it draws."""
    if _PYPLOT in sys.modules or not has_library("matplotlib"):
        return
    stand_in = _StandIn(_PYPLOT)
    sys.modules[_PYPLOT] = stand_in
    # Where `import matplotlib.pyplot` leaves it for `matplotlib.pyplot.figure()`.
    vars(importlib.import_module("matplotlib"))["pyplot"] = stand_in
