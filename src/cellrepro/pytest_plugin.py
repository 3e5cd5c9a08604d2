"""A fixture of one line that holds masks to a baseline; pytest finds it by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import numpy as np

    from cellrepro.changes.baseline import BaselineCheck


@pytest.fixture
def cellrepro_baseline() -> Callable[..., BaselineCheck]:
    """``cellrepro_baseline("nuclei.baseline", masks)``: fails with the cells that break it.

    Takes and gives what `cellrepro.check_baseline` does.
    """
    from cellrepro.changes.baseline import check_baseline
    from cellrepro.show.answers.baseline import baseline_check_answer

    def hold(
        file: str | Path,
        masks: str | Path | np.ndarray | Mapping[str, np.ndarray],
        *,
        max_ppm: float | None = None,
        max_changed: float | None = None,
        max_lost: int | None = None,
        store: str | Path = "outputs",
    ) -> BaselineCheck:
        check = check_baseline(
            file,
            masks,
            max_ppm=max_ppm,
            max_changed=max_changed,
            max_lost=max_lost,
            store=store,
        )
        if not check.ok:
            pytest.fail("\n".join(baseline_check_answer(check).lines), pytrace=False)
        return check

    return hold
