"""Which operations of a step have a portable form, which are replaced, and which have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from samebits.arithmetic.operation_forms import NO_FORM, Form, form_of, name_of
from samebits.arithmetic.portable_mode import PortableArithmetic
from samebits.call_site import Site
from samebits.results import Result, Row
from samebits.trace.observer import Call, check_step
from samebits.words import with_verb

_WORDS: dict[Form, str] = {
    "exact": "exact by nature",
    "replaced": "replaced",
    "missing": "no portable form",
}


@dataclass(frozen=True)
class PortableOperation:
    """One operation of a step."""

    name: str
    """Its name in ATen, without overload."""
    form: Form
    """How it becomes portable."""
    calls: int
    """How often it was called."""
    first: Site
    """The place that called it first."""
    reason: str = ""
    """Why it has no portable form; empty if it has one."""


@dataclass(frozen=True, repr=False)
class PortableOperations(Result):
    """The operations of a step, and whether all have a portable form."""

    operations: tuple[PortableOperation, ...]
    """All operations: those without a portable form first, then those that are replaced."""

    def sentence(self) -> str:
        """Say whether the step can be computed in mode portable."""
        counts = Counter(operation.form for operation in self.operations)
        missing = [operation for operation in self.operations if operation.form == "missing"]
        if not self.operations:
            return "vacuous: the step called no operation of PyTorch"
        exact = with_verb(counts["exact"], "operation", "is", "are")
        so_far = f"{exact} exact by nature, {counts['replaced']} replaced"
        if not missing:
            return f"portable: {so_far}, and none is missing"
        by_reason: dict[str, list[str]] = {}
        for item in missing:
            by_reason.setdefault(item.reason, []).append(f"{item.name} ({item.first})")
        plain = by_reason.pop(NO_FORM, [])
        named = [*plain, *(f"{', '.join(them)}: {why}" for why, them in by_reason.items())]
        have = "has" if len(missing) == 1 else "have"
        return (
            f"not portable: {so_far}, and {len(missing)} {have} no portable form: "
            f"{'; '.join(named)}"
        )

    def rows(self) -> Sequence[Row]:
        """One row an operation."""
        return [
            {
                "operation": operation.name,
                "form": _WORDS[operation.form],
                "calls": operation.calls,
                "first called in": operation.first.module or "",
                "line": operation.first.source or "",
                "why not": operation.reason,
            }
            for operation in self.operations
        ]


class _Collector(PortableArithmetic):
    """Counts operations by their form, and runs those without one as PyTorch does."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        super().__init__(model)
        self.calls: Counter[_Kind] = Counter()
        self.first: dict[_Kind, Site] = {}

    def observe(self, call: Call) -> Any:
        self._refusal = ""
        result = super().observe(call)
        form: Form = "missing" if self._refusal else form_of(call)
        if form == "missing" and not self._refusal:  # made of simpler ones, which came here, too
            return result
        self._count(_Kind(name_of(call.func), form, self._refusal), call.site)
        self._refusal = ""
        return result

    def _count(self, kind: _Kind, site: Site) -> None:
        self.calls[kind] += 1
        self.first.setdefault(kind, site)

    def without_form(self, call: Call, reason: str, cause: Exception | None = None) -> Any:
        self._refusal = reason
        return call.run()

    def refuse_at(self, site: Site, reason: str, cause: Exception | None = None) -> None:
        self._count(_Kind(site.op, "missing", reason), site)


class _Kind(NamedTuple):
    """The key by which calls are counted."""

    name: str
    form: Form
    reason: str


_ORDER: tuple[Form, ...] = ("missing", "replaced", "exact")


def portable_operations(
    step: Callable[[], Any], *, model: torch.nn.Module | None = None
) -> PortableOperations:
    """List which operations of a step are portable.

    The step runs once, in portable arithmetic as far as there is one, and what it changes, such as
    weights, stays changed.

    Parameters
    ----------
    step : callable
        Without arguments: a forward pass, or a whole training step.
    model : torch.nn.Module, optional
        Its modules name where an operation was called; by default those of the outermost one.

    Returns
    -------
    PortableOperations
        Its ``str`` says whether the step is portable; in a notebook it shows a table of the
        operations, too.

    Raises
    ------
    BadInput
        If the step cannot be called without arguments.

    Examples
    --------
    >>> import torch
    >>> print(portable_operations(lambda: torch.ones(2, 2).exp()))
    portable: 1 operation is exact by nature, 1 replaced, and none is missing
    """
    check_step(step)
    with _Collector(model) as collector:
        step()
    operations = [
        PortableOperation(kind.name, kind.form, calls, collector.first[kind], kind.reason)
        for kind, calls in collector.calls.items()
    ]
    operations.sort(key=lambda item: (_ORDER.index(item.form), item.name))
    return PortableOperations(tuple(operations))
