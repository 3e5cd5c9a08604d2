"""A fault: something else under one name of the package, and the tests that must notice.

It stands in ``ROOM.py`` beside this file, as a function that is given what the name holds and
gives what is put there instead::

    @breaks(
        "cellrepro.store.committing:sealed_files",
        "Every stored file has its digest in the manifest, those in folders too.",
        tests=["tests/store/test_store.py"],
    )
    def masks_are_not_sealed(sealed_files):
        return lambda folder: [path for path in sealed_files(folder) if path.parent == folder]

In a copy of the code the module's file gets lines at its end that do so. Every process that imports
the copy has the fault then, and so has every module that takes the name from there.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

FaultFunction = Callable[[Any], object]


@dataclass(frozen=True)
class Fault:
    """One change that the tests must notice."""

    room: str
    name: str
    promise: str
    target: str
    """``module:qualified.name`` of a function, a method, a property or a constant."""
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    @property
    def qualified_name(self) -> str:
        return self.target.partition(":")[2]

    @property
    def file(self) -> Path:
        """The module's file, relative to the project."""
        without_ending = Path("src", *self.module.split("."))
        package = without_ending / "__init__.py"
        return (
            package if (HERE.parents[1] / package).exists() else without_ending.with_suffix(".py")
        )

    def original(self) -> object:
        """What the name holds; a method as its class has it, not bound.

        Raises
        ------
        AttributeError, KeyError
            Where the name is gone: the fault is to be written anew.
        """
        *owners, name = self.qualified_name.split(".")
        owner = importlib.import_module(self.module)
        for step in owners:
            owner = getattr(owner, step)
        return vars(owner)[name]

    def lines(self, tests: Path) -> str:
        """What stands at the end of the module's file in a copy of the code.

        Parameters
        ----------
        tests : Path
            The copy's folder of tests, from where these functions are imported.
        """
        owner, _, name = self.qualified_name.rpartition(".")
        held = f"vars({owner})[{name!r}]" if owner else name
        return (
            "\n\nimport sys as _sys\n\n"
            f"_sys.path.insert(0, {str(tests)!r})\n"
            f"from faults.{self.room} import {self.name} as _fault\n\n"
            f"{self.qualified_name} = _fault({held})\n"
        )


_FAULTS: list[Fault] = []


def breaks(
    target: str, promise: str, *, tests: list[str]
) -> Callable[[FaultFunction], FaultFunction]:
    """State what a fault replaces, which promise to a user that breaks, and which tests tell."""

    def register(fault: FaultFunction) -> FaultFunction:
        room = Path(inspect.getfile(fault)).stem
        entry = Fault(room, fault.__name__, promise, target, tuple(tests))
        _FAULTS.append(entry)
        return fault

    return register


def faults() -> list[Fault]:
    """Every fault of every room."""
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in ("__init__", "apply", "by_name"):
            importlib.import_module(f"faults.{path.stem}")
    return list(_FAULTS)
