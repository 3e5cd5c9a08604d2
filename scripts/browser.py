"""Chromium, and a notebook that Voila serves to it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
"""With which Chromium is started."""

_SECONDS_UNTIL_IT_ANSWERS = 90


class NoChromium(RuntimeError):
    """Chromium is not installed."""


def find_chromium() -> str:
    """Where Chromium is.

    Raises
    ------
    NoChromium
        If it is not installed.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise NoChromium("Chromium is not installed; install it: apt-get install chromium")
    return path


@contextmanager
def served_by_voila(
    notebook: str,
    *,
    folder: Path,
    log: Path,
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Serve a notebook while the block runs.

    Parameters
    ----------
    notebook : str
        Its path below ``folder``.
    folder : Path
        In which Voila starts.
    log : Path
        File for what Voila says.
    options : sequence of str
        More of Voila's own.
    variables : mapping of str to str, optional
        More environment variables.

    Yields
    ------
    str
        The address.

    Raises
    ------
    RuntimeError
        If Voila does not answer within 90 seconds, or ends.
    """
    port = _free_port()
    command = [
        sys.executable,
        "-m",
        "voila",
        notebook,
        "--no-browser",
        f"--port={port}",
        "--Voila.ip=127.0.0.1",
        *options,
    ]
    environment = {**os.environ, **(variables or {})}
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=stream, stderr=stream
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/static/voila.js", server)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(address: str, server: subprocess.Popen) -> None:
    end = time.monotonic() + _SECONDS_UNTIL_IT_ANSWERS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(address, timeout=5):
                return
        except HTTPError:
            return  # an error is an answer, too
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"Voila does not answer (exit code {server.poll()}); see its log")
