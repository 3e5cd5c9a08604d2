"""Chromium, and a notebook that Voila serves to it."""

from __future__ import annotations

import os
import secrets
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
    """Where Chromium is; an error where it is not installed."""
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
    """Serve a notebook of a folder while the block runs; its address, with the token it asks for.

    More options of Voila and environment variables may be given. An error says so where Voila does
    not answer within 90 seconds, or ends: its log tells why.
    """
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "voila",
        notebook,
        "--no-browser",
        f"--port={port}",
        "--Voila.ip=127.0.0.1",
        "--Voila.auto_token=True",
        *options,
    ]
    token = secrets.token_urlsafe(24)
    environment = {**os.environ, **(variables or {}), "JUPYTER_TOKEN": token}
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=stream, stderr=stream
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/static/voila.js", server)
            yield f"http://127.0.0.1:{port}/?token={token}"
        finally:
            server.terminate()
            server.wait(timeout=30)


def free_port() -> int:
    """A port of this computer on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this computer."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_for(address: str, server: subprocess.Popen) -> None:
    """Wait until a server answers, be it with a refusal; an error after 90 s, or where it ends."""
    end = time.monotonic() + _SECONDS_UNTIL_IT_ANSWERS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(address, timeout=5):
                return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{address} does not answer (exit code {server.poll()})")
