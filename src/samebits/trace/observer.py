"""Every operation that PyTorch dispatches, with its site: module, source line, phase.

The backward pass has no Python stack of its own. Autograd numbers its nodes as the forward pass
makes them, and the node at work says its number, so an operation of the backward pass is given the
module and line of the forward operation it belongs to.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from samebits import torch_internals
from samebits.call_site import Site
from samebits.errors import BadInput
from samebits.trace.source_lines import source_line

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_NODES = 200_000  # forward nodes remembered; a step of a large network makes 10,000
_MOST_AT_ONCE = 64  # nodes that one operation, or a custom function around it, makes before it runs
_ACCUMULATE = 2**64 - 1  # autograd's number of every node that adds to a parameter's gradient
_next_node: Callable[[], int] = torch.autograd._get_sequence_nr

Where = tuple[str | None, str | None]  # module and source line
Step = Callable[[], Any]  # forward, backward and update, with nothing left to give it


def check_step(step: Any) -> None:
    """Refuse what cannot be called as a training step."""
    if not callable(step):
        raise BadInput(f"step is {step!r}; expected a function without arguments: one step")
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):  # of some that are written in C
        return
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in optional
    ]
    if missing:
        names = ", ".join(missing)
        raise BadInput(
            f"step takes {names}; expected a function without arguments: one step. Give them to "
            f"it before, as in `lambda: step({names})`"
        )


@dataclass(slots=True)
class Invocation:
    """One operation about to run: PyTorch's function and its arguments."""

    func: Any
    args: tuple
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """Carry the operation out and return what it returns."""
        return self.func(*self.args, **self.kwargs)


@dataclass(slots=True)
class Call(Invocation):
    """An operation about to run, with its site."""

    site: Site


