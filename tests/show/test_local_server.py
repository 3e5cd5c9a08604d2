"""The server of local pages: who is let in, what is bounded, how it ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from cellrepro.show.local_server import Response, Route, json_response, page_response
from local_client import Client, running
from samebits.errors import BadInput


def echo(request):
    return json_response({"sent": request.json()})


def refuse(request):
    raise BadInput("this is no image; expected one")


def fail(request):
    raise ZeroDivisionError


def count(request):
    return json_response({"n": sum(map(len, request.blocks()))})


def routes(tmp_path):
    (tmp_path / "plane.bin").write_bytes(b"\0\1\2")
    return {
        ("GET", "/"): Route(lambda request: page_response("<p>here")),
        ("GET", "/plane"): Route(
            lambda request: Response(tmp_path / "plane.bin", saved_as="a b\r\n√.bin")
        ),
        ("POST", "/echo"): Route(echo),
        ("POST", "/refuse"): Route(refuse),
        ("POST", "/fail"): Route(fail),
        ("POST", "/count"): Route(count, most_bytes=2**22),
    }


@pytest.fixture
def client(tmp_path):
    with running(routes(tmp_path)) as server:
        made = Client(server.address)
        made.server = server
        yield made


def test_nobody_is_let_in_without_the_token(client):
    every = [("GET", "/"), ("GET", "/plane"), ("POST", "/echo"), ("POST", "/stop"), ("GET", "/no")]
    cookie = client.server.cookie
    for method, path in every:
        for given in (
            None,
            f"{cookie}=x",
            f"{cookie}=",
            "\xe9;==",
            f"other={client.server.session}",
        ):
            assert client.ask(method, path, Cookie=given).status == 403, (path, given)
    for token in ("", "x", "%ff", client.server.session):
        assert client.ask("GET", f"/?token={token}").status == 403
    client.let_in()
    assert client.ask("GET", "/").body == b"<p>here"
    assert (
        client.ask("POST", "/echo", {"a": [1]}).body
        == b'{\n "sent": {\n  "a": [\n   1\n  ]\n }\n}\n'
    )


def test_the_token_that_a_browser_is_started_with_counts_once(client, monkeypatch):
    """Other users see the words with which it was started."""
    opened = []
    monkeypatch.setattr("cellrepro.show.local_server.open_in_browser", opened.append)
    client.server._open()
    (address,) = opened
    assert address != client.server.address
    path = address.partition(client.home)[2]
    assert [client.ask("GET", path).status for _ in range(2)] == [303, 403]
    assert [client.let_in() and 1 for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "127.0.0.2", "", None, "127.0.0.1:x"]
)
def test_a_name_that_leads_here_by_a_trick_is_refused(client, host):
    client.let_in()
    answer = client.ask("GET", "/", Host=host, Origin=f"http://{host}")
    assert (answer.status, b"127.0.0.1 and nothing else" in answer.body) == (403, True)


def test_a_tunnel_with_another_port_is_let_in(client):
    client.let_in()
    through = {"Host": "localhost:9", "Origin": "http://localhost:9"}
    assert client.ask("POST", "/echo", {"a": 1}, **through).status == 200


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"}),
        ("POST", {"Origin": "http://127.0.0.1:9"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Origin": None}),
        ("POST", {"Sec_Fetch_Site": "same-site"}),
        ("GET", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "image"}),
        ("GET", {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Dest": "iframe"}),
    ],
)
def test_pages_of_other_servers_can_ask_for_nothing(client, method, headers):
    client.let_in()
    path = "/echo" if method == "POST" else "/plane"
    assert client.ask(method, path, {"a": 1} if method == "POST" else None, **headers).status == 403


def test_every_answer_has_the_headers_that_protect_it(client):
    client.let_in()
    for answer in (
        client.ask("GET", "/"),
        client.ask("GET", "/plane"),
        client.ask("GET", "/no"),
        client.ask("PUT", "/"),
        client.ask("GET", "/", Cookie=None),
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "Python" not in answer.headers["Server"]
    saved = client.ask("GET", "/plane")
    assert saved.body == b"\0\1\2"
    assert saved.headers["Content-Disposition"] == (
        "attachment; filename*=UTF-8''a%20b%0D%0A%E2%88%9A.bin"
    )


def test_what_is_sent_is_bounded(client):
    client.let_in()
    assert client.ask("POST", "/count", b"x" * 2**22).body == b'{\n "n": 4194304\n}\n'
    answer = client.ask("POST", "/count", b"x" * (2**22 + 1))
    assert answer.status == 413
    assert "4194304 at most" in json.loads(answer.body)["problem"]
    for length in ("-1", "x", "9" * 30, "1, 2"):
        assert client.ask("POST", "/count", Content_Length=length).status == 411
    assert client.ask("POST", "/count", b"", Transfer_Encoding="chunked").status == 411
    assert client.ask("GET", "/?" + "&".join(f"a{n}=1" for n in range(99))).status == 400


def test_a_body_that_ends_too_early_is_no_whole_one(client):
    client.let_in()
    head = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
    with socket.create_connection(("127.0.0.1", client.server.server_port)) as connection:
        connection.sendall(f"POST /count HTTP/1.1\r\n{head}Content-Length: 9\r\n\r\nabc".encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert b"the connection ended after 3 of 9 bytes" in answer


def test_errors_are_sentences(client, capfd):
    client.let_in()
    answer = client.ask("POST", "/refuse")
    assert (answer.status, json.loads(answer.body)["problem"]) == (
        400,
        "this is no image; expected one",
    )
    for body in (b"{", b"[" * 100_000):
        refused = client.ask("POST", "/echo", body, Content_Type="application/json")
        assert (refused.status, "is no JSON" in json.loads(refused.body)["problem"]) == (400, True)
    assert client.ask("POST", "/echo", b"{}", Content_Type="text/plain").status == 400
    failed = client.ask("POST", "/fail")
    assert (failed.status, "ZeroDivisionError" in json.loads(failed.body)["problem"]) == (500, True)
    assert "Traceback" in capfd.readouterr().err


def test_two_at_once_are_answered_and_no_more_than_there_are_threads(tmp_path):
    """One waits for the other here: served one after another, they would wait forever."""
    meeting = threading.Barrier(2, timeout=10)

    def meet(request):
        return json_response({"place": meeting.wait()})

    with running({("GET", "/"): Route(meet)}) as server:
        clients = [Client(server.address).let_in() for _ in range(2)]
        found = []
        threads = [
            threading.Thread(target=lambda c=c: found.append(c.ask("GET", "/").status))
            for c in clients
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [200, 200]
        idle = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(32)]
        time.sleep(0.3)  # until each has its thread
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            clients[0].ask("GET", "/")
        for connection in idle:
            connection.close()


SERVED = """
from cellrepro.show.local_server import LocalServer, Route, page_response
with LocalServer({("GET", "/"): Route(lambda request: page_response("<p>here"))}) as server:
    server.serve("the page", browser=True)
print("cleaned up")
"""


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "stop"])
def test_it_ends_by_ctrl_c_by_being_killed_and_by_its_page(end):
    without = {name: v for name, v in os.environ.items() if name not in ("DISPLAY", "BROWSER")}
    command = [sys.executable, "-c", SERVED]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=without
    ) as server:
        said = [server.stderr.readline() for _ in range(5)]
        address = said[0].removeprefix("the page: ").strip()
        assert f"    ssh -L {address.split(':')[2].split('/')[0]}:127.0.0.1:" in said[2]
        assert "Ctrl-C here, or Stop on the page, ends it" in said[4]
        if end == "stop":
            assert Client(address).let_in().ask("POST", "/stop").status == 200
        else:
            server.send_signal(getattr(signal, end))
        out, errors = server.communicate(timeout=20)
        assert (server.returncode, out, errors) == (0, "cleaned up\n", "")
