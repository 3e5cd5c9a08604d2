"""A fixture of one line that holds masks to a baseline; pytest finds it by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cellrepro.spec import defaults

if TYPE_CHECKING:
    import numpy as np

    from cellrepro.explanation.baseline_check import BaselineCheck


@pytest.fixture
def cellrepro_baseline() -> Callable[..., BaselineCheck]:
    """Check masks in a test: ``cellrepro_baseline("nuclei.baseline", masks)``.

    Returns
    -------
    callable
        Takes and returns what `cellrepro.check_baseline` does. It fails the test where the masks
        break a limit, with the sentence on what differs.
    """
    from cellrepro.explanation.baseline_check import check_baseline

    def check(
        file: str | Path,
        masks: str | Path | np.ndarray | Mapping[str, np.ndarray],
        *,
        max_ppm: float | None = None,
        max_changed: float | str | None = None,
        max_lost: int | None = None,
        store: str | Path = defaults.STORE,
    ) -> BaselineCheck:
        result = check_baseline(
            file,
            masks,
            max_ppm=max_ppm,
            max_changed=max_changed,
            max_lost=max_lost,
            store=store,
        )
        if not result.ok:
            pytest.fail("\n".join(result.lines()), pytrace=False)
        return result

    return check
