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
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
"""With which Chromium is started."""

WIDTH = 760
"""Of a photographed page, in CSS pixels: about what the site and GitHub have for a picture, so that
its text is as large there as that of the page."""
_SECONDS_UNTIL_IT_ANSWERS = 90
_DOTS_PER_PIXEL = 2  # of pictures, which screens with fine dots and a click show sharply
_HEIGHT = 1800  # pixels, more than is photographed: Voila's pages scroll inside
_MARGIN = 8  # pixels of the page around what is photographed


class NoChromium(RuntimeError):
    """Chromium is not installed."""


def find_chromium() -> str:
    """Where Chromium is; an error where it is not installed."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise NoChromium("Chromium is not installed; install it: apt-get install chromium")
    return path


def opened(window: Browser, *, width: int = WIDTH) -> Page:
    """An empty page of that many CSS pixels, whose pictures are sharp."""
    return window.new_page(
        viewport={"width": width, "height": _HEIGHT}, device_scale_factor=_DOTS_PER_PIXEL
    )


def photograph(page: Page, path: Path, *parts: str) -> None:
    """Photograph what the named elements of a page span together.

    The picture ends at edges of elements, so that it cuts through no line, however the page grows.
    """
    page.evaluate("window.scrollTo(0, 0)")
    boxes = [box for part in parts if (box := page.locator(part).first.bounding_box())]
    left = max(min(box["x"] for box in boxes) - _MARGIN, 0)
    top = max(min(box["y"] for box in boxes) - _MARGIN, 0)
    right = max(box["x"] + box["width"] for box in boxes) + _MARGIN
    bottom = max(box["y"] + box["height"] for box in boxes) + _MARGIN
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    picture = Image.open(BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
    picture.save(path, optimize=True)


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
