"""A server for pages of this computer alone, whose address has a token.

A command gives it functions by method and path, `Route`s, and `LocalServer.serve` answers until
somebody presses Ctrl-C or asks for ``POST /stop``. A page finds everything below its own address:
the token is exchanged for a cookie, which every request then needs.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socketserver
import sys
import threading
import time
import traceback
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from types import FrameType
from typing import Literal
from urllib.parse import parse_qsl, quote, urlsplit

from cellrepro.errors import CellreproError
from cellrepro.progress import print_line
from samebits.errors import BadInput
from samebits.results import json_text

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load and ask for: this server, and no script inside the page."""

_HOME = "127.0.0.1"
_HOME_NAMES = frozenset({_HOME, "localhost"})
_MOST_REQUESTS = 32  # at once
_MOST_BYTES = 2**20  # of what is sent to a usual route
_MOST_FIELDS = 20  # of a query
_BLOCK = 2**20
_SECONDS_OF_STRANGERS = 10  # without a word, of a connection that was not let in
_SECONDS_OF_GUESTS = 60
_SECONDS_TO_END = 2  # of requests that run when the server stops
_DRAINED_SECONDS = 2  # of what somebody still sends when the answer is already there
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Method = Literal["GET", "POST"]


@dataclass(frozen=True)
class Request:
    """What a page asks for; whoever asks was let in."""

    path: str
    query: Mapping[str, str]
    content_type: str
    n_bytes: int
    """Of what is sent with it."""
    _body: _Body

    def blocks(self) -> Iterator[bytes]:
        """Read what is sent, a block at a time; once."""
        while self._body.left:
            block = self._body.read(_BLOCK)
            if not block:
                n_read = self.n_bytes - self._body.left
                raise BadInput(
                    f"the connection ended after {n_read} of {self.n_bytes} bytes; send it again"
                )
            yield block

    def json(self) -> object:
        """Read JSON that a page sends, any value of it."""
        import json

        if self.content_type.partition(";")[0].strip().lower() != "application/json":
            raise BadInput(f"{self.path} takes application/json, got {self.content_type!r}")
        try:
            return json.loads(b"".join(self.blocks()))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"what was sent to {self.path} is no JSON ({error})") from error


@dataclass(frozen=True)
class Response:
    """What a page gets: bytes, or a file that is read as it is sent."""

    content: bytes | Path
    media_type: str = "application/octet-stream"
    status: int = HTTPStatus.OK
    policy: str = PAGE_POLICY
    """Its Content-Security-Policy."""
    saved_as: str = ""
    """The name under which the browser saves it; empty where it shows it."""


def page_response(html: str) -> Response:
    """Answer with a page."""
    return Response(html.encode(), "text/html; charset=utf-8")


def json_response(value: object, *, status: int = HTTPStatus.OK) -> Response:
    """Answer with a value as JSON, results and their fields among them."""
    return Response(json_text(value).encode(), "application/json", status)


@dataclass(frozen=True)
class Route:
    """What answers one path; an error of the lab becomes JSON with its sentence as ``problem``."""

    answer: Callable[[Request], Response]
    most_bytes: int = _MOST_BYTES
    """That may be sent to it."""


Routes = Mapping[tuple[Method, str], Route]


