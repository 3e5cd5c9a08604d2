"""A server of local pages in a thread, and a browser's half of a conversation with it."""

import http.client
import json
import threading
from contextlib import contextmanager

from cellrepro.show.local_server import LocalServer


@contextmanager
def running(routes):
    """A server in a thread of its own."""
    with LocalServer(routes) as server:
        thread = threading.Thread(
            target=server.serve, args=("the page",), kwargs={"browser": False}
        )
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(timeout=10)
            assert not thread.is_alive()


class Client:
    """The cookie, and the headers that browsers send."""

    def __init__(self, address):
        self.address = address
        self.home, _, self.first_path = address.removeprefix("http://").partition("/")
        self.port = int(self.home.partition(":")[2])
        self.headers = {"Host": self.home, "Origin": f"http://{self.home}"}
        self.headers |= {"Sec-Fetch-Site": "same-origin"}

    def let_in(self):
        answer = self.ask("GET", f"/{self.first_path}")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        self.headers["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]
        return self

    def ask(self, method, path, body=None, **changed):
        headers = {**self.headers, **{name.replace("_", "-"): v for name, v in changed.items()}}
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if value is not None:
                connection.putheader(name, value)
        if method == "POST" and "Content-Length" not in headers:
            connection.putheader("Content-Length", str(len(body or b"")))
        connection.endheaders(body.encode() if isinstance(body, str) else body)
        answer = connection.getresponse()
        answer.body = answer.read()
        connection.close()
        return answer

    def json(self, method, path, body=None):
        return json.loads(self.ask(method, path, body).body)
