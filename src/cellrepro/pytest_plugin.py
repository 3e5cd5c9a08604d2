"""A fixture of one line that holds masks to a baseline; pytest finds it by itself."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def cellrepro_baseline() -> Callable[..., Any]:
    """``cellrepro_baseline("nuclei.baseline", masks)``: fails with the cells that break it.

    Takes and gives what `cellrepro.check_baseline` does.
    """
    from cellrepro.changes.baseline import check_baseline
    from cellrepro.show.answers.baseline import baseline_check_answer

    def hold(file: Any, masks: Any, **limits: Any) -> Any:
        found = check_baseline(file, masks, **limits)
        if not found.ok:
            pytest.fail("\n".join(baseline_check_answer(found).lines), pytrace=False)
        return found

    return hold