def has_screen() -> bool:
    """Whether this process can open windows."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY")
    return not sys.platform.startswith("linux") or any(map(os.environ.get, variables))


def can_show_a_browser() -> bool:
    """Whether a browser would have a window of its own."""
    # Without a screen a browser of text would take over the terminal.
    return has_screen() or bool(os.environ.get("BROWSER"))


def open_in_browser(address: str) -> bool:
    """Ask a browser to show an address; whether there is one that can."""
    return can_show_a_browser() and webbrowser.open(address)


class LocalServer(ThreadingHTTPServer):
    """A server on a free port of this computer alone."""

    allow_reuse_address = False  # on Windows another program could listen on the same port
    request_queue_size = _MOST_REQUESTS

    def __init__(self, routes: Routes):
        self._routes: Routes = {
            ("GET", "/favicon.ico"): Route(lambda request: Response(b"", "image/x-icon")),
            **routes,
            ("POST", "/stop"): Route(self._stop),
        }
        self._token = secrets.token_urlsafe(32)
        self._token_of_browser = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._free = threading.Semaphore(_MOST_REQUESTS)
        super().__init__((_HOME, 0), _Handler)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return self._address_with(self._token)

    @property
    def cookie(self) -> str:
        """The name of the cookie; cookies are shared by all ports of a computer."""
        return f"cellrepro-{self.server_port}"

    def serve(self, what: str, *, browser: bool = True) -> None:
        """Answer until Ctrl-C or ``POST /stop``; say where, and open the browser.

        ``what`` begins the sentence, such as ``the page``.
        """
        with _ended_by_signals():
            with suppress(KeyboardInterrupt):
                print_line(f"{what}: {self.address}")
                if browser and can_show_a_browser():
                    # A browser may take its time.
                    threading.Thread(target=self._open, daemon=True).start()
                else:
                    print_line(self._how_to_open())
                print_line("Ctrl-C here, or Stop on the page, ends it")
                self.serve_forever(poll_interval=0.1)
            self._let_requests_end()

    def server_bind(self) -> None:
        """Listen without looking up a name for this address, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name = _HOME
        self.server_port = self.server_address[1]

    def process_request(self, request: object, client_address: object) -> None:
        """Answer in a thread, or not at all where too many are busy."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except RuntimeError:  # no thread to be had
            self._free.release()
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say what went wrong, unless somebody has hung up."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            traceback.print_exc()

    def lets_in(self, token: str) -> bool:
        """Whether a token is that of this server; the one that a browser was given counts once.

        Other users of this computer can see the words with which a browser was started.
        """
        if _same(token, self._token):
            return True
        with self._lock:
            if self._token_of_browser and _same(token, self._token_of_browser):
                self._token_of_browser = ""
                return True
        return False

    def route(self, method: str, path: str) -> Route | None:
        """What answers a path, if anything does."""
        return next((route for key, route in self._routes.items() if key == (method, path)), None)

    def _address_with(self, token: str) -> str:
        return f"http://{_HOME}:{self.server_port}/?token={token}"

    def _open(self) -> None:
        if not open_in_browser(self._address_with(self._token_of_browser)):
            print_line(self._how_to_open())

    def _how_to_open(self) -> str:
        port = self.server_port
        return (
            "open this address in a browser of this computer. If this computer is a remote "
            "one, run on your own (HOST is the name with which you log in)\n"
            f"    ssh -L {port}:{_HOME}:{port} HOST\n"
            "and open the address there"
        )

    def _stop(self, request: Request) -> Response:
        # It waits until serving has ended, so it cannot be called where that is done.
        threading.Thread(target=self.shutdown, daemon=True).start()
        return json_response({"stopped": True})

    def _let_requests_end(self) -> None:
        """Give answers that are on their way the time to arrive."""
        end = time.monotonic() + _SECONDS_TO_END
        with suppress(KeyboardInterrupt):
            for _ in range(_MOST_REQUESTS):
                if not self._free.acquire(timeout=max(0, end - time.monotonic())):
                    return


class _Refusal(Exception):
    """Somebody is not let in, or asks for what is not there."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.response = Response(sentence.encode(), "text/plain; charset=utf-8", status)


class _Body:
    """What is sent with a request, and nothing after it."""

    def __init__(self, stream: BufferedIOBase, n_bytes: int):
        self._stream = stream
        self.left = n_bytes

    def read(self, most: int) -> bytes:
        """Read at most so many bytes; none where it ends too early."""
        block = self._stream.read(min(most, self.left))
        self.left -= len(block)
        return block


