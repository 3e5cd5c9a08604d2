"""Serve the explorer alone to a browser on this computer; `make explore` calls this.

    python scripts/explore.py outputs            # the runs of this store
    python scripts/explore.py outputs --no-browser --port 8866

Notebooks run code, so nobody else is let in: by notebooks/voila.json Voila listens on 127.0.0.1
alone, and asks for a token. It is made anew each time, and handed over in a variable: other users
of this computer could read it in a command line.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import webbrowser
from pathlib import Path

from browser import free_port, is_free, wait_for

PROJECT = Path(__file__).resolve().parents[1]
USUAL_PORT = 8866


def main() -> int:
    """Serve until the server ends, or Ctrl-C is pressed."""
    parser = argparse.ArgumentParser(description="The explorer alone, in the browser.")
    parser.add_argument("store", nargs="?", default="outputs", help="folder of finished runs")
    parser.add_argument("--port", type=int, help="default 8866, or any where that is taken")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    arguments = parser.parse_args()
    port = arguments.port or (USUAL_PORT if is_free(USUAL_PORT) else free_port())
    if not is_free(port):
        sys.exit(f"port {port} is taken; name another one with --port, or leave it out")
    token = secrets.token_urlsafe(24)
    # The notebook's kernel starts beside the notebook, so the store is named in full.
    store = Path(arguments.store).resolve()
    with subprocess.Popen(
        voila_command(port),
        cwd=PROJECT,
        env={**os.environ, "CELLREPRO_STORE": str(store), "JUPYTER_TOKEN": token},
    ) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/login", server)
            address = f"http://127.0.0.1:{port}/?token={token}"
            print(f"the explorer of {store}: {address}", flush=True)
            if not arguments.no_browser:
                webbrowser.open(address)
            return server.wait()
        except RuntimeError as error:
            server.terminate()
            sys.exit(str(error))
        except KeyboardInterrupt:  # the server hears of it, too, and ends its kernels
            return server.wait(timeout=30)


def voila_command(port: int) -> list[str]:
    """How Voila serves notebook 07; by notebooks/voila.json the page asks no other server."""
    return [
        *(sys.executable, "-m", "voila", "notebooks/07_explorer.ipynb"),
        *("--Voila.config_file_paths=notebooks", f"--port={port}", "--Voila.port_retries=0"),
    ]


if __name__ == "__main__":
    sys.exit(main())
