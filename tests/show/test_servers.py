"""Who is let in by the servers that the project starts: nobody else, since notebooks run code."""

import http.client
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cellrepro.store.store import Store
from lab_server import free_port, serving
from stores import add_run, three

ROOT = Path(__file__).resolve().parents[2]


def asked(port, path, method="GET"):
    """The status of an answer, and where it sends one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers.get("Location", "")


def is_turned_away(port, path, method="GET"):
    status, place = asked(port, path, method)
    return status == 403 or (status == 302 and "/login?" in place)


def listens_elsewhere(port):
    """Whether another address of this computer is served, too: 127.0.0.2 is one of every Linux."""
    try:
        socket.create_connection(("127.0.0.2", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_server_for_everybody_would_be_noticed():
    with socket.create_server(("0.0.0.0", 0)) as open_to_all:
        assert listens_elsewhere(open_to_all.getsockname()[1])


def options_of_make_lab(*words):
    """What `make lab` gives JupyterLab, without the notebook that the browser opens."""
    planned = subprocess.run(
        ["make", "--dry-run", "lab", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return shlex.split(planned.stdout.partition("/jupyter lab ")[2].splitlines()[0])[:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "is_open"), [((), False), (("IP=0.0.0.0",), True)], ids=["usual", "container"]
)
def test_make_lab_asks_for_a_token(tmp_path, words, is_open):
    """On this computer alone, unless an address is named. As root, who a container has, it runs."""
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", *options_of_make_lab(*words), "--no-browser"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    with serving(command, port, tmp_path):
        for path in ("/lab", "/api/contents", "/api/kernels", "/files/README.md"):
            assert is_turned_away(port, path), path
        assert is_turned_away(port, "/api/kernels", "POST")
        assert listens_elsewhere(port) == is_open
        said = (tmp_path / "server.log").read_text(encoding="utf-8")
        token = re.search(r"token=([0-9a-f]{32,})", said)[1]
        assert asked(port, f"/api/contents?token={token}")[0] == 200


@pytest.mark.slow
def test_make_explore_asks_for_a_token_on_this_computer_alone(tmp_path):
    add_run(Store(tmp_path / "outputs"), [(1.0, three())])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert '$(BIN)/python scripts/explore.py "$(STORE)"' in makefile
    port = free_port()
    script = ROOT / "scripts" / "explore.py"
    command = [sys.executable, str(script), str(tmp_path / "outputs"), "--no-browser"]
    with serving([*command, "--port", str(port)], port, tmp_path):
        for path in ("/", "/api/kernels", "/voila/files/notebooks/07_explorer.ipynb"):
            assert is_turned_away(port, path), path
        assert is_turned_away(port, "/voila/api/shutdown/1", "POST")
        assert not listens_elsewhere(port)
        refused = subprocess.run(
            [*command, "--port", str(port)], capture_output=True, text=True, timeout=120
        )
        assert f"port {port} is taken" in refused.stderr
        said = (tmp_path / "server.log").read_text(encoding="utf-8")
        (token,) = re.findall(r"/\?token=([\w-]{32})$", said, re.MULTILINE)
        assert asked(port, f"/?token={token}")[0] == 200
