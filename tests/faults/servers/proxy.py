"""An HTTP proxy with faults, for a place between the daemon and an API server, a Prometheus, or any other HTTP server.

`python -m tests.faults.programs.proxy --help` runs it alone.
"""

import http.client
import random
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

HOP_BY_HOP = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"})
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""
READ_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyFault:
    """What happens to requests. Without any field they pass unharmed."""

    requests: str = ""
    """Regular expression over `METHOD /path?query`: only these."""
    share: float = 1.0
    """Of these requests, drawn at random with the proxy's seed."""
    delay_seconds: float = 0.0
    """Before the request is passed on, or answered."""
    hang: bool = False
    """No byte is passed on while the fault lasts, also on open streams."""
    reset: bool = False
    """The connection is reset, without an answer."""
    passed_on: bool = False
    """With `reset` or `status`: the server gets the request first, and its answer is lost."""
    status: int = 0
    """The proxy answers itself; 0 = it doesn't."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    cut_after_bytes: int | None = None
    """The body breaks off there, and the connection ends."""
    drip_seconds: float = 0.0
    """Pause after each byte of the body."""


NO_FAULT = ProxyFault()


class FaultProxy:
    """Listens on a loopback port until it is closed. `begin` and `end` switch the fault; thread-safe."""

    def __init__(self, server: str, *, ca_file: Path | None = None, port: int = 0, seed: int = 1) -> None:
        """`server` is `http://HOST:PORT` or `https://HOST:PORT`. Raises OSError where the port is taken."""
        self.server = urlsplit(server)
        self.tls = ssl.create_default_context(cafile=ca_file) if self.server.scheme == "https" else None
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._fault = NO_FAULT
        self._open: dict[socket.socket, str] = {}
        """Connections of clients -> the request that is being answered."""
        self.over = threading.Event()
        """Set while there is no fault."""
        self.over.set()
        self.hits = 0
        """Requests that met the fault since `begin`."""
        self.asked: list[str] = []
        """`METHOD /path?query` of every request."""
        self._http = _Server(("127.0.0.1", port), self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    def begin(self, fault: ProxyFault) -> None:
        """Open streams that the fault is about end, so that they are requested again; those of `hang` fall silent."""
        with self._lock:
            self._fault, self.hits = fault, 0
            self.over = threading.Event()
            ended = [] if fault.hang else [each for each, request in self._open.items() if self._meets(request)]
            self._open |= dict.fromkeys(ended, "")
        _shut(ended)

    def end(self) -> None:
        """Requests pass unharmed again; those that hang go on."""
        with self._lock:
            self._fault = NO_FAULT
            self.over.set()

    def close(self) -> None:
        self.end()
        self._http.shutdown()
        self._http.server_close()
        with self._lock:
            left, self._open = list(self._open), {}
        _shut(left)
        self._thread.join()

    def fault_of(self, request: str, connection: socket.socket) -> tuple[ProxyFault, threading.Event]:
        """(fault of `METHOD /path?query`, event that is set once it is over)."""
        with self._lock:
            self._open[connection] = request
            self.asked.append(request)
            if not self._meets(request) or self._random.random() >= self._fault.share:
                return NO_FAULT, self.over
            self.hits += 1
            return self._fault, self.over

    def silent(self, connection: socket.socket) -> threading.Event | None:
        """While open streams hang, the event that is set once they go on."""
        with self._lock:
            hangs = self._fault.hang and self._meets(self._open.get(connection, ""))
            return self.over if hangs else None

    def being_answered(self, requests: str) -> int:
        """Number of requests that match and whose answers are not complete."""
        with self._lock:
            return sum(re.search(requests, each) is not None for each in self._open.values() if each)

    def answered(self, connection: socket.socket) -> None:
        with self._lock:
            self._open[connection] = ""

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)

    def _meets(self, request: str) -> bool:
        return self._fault is not NO_FAULT and request != "" and re.search(self._fault.requests, request) is not None


def _shut(connections: list[socket.socket]) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def fault_proxy(server: str, *, ca_file: Path | None = None) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server, ca_file=ca_file)
    try:
        yield proxy
    finally:
        proxy.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up whenever they like."""


class _Lost(Exception):
    """The connection ends here."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._server: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        self.server.proxy.closed(self.connection)
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (_Lost, OSError, http.client.HTTPException):
            self.close_connection = True

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, over = self.server.proxy.fault_of(f"{self.command} {self.path}", self.connection)
        if fault.hang:
            over.wait()
        over.wait(fault.delay_seconds)
        if fault.reset or fault.status:
            if fault.passed_on:
                self._ask(body).read()
            if fault.reset:
                self._reset()
            self._answer(fault)
        else:
            self._pass(self._ask(body), fault)
        self.server.proxy.answered(self.connection)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _handle

    def _ask(self, body: bytes) -> http.client.HTTPResponse:
        proxy, fields = self.server.proxy, {}
        for name, value in self.headers.items():
            if name.lower() not in HOP_BY_HOP | {"host"}:
                fields[name] = value
        host, port = proxy.server.hostname or "", proxy.server.port
        if self._server is None:
            self._server = (
                http.client.HTTPConnection(host, port)
                if proxy.tls is None
                else http.client.HTTPSConnection(host, port, context=proxy.tls)
            )
        self._server.request(self.command, self.path, body or None, fields)
        return self._server.getresponse()

    def _answer(self, fault: ProxyFault) -> None:
        self.send_response(fault.status)
        for name, value in fault.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(fault.body)))
        self.end_headers()
        self._write(fault.body[: fault.cut_after_bytes], fault)
        if fault.cut_after_bytes is not None:
            raise _Lost

    def _pass(self, response: http.client.HTTPResponse, fault: ProxyFault) -> None:
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        whole = response.length
        if whole is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(whole))
        self.end_headers()
        if self.command == "HEAD":
            return
        left = fault.cut_after_bytes
        while data := response.read1(READ_BYTES):
            if (over := self.server.proxy.silent(self.connection)) is not None:
                over.wait()
            part = data if left is None else data[:left]
            self._write(b"%x\r\n%s\r\n" % (len(part), part) if whole is None and part else part, fault)
            if left is not None:
                left -= len(part)
                if left <= 0:
                    raise _Lost
        # at the end of a known length `read1` leaves it open
        response.close()
        if whole is None:
            self._write(b"0\r\n\r\n", fault)

    def _write(self, data: bytes, fault: ProxyFault) -> None:
        if fault.drip_seconds:
            over = self.server.proxy.over
            for at in range(len(data)):
                if over.is_set():
                    data = data[at:]
                    break
                self.wfile.write(data[at : at + 1])
                self.wfile.flush()
                over.wait(fault.drip_seconds)
            else:
                return
        self.wfile.write(data)
        self.wfile.flush()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.connection.close()
        raise _Lost
