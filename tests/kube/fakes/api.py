"""A scripted HTTP server on loopback: a fake at the network's edge, so that sockets, timeouts and cuts are real."""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kubernetes.client import Configuration

from rebalancer.kube.client.auth import Credentials
from rebalancer.kube.client.client import ApiClient, Retries, Timeouts, connect
from rebalancer.lab import Lab


@dataclass(frozen=True, kw_only=True)
class Asked:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection in the middle of the body."""
    drop: bool = False
    """Close the connection without an answer."""
    hang_until: threading.Event | None = None
    stream: Iterable[bytes] | None = None
    """In place of a body: its parts, each sent as soon as it is there, in a chunk of its own."""


Script = Callable[[Asked], Reply]


class Server(ThreadingHTTPServer):
    request_queue_size = 64  # a dozen watches connect at once; one that finds the queue full waits a second


class FakeApi:
    """Answers by a script and remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                parts = urlsplit(self.path)
                asked = Asked(
                    method=self.command,
                    path=parts.path,
                    query=dict(parse_qsl(parts.query)),
                    headers=dict(self.headers),
                    body=json.loads(raw) if raw else None,
                )
                fake.asked.append(asked)
                self._send(fake.script(asked))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

            def _send(self, reply: Reply) -> None:
                if reply.hang_until is not None:
                    reply.hang_until.wait(10)
                if reply.drop or reply.hang_until is not None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if reply.stream is not None:
                    self._stream(reply)
                    return
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if reply.cut:
                    self.wfile.write(data[: len(data) // 2])
                    self.close_connection = True
                    return
                self.wfile.write(data)

            def _stream(self, reply: Reply) -> None:
                self.close_connection = True
                self.send_response(reply.status)
                self.send_header("Transfer-Encoding", "chunked")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    for part in reply.stream or ():
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                    self.wfile.write(b"0\r\n\r\n" if not reply.cut else b"")
                except OSError:
                    return  # the reader has gone

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def count(self, method: str, ending: str = "") -> int:
        return sum(asked.method == method and asked.path.endswith(ending) for asked in self.asked)

    def __enter__(self) -> "FakeApi":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def client_of(url: str, *, read_seconds: float = 5.0, attempts: int = 4, waits: list[float] | None = None) -> ApiClient:
    """A client that never really waits between attempts; the waits it would have made are put into `waits`."""

    def load() -> Configuration:
        configuration = Configuration(host=url)
        configuration.retries = 0
        configuration.proxy = None
        return configuration

    return ApiClient(
        credentials=Credentials(load),
        user_agent="rebalancer/test",
        timeouts=Timeouts(connect_seconds=1.0, read_seconds=read_seconds),
        retries=Retries(attempts=attempts),
        sleep=(waits if waits is not None else []).append,
    )


@contextmanager
def client_of_lab(lab: Lab, folder: Path, **options: Any) -> Iterator[ApiClient]:
    """By its kubeconfig, which is written into the folder."""
    client = connect(str(lab.write_kubeconfig(folder / "kubeconfig")), None, "rebalancer/test", **options)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def serving(script: Script, **options: Any) -> Iterator[tuple[FakeApi, ApiClient]]:
    with FakeApi(script) as api:
        client = client_of(api.url, **options)
        try:
            yield api, client
        finally:
            client.close()


def status(code: int, message: str = "", *causes: tuple[str, str], headers: Mapping[str, str] | None = None) -> Reply:
    """A metav1.Status as the API server sends it."""
    details = {"causes": [{"reason": reason, "message": text} for reason, text in causes]}
    body = {"kind": "Status", "status": "Failure", "message": message, "details": details, "code": code}
    return Reply(status=code, body=body, headers=headers or {})


class FakeClock:
    """The Clock port, standing still but for sleeps."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
