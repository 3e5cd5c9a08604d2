"""Work that was planned, done in a child process: what the user should read first is said first."""

from __future__ import annotations

from collections.abc import Callable

from cellrepro.process.calling import in_child
from cellrepro.process.child import T, Task
from cellrepro.progress import print_note
from cellrepro.run.plan import Plan


def print_notices(plan: Plan, *, quiet: bool) -> None:
    """Print what the user should read before a plan is carried out."""
    if not quiet:
        for notice in plan.notices:
            print_note(notice)


def in_planned_child(
    plan: Plan,
    task: Task[T],
    *,
    label: str,
    steps: int,
    announced: Callable[[], str] | None = None,
    counted: str = "",
    quiet: bool = False,
) -> T:
    """Print a plan's notices and what is announced, and run a task in its child process."""
    print_notices(plan, quiet=quiet)
    if announced is not None and not quiet:
        print_note(announced())
    return in_child(
        task, plan.request.setup, label=label, steps=steps, counted=counted, quiet=quiet
    )
