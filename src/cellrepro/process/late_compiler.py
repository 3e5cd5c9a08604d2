"""PyTorch's compiler, imported where it is used: two of the six seconds in which a child starts.

torchvision, every optimizer and ``torch.use_deterministic_algorithms`` import it for a few names
that do nothing in a process that compiles nothing (torch 2.6 to 2.15, torchvision 0.21 to 0.30).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

_DYNAMO = "torch._dynamo"
_INDUCTOR = "torch._inductor"
_PACKAGES = (_DYNAMO, _INDUCTOR)

Function = TypeVar("Function", bound=Callable[..., object])


class _StandIn(ModuleType):
    """Stands for a module of the compiler, and imports it with the first name that is not here."""

    def __init__(self, name: str, compiler: _Compiler) -> None:
        super().__init__(name)
        self._compiler = compiler

    def __getattr__(self, name: str) -> object:
        # `inspect` asks every module for its file; __path__ is asked for to import a submodule.
        is_of_every_module = name.startswith("__") and name != "__path__"
        if is_of_every_module or (name == "__path__" and self.__name__ not in _PACKAGES):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._compiler.import_now()
        return getattr(sys.modules[self.__name__], name)


class _Compiler:
    """The stand-ins, and what they were told, for the compiler once it is imported."""

    def __init__(self) -> None:
        self.dynamo = _StandIn(_DYNAMO, self)
        self.utilities = _StandIn(f"{_DYNAMO}.utils", self)
        self.inductor = _StandIn(_INDUCTOR, self)
        self.settings = _StandIn(f"{_INDUCTOR}.config", self)
        self._without_settings = set(vars(self.settings))
        self._kept_out: list[Callable[..., object]] = []
        vars(self.dynamo).update(
            disable=self._keep_out, graph_break=lambda: None, utils=self.utilities
        )
        vars(self.inductor).update(config=self.settings)
        vars(self.utilities).update(is_compile_supported=self._is_compile_supported)

    @property
    def _stand_ins(self) -> tuple[_StandIn, ...]:
        return (self.dynamo, self.utilities, self.inductor, self.settings)

    def place(self) -> None:
        """Put the stand-ins where an import finds them."""
        for module in self._stand_ins:
            sys.modules[module.__name__] = module

    def import_now(self) -> None:
        """Import the compiler, and hand on what the stand-ins were told."""
        placed = [one for one in self._stand_ins if sys.modules.get(one.__name__) is one]
        if not placed:
            return
        for module in placed:
            del sys.modules[module.__name__]
        dynamo = importlib.import_module(_DYNAMO)
        settings = importlib.import_module(self.settings.__name__)
        for name in vars(self.settings).keys() - self._without_settings:
            setattr(settings, name, getattr(self.settings, name))
        for function in self._kept_out:
            # Where `torch._compile` looks for what it is to call instead.
            setattr(function, "__dynamo_disable", dynamo.disable(function))

    def _keep_out(self, function: Function, *_options: object, **_named: object) -> Function:
        """``disable``: no compiler looks into a function."""
        self._kept_out.append(function)
        return function

    def _is_compile_supported(self, device_type: str) -> object:
        self.import_now()
        return importlib.import_module(self.utilities.__name__).is_compile_supported(device_type)


def import_compiler_late() -> None:
    """Let what imports PyTorch's compiler from here on import it when it compiles."""
    if _DYNAMO not in sys.modules and _INDUCTOR not in sys.modules:
        _Compiler().place()