class _Handler(BaseHTTPRequestHandler):
    """One request of one connection: more of them would keep a thread each waiting."""

    server: LocalServer
    protocol_version = "HTTP/1.0"
    timeout = _SECONDS_OF_STRANGERS

    def do_GET(self) -> None:
        """Answer a request."""
        self._body = _Body(self.rfile, 0)
        try:
            response = self._response()
        except _Refusal as refusal:
            response = refusal.response
        except CellreproError as error:
            response = json_response({"problem": str(error)}, status=HTTPStatus.BAD_REQUEST)
        except (ConnectionError, TimeoutError):
            return
        except Exception as error:
            traceback.print_exc()
            sentence = f"this failed ({type(error).__name__}); the terminal says where"
            response = json_response({"problem": sentence}, status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(response)
        self._drain()

    do_POST = do_GET

    def version_string(self) -> str:
        """The name of the server, without its version."""
        return "cellrepro"

    def log_message(self, *words: object) -> None:
        """Say nothing of requests: their address may hold the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request that this server knows."""
        self._send(_Refusal(code, message or HTTPStatus(code).phrase).response)

    def _response(self) -> Response:
        origin = self._own_origin()
        self._refuse_other_pages(origin)
        if not self.path.startswith("/"):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "An address here begins with a slash.")
        place = urlsplit(self.path)
        try:
            fields = parse_qsl(place.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "too many fields in the address") from error
        query = dict(fields)
        if self.command == "GET" and "token" in query:
            return self._exchanged(query["token"])
        if not self._has_cookie():
            raise _Refusal(
                HTTPStatus.FORBIDDEN,
                "This page is opened by the address that the terminal shows, with its token.",
            )
        route = self.server.route(self.command, place.path)
        if route is None:
            raise _Refusal(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
        self.connection.settimeout(_SECONDS_OF_GUESTS)
        n_bytes = self._n_bytes()
        self._body = _Body(self.rfile, n_bytes)
        if n_bytes > route.most_bytes:
            sentence = (
                f"{n_bytes} bytes were sent to {place.path}; expected {route.most_bytes} at most"
            )
            return json_response({"problem": sentence}, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        content_type = self.headers.get("Content-Type", "")
        return route.answer(Request(place.path, query, content_type, n_bytes, self._body))

    def _own_origin(self) -> str:
        """The origin of a page of this server; refuse any name that leads here by a trick of DNS.

        The port may be another one, where the address comes through a tunnel.
        """
        hosts = self.headers.get_all("Host") or [""]
        name, _, port = hosts[0].partition(":")
        if len(hosts) > 1 or name.lower() not in _HOME_NAMES or not re.fullmatch(r"\d{0,5}", port):
            raise _Refusal(HTTPStatus.FORBIDDEN, f"This server is {_HOME} and nothing else.")
        return f"http://{hosts[0].lower()}"

    def _refuse_other_pages(self, origin: str) -> None:
        """Refuse what a page of another server asks for, but for going to an address here."""
        site = self.headers.get("Sec-Fetch-Site", "none")
        goes_here = self.command == "GET" and self.headers.get("Sec-Fetch-Dest") == "document"
        from_here = site == "same-origin" or (site == "none" and self.command == "GET") or goes_here
        if self.command == "POST":  # with which every browser says where it comes from
            from_here = self.headers.get("Origin", "") == origin and site in ("same-origin", "none")
        if not from_here:
            raise _Refusal(HTTPStatus.FORBIDDEN, "Only pages of this server may ask for this.")

    def _exchanged(self, token: str) -> Response:
        """Exchange the token in the address for a cookie."""
        if not self.server.lets_in(token):
            raise _Refusal(
                HTTPStatus.FORBIDDEN,
                "This address was used before, or is of a page that has ended. The terminal shows "
                "the address of the page that runs.",
            )
        return Response(b"", "text/plain", HTTPStatus.SEE_OTHER)

    def _has_cookie(self) -> bool:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(self.server.cookie)
        return cookie is not None and _same(cookie.value, self.server.session)

    def _n_bytes(self) -> int:
        """How many bytes are sent."""
        if self.command == "GET":
            return 0
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,18}", length):
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "The length must be said beforehand.")
        return int(length)

    def _send(self, response: Response) -> None:
        if isinstance(response.content, Path):
            with response.content.open("rb") as file:
                self._send_head(response, os.fstat(file.fileno()).st_size)
                while block := file.read(_BLOCK):
                    self.wfile.write(block)
        else:
            self._send_head(response, len(response.content))
            self.wfile.write(response.content)

    def _send_head(self, response: Response, n_bytes: int) -> None:
        self.send_response(response.status)
        headers = {
            **_HEADERS,
            "Content-Type": response.media_type,
            "Content-Length": str(n_bytes),
            "Content-Security-Policy": response.policy,
        }
        if response.saved_as:
            name = quote(response.saved_as, safe="")
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
        if response.status == HTTPStatus.SEE_OTHER:
            headers["Location"] = "/"
            headers["Set-Cookie"] = (
                f"{self.server.cookie}={self.server.session}; HttpOnly; SameSite=Lax; Path=/"
            )
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _drain(self) -> None:
        """Read what is still sent: a browser that is cut off shows no answer."""
        end = time.monotonic() + _DRAINED_SECONDS
        self.connection.settimeout(_DRAINED_SECONDS)
        with suppress(OSError):
            while self._body.left and time.monotonic() < end and self._body.read(_BLOCK):
                pass


def _same(given: str, secret: str) -> bool:
    """Compare in a time that tells nothing of the secret."""
    return secrets.compare_digest(given.encode(), secret.encode())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End a block as Ctrl-C does where the process is asked to end, so that files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    earlier = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
