"""Work on repeats that are not finished: who is at one, and what it needs to go on after a kill."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.errors import BadInput
from cellrepro.store.locks import locked
from cellrepro.store.stored_run import SPEC
from cellrepro.store.whole_files import (
    inside,
    regular_bytes,
    remove_empty,
    remove_if_possible,
    write_whole,
)

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec

_MOST_BYTES = 2**24


def read_unfinished_specs(root: Path) -> dict[str, dict[str, Any]]:
    """What was asked of every training that was not finished, by ``KEY/MACHINE/REPEAT``."""
    area = root / "unfinished"
    return {
        path.parent.relative_to(area).as_posix(): _spec_in(path)
        for path in sorted(area.glob(f"*/*/*/{SPEC}"))
    }


def _spec_in(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(regular_bytes(path, most_bytes=_MOST_BYTES))
        if not isinstance(document, dict):
            raise TypeError("no JSON object")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BadInput(
            f"{path} cannot be read ({error}); expected what was asked of a training that was not "
            f"finished: remove the folder {path.parent}"
        ) from error
    return document


@contextmanager
def work_on(root: Path, spec: Spec, machine: str, repeat: int) -> Iterator[Path | None]:
    """The folder of an unfinished repeat, held for the block.

    What lies there stays if the block is left by an error and something was saved; it goes after a
    block that ends well.

    Made, with its spec, if it was not there; none if another process is at the repeat.
    """
    folder = inside(root / "unfinished", f"{spec.key}/{machine}/{repeat}")
    with contextlib.ExitStack() as stack:
        stack.callback(remove_empty, *list(folder.parents)[1:3])
        if not stack.enter_context(locked(folder)):
            yield None
            return
        folder.mkdir(exist_ok=True)
        write_whole(folder / SPEC, spec.model_dump_json(), replace=True)
        is_done = False
        try:
            yield folder
            is_done = True
        finally:
            if is_done or not any(item.is_dir() for item in folder.iterdir()):
                remove_if_possible(folder)
