"""PyTorch's warnings, each with the operation, module and line that it is about.

PyTorch warns from C++ and names neither module nor line; in the backward pass it keeps its warnings
until the pass is over. Under an observer every operation is a call of its own and warns at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from samebits import substitutes, torch_alerts
from samebits.call_site import short_path
from samebits.heard_warning import HeardWarning
from samebits.modes import mode_in_force
from samebits.torch_alerts import alert_in
from samebits.trace.nondeterministic_operation import NondeterministicOperation

if TYPE_CHECKING:
    import torch

    from samebits.trace.observer import Observer, Step


class WarningLog:
    """Every warning of a block, counted by message, place and ``phase``, which the caller sets."""

    def __init__(self) -> None:
        self.phase = "start"
        self.uncompiled: tuple[str, ...] = ()
        """What torch.compile made, and what ran uncompiled as it was observed."""
        self._observer: Observer | None = None
        self._records: dict[tuple, HeardWarning] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect warnings instead of printing them, each time that they are given."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self._collect
            yield

    @contextmanager
    def observing(self, model: torch.nn.Module | None = None) -> Iterator[None]:
        """Note for each warning of a block which operation gave it, by its module in ``model``.

        Also where the block filters or records its warnings itself.
        """
        from samebits.trace.observer import Call, Observer
        from samebits.trace.quiet_calls import saying_at_once

        log = self

        class AtOnce(Observer):
            def observe(self, call: Call) -> Any:
                with log.listening():
                    return saying_at_once(call.run)

        with AtOnce(model) as observer:
            self._observer = observer
            try:
                yield
            finally:
                self._observer = None
                self.uncompiled = observer.uncompiled

    def _collect(
        self, message: Any, category: type, filename: str, lineno: int, *args: Any, **kwargs: Any
    ) -> None:
        new = HeardWarning(
            message=str(message),
            category=category.__name__,
            file=filename,
            line=lineno,
            phase=self.phase,
            count=0,
            place=None if self._observer is None else self._observer.current,
        )
        key = (new.message, new.category, new.file, new.line, new.phase, new.place)
        self._records.setdefault(key, new).count += 1

    def records(self) -> list[HeardWarning]:
        """List the kinds in the order of their first appearance, without this machine's folders."""
        return [replace(record, file=short_path(record.file)) for record in self._records.values()]


def about_determinism(records: list[HeardWarning]) -> tuple[NondeterministicOperation, ...]:
    """The operations behind those of the warnings that are about determinism."""
    operations = []
    for record in records:
        alert = alert_in(record.message)
        if alert is not None:
            operations.append(_operation_behind(record, alert))
    return tuple(operations)


def _operation_behind(record: HeardWarning, alert: str) -> NondeterministicOperation:
    """The operation behind a warning; where none was observed, it has the name of the alert."""
    site = record.place
    op = alert if site is None else site.op
    source = None if site is None else site.source
    known = torch_alerts.lookup(record.message)
    substitute = substitutes.for_operation(op, source)
    return NondeterministicOperation(
        op=op,
        module=None if site is None else site.module,
        source=source,
        phase=None if site is None else site.phase,
        warned=True,
        substitute=None if substitute is None else substitute.name,
        calls=record.count,
        reason="" if known is None else known.reason,
        remedy="" if known is None else known.remedy,
        alert=alert,
    )


def determinism_warnings(
    step: Step, *, model: torch.nn.Module | None = None
) -> tuple[NondeterministicOperation, ...]:
    """Run one training step in mode ``warn`` and say what PyTorch warned of, and where.

    What the step itself would ignore or catch is heard, too. Its other warnings are not shown.
    Empty is no proof that the step repeats, see `audit`.

    Parameters
    ----------
    step : callable
        One training step, without arguments: forward, backward, update.
    model : torch.nn.Module, optional
        Modules are named by their path in it; by default in whatever network the step calls.

    Returns
    -------
    tuple of NondeterministicOperation
        Those that PyTorch warned of, each with its place in the network and in the code.

    Warns
    -----
    UserWarning
        If the step calls what ``torch.compile`` made: it ran uncompiled.

    Examples
    --------
    >>> import torch
    >>> def step():
    ...     torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    >>> [(w.alert, w.op, w.phase, w.calls) for w in determinism_warnings(step)]
    [('put_', 'aten.put_.default', 'forward', 1)]
    """
    from samebits.trace.observer import check_step
    from samebits.trace.operation_audit import ran_uncompiled

    check_step(step)
    log = WarningLog()
    # cuBLAS without its workspace setting is one of the things PyTorch warns of: not refused here.
    with mode_in_force("warn", device="cpu"), log.listening(), log.observing(model):
        step()
    if log.uncompiled:
        warnings.warn(ran_uncompiled(log.uncompiled), stacklevel=2)
    return about_determinism(log.records())