class DispatchMode(TorchDispatchMode):
    """Sees every dispatched operation of a ``with`` block, also those that take functions.

    What `torch.compile` makes runs uncompiled, for PyTorch compiles nothing under a dispatch mode
    (torch 2.15).
    """

    # Operations that take functions, such as flex attention, come here too (torch 2.7).
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._way_out = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._way_out.enter_context(torch_internals.mode_of_block(self))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._way_out.close()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say that the handler needs no guard against the compiler, which `without_compiling`
        keeps away: it costs as much as a small operation, and imports the compiler (torch 2.15)."""
        return False


class _ThreadState(threading.local):
    """The work of one thread; autograd has a thread for every GPU."""

    def __init__(self) -> None:
        self.modules: list[tuple[torch.nn.Module, str]] = []  # at work, with their names
        self.n_updates = 0
        self.current: Site | None = None
        # The next node's number; the last node made may belong to the operation about to be seen.
        self.next_node = max(0, _next_node() - 1)


# By the operation's address, as its own hash is slow; held, so that the address is not used again.
_SITES: dict[tuple[int, str | None, str | None, str], tuple[Any, Site]] = {}
_MOST_SITES = 65536


def _cached_site(func: Any, module: str | None, source: str | None, phase: str) -> Site:
    key = (id(func), module, source, phase)
    known = _SITES.get(key)
    if known is None:
        if len(_SITES) >= _MOST_SITES:
            _SITES.clear()
        known = _SITES[key] = (func, Site(str(func), module, source, phase))
    return known[1]


class Observer(DispatchMode):
    """Sees every operation of a ``with`` block with its site; a subclass decides what to do.

    Hooks only remember which module or optimizer is at work. Modules are named by their path in
    ``model``, else in the outermost module being called. `uncompiled` names what `torch.compile`
    made.
    """

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        super().__init__()
        if model is not None and not isinstance(model, torch.nn.Module):
            raise BadInput(f"model is {type(model).__name__}; expected a torch.nn.Module, or none")
        self._model = model
        self._way_back: contextlib.ExitStack | None = None  # while it watches
        self._uncompiled: dict[str, None] = {}  # in order
        self._sites_seen: set[int] = set()
        self._forget()

    def observe(self, call: Call) -> Any:
        """Carry out one operation; subclasses override it."""
        return call.run()

    @property
    def uncompiled(self) -> tuple[str, ...]:
        """The compiled functions and networks that were called, and ran as they were written."""
        return tuple(self._uncompiled)

    @property
    def current(self) -> Site | None:
        """The site of the operation running now in this thread; None between operations."""
        return self._here.current

    def __enter__(self) -> Self:
        if self._way_back is not None:
            raise BadInput("this observer is watching already; make another to nest them")
        with contextlib.ExitStack() as way_back:  # of what was begun, where something is refused
            way_back.callback(self._forget)
            self._forget()
            self._here.next_node = _next_node()
            for hook in (
                torch_module.register_module_forward_pre_hook(self._enter_module),
                torch_module.register_module_forward_hook(self._leave_module, always_call=True),
                torch_optimizer.register_optimizer_step_pre_hook(self._enter_update),
                torch_optimizer.register_optimizer_step_post_hook(self._leave_update),
            ):
                way_back.callback(hook.remove)
            way_back.enter_context(torch_internals.without_compiling())
            super().__enter__()
            way_back.push(super().__exit__)
            self._begin(way_back)
            self._way_back = way_back.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        way_back = self._way_back
        self._way_back = None
        if way_back is not None:
            way_back.__exit__(*exception)

    def _begin(self, way_back: contextlib.ExitStack) -> None:
        """A hook for subclasses, which begins more and leaves in ``way_back`` how it ends."""

    def _forget(self) -> None:
        """Drop every reference to the network."""
        self._here = _ThreadState()
        self._nodes: dict[int, dict[int, Where]] = {}  # by thread, then by number
        self._names: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._owners = WeakTensorKeyDictionary()  # modules of parameters

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        here = self._here
        outer = here.current
        where = self._where()
        self._learn_nodes(here, where)
        here.current = site = self._site(func, where)
        try:
            return self.observe(Call(func, args, kwargs or {}, site))
        finally:
            here.current = outer

    # -- where -----------------------------------------------------------------------------

    def site_of(self, func: Any) -> Site:
        """The site of an operation that is running."""
        return self._site(func, self._where())

    def learn_nodes(self) -> None:
        """Note where the nodes were made that autograd made since the last operation."""
        here = self._here
        if _next_node() != here.next_node:
            self._learn_nodes(here, self._where())

    def _site(self, func: Any, where: tuple[str | None, str | None, str]) -> Site:
        site = _cached_site(func, *where)
        if id(site) not in self._sites_seen:
            self._sites_seen.add(id(site))
            self._uncompiled.update(dict.fromkeys(torch_internals.compiled_callers()))
        return site

    def _learn_nodes(self, here: _ThreadState, where: tuple[str | None, str | None, str]) -> None:
        number = _next_node()
        if number != here.next_node:
            self._remember_nodes(here, number, where[:2])

    def _where(self) -> tuple[str | None, str | None, str]:
        """Module, source line and phase of what is running."""
        source = source_line()
        module, phase, line = self.at_work()
        return module, line if source is None else source, phase

    def at_work(self) -> tuple[str | None, str, str | None]:
        """The module at work, the phase, and in a backward pass the line of the forward."""
        here = self._here
        node = torch_internals.backward_node()
        if node is None:
            module = here.modules[-1][1] if here.modules else None
            line = None
            phase = "forward"
        else:
            module, line = self._made_at(node)
            phase = "backward"
        return module, "update" if here.n_updates else phase, line

    def _remember_nodes(self, here: _ThreadState, number: int, where: Where) -> None:
        """Remember the site of the nodes made since the last operation.

        Autograd makes an operation's node just before the operation reaches us, and with it those
        of the views it reads; a custom function's node comes before its first operation.
        """
        nodes = self._nodes.setdefault(threading.get_ident(), {})
        if len(nodes) >= MOST_NODES:
            for old in list(nodes)[: MOST_NODES // 2]:
                del nodes[old]
        for made in range(max(here.next_node, number - _MOST_AT_ONCE), number):
            nodes[made] = where
        here.next_node = number

    def _made_at(self, node: Any) -> Where:
        """Module and line of the forward operation that a node of the backward belongs to."""
        number = node._sequence_nr() if hasattr(node, "_sequence_nr") else None
        if number is None:
            return None, None
        if number == _ACCUMULATE:
            return self._owners.get(node.variable), None
        if node.name().endswith("CopySlices"):
            number -= 1  # a write into a view; its node is made after the write's own
        # Numbers count from 0 in each thread. A node that a backward pass made, by recomputing or
        # to be differentiated again, has this thread's number, any other the main thread's.
        own = self._nodes.get(threading.get_ident(), {})
        known = (nodes[number] for nodes in (own, *self._nodes.values()) if number in nodes)
        return next(known, (None, None))

    # -- which module ----------------------------------------------------------------------

    def _enter_module(self, module: torch.nn.Module, inputs: Any) -> None:
        modules = self._here.modules
        if torch_internals.is_compiled(module):
            self._uncompiled.setdefault(type(getattr(module, "_orig_mod", module)).__name__)
        if not modules:
            self._here.n_updates = 0  # nobody says when an update raised
        modules.append((module, self._name(module, modules[0][0] if modules else module)))

    def _leave_module(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        modules = self._here.modules
        for index in range(len(modules) - 1, -1, -1):
            if modules[index][0] is module:
                del modules[index:]
                return

    def _name(self, module: torch.nn.Module, outermost: torch.nn.Module) -> str:
        name = None
        for root in filter(None, (self._model, outermost)):
            names = self._names.setdefault(root, weakref.WeakKeyDictionary())
            if module not in names:
                # Not looked for again: a loss, for example, which is no part of the network.
                names[module] = None
                self._learn_names(root, names)
            name = name or names[module]
        return name or type(module).__name__

    def _learn_names(self, root: torch.nn.Module, names: Any) -> None:
        for path, module in root.named_modules():
            names[module] = path or type(root).__name__
        for path, parameter in root.named_parameters():
            self._owners.setdefault(parameter, path.rpartition(".")[0] or type(root).__name__)

    # -- the update ------------------------------------------------------------------------

    def _enter_update(self, optimizer: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        self._here.n_updates += 1
        # What a closure computes is not the update.
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside_update(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._outside_update(kwargs["closure"])}
        return None

    def _leave_update(self, *arguments: Any) -> None:
        here = self._here
        here.n_updates = max(0, here.n_updates - 1)

    def _outside_update(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def outside() -> Any:
            here = self._here
            before = here.n_updates
            here.n_updates = 0
            try:
                return closure()
            finally:
                here.n_updates = before

        return outside
