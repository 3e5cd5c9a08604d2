"""The client of MLflow: its variables, and its errors in words of ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from cellrepro.errors import BadInput

_TELEMETRY_VARIABLES = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")
_MOST_LETTERS = 300
"""Limit of what is shown of an error of MLflow."""
_NAME_AND_PASSWORD = re.compile("://[^/]*@")


@contextmanager
def refusals(address: str) -> Iterator[None]:
    """Raise errors of MLflow as `BadInput`, with what a user can do."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:  # errors of requests are OSError
        reason = str(error).strip().partition("\n")[0]
        if len(reason) > _MOST_LETTERS:
            reason = f"{reason[:_MOST_LETTERS]}…"
        raise BadInput(
            f"{without_password(address) or 'MLflow'} did not take the runs; MLflow says: "
            f"{without_password(reason)}; expected the address of a server that answers, such as "
            "--tracking-uri http://127.0.0.1:5000 after `mlflow server`. The command can be "
            "repeated: what is logged already is not logged twice"
        ) from error


@contextmanager
def variables_of_the_client() -> Iterator[None]:
    """Set environment variables of MLflow for the block, except those that the user has set.

    By default MLflow 3.17 sends telemetry, tries for four minutes to reach a server, and prints
    addresses to standard output.
    """
    ours = {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
    if not any(name in os.environ for name in _TELEMETRY_VARIABLES):
        ours["MLFLOW_DISABLE_TELEMETRY"] = "true"
    added = {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def without_password(address: str) -> str:
    """An address without user name and password.

    >>> without_password("https://me:secret@mlflow.example.org/a"), without_password("sqlite:///a")
    ('https://mlflow.example.org/a', 'sqlite:///a')
    """
    return _NAME_AND_PASSWORD.sub("://", address)
