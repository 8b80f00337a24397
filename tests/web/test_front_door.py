"""Clients that hold connections, don't read, or wait: probes and others are served all the same. Over real sockets."""

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rebalancer.model.errors import ConfigError
from rebalancer.web import Auth, WebServer, app, make_health_app
from rebalancer.web.http import connections, files, server
from tests.web.fakes import JSON, Daemon, a_payload
from tests.web.test_server import PATIENCE, Serve, certificate, until

IDLE = 300
ALERTS = "/api/v1/alerts"


@pytest.fixture
def idle() -> Iterator[Callable[..., None]]:
    """Opens connections that send nothing, until the end of the test."""
    with ExitStack() as stack:

        def hold(web: WebServer, count: int, *, client: str = "127.0.0.1", begun: bytes = b"") -> None:
            for _ in range(count):
                each = socket.create_connection(("127.0.0.1", web.port), PATIENCE, (client, 0))
                stack.enter_context(closing(each))
                each.sendall(begun)

        yield hold


def ask(
    web: WebServer, method: str = "GET", path: str = "/livez", *, client: str = "127.0.0.1", token: str = ""
) -> int:
    """The status of one request on a connection of its own."""
    headers = {**JSON, "Authorization": f"Bearer {token}"}
    with closing(
        http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE, source_address=(client, 0))
    ) as connection:
        connection.request(method, path, a_payload() if method == "POST" else None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


@pytest.mark.parametrize("begun", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half a head"])
def test_idle_connections_of_one_client_keep_none_out(begun: bytes, serve: Serve, idle: Any, daemon: Daemon) -> None:
    web = serve(daemon.app())
    idle(web, IDLE, begun=begun)
    assert [ask(web), ask(web, path="/readyz"), ask(web, "POST", ALERTS)] == [200] * 3
    assert ask(web, client="127.0.0.9") == 200


def test_idle_connections_of_many_clients_keep_none_out(serve: Serve, idle: Any, daemon: Daemon) -> None:
    web = serve(daemon.app())
    for number in range(2, 8):
        idle(web, IDLE // 6, client=f"127.0.0.{number}")
    assert [ask(web), ask(web, path="/readyz"), ask(web, "POST", ALERTS)] == [200] * 3


def test_of_many_busy_clients_no_more_are_served_than_fit() -> None:
    @dataclass(eq=False)
    class FakeConnection:
        idle: bool = False
        aborted: bool = False

        def abort(self) -> None:
            self.aborted = True

    made = [FakeConnection() for _ in range(4)]
    bounded = connections.Connections(most=2, most_of_client=2)
    admitted = [bounded.admit(each, f"10.0.0.{at}") for at, each in enumerate(made[:3])]  # type: ignore[arg-type]
    assert admitted == [True, True, False]
    assert not any(each.aborted for each in made)
    bounded.remove(made[2])  # type: ignore[arg-type]
    made[0].idle = True
    assert bounded.admit(made[3], "10.0.0.9")  # type: ignore[arg-type]
    assert [each.aborted for each in made] == [True, False, False, False]


def test_probes_have_a_listener_and_a_thread_of_their_own(serve: Serve, idle: Any, daemon: Daemon) -> None:
    health = serve(make_health_app(daemon.ports(), metrics=daemon.metrics), name="health")
    entered = threading.Event()

    async def stuck(_scope: Any, _receive: Any, _send: Any) -> None:
        entered.set()
        time.sleep(3)

    web = serve(stuck)
    idle(web, 1, begun=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert entered.wait(PATIENCE)
    idle(health, IDLE)
    assert [ask(health), ask(health, path="/readyz")] == [200, 200]
    assert [ask(health, "POST", ALERTS), ask(health, path="/metrics"), ask(health, path="/")] == [404] * 3
    assert {"web", "health"} <= {thread.name for thread in threading.enumerate()}


def test_a_client_that_keeps_all_its_connections_busy_is_refused_alone(
    serve: Serve, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_OF_CLIENT", 2)
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(_: object, __: object) -> None:
        entered.release()
        leave.wait(PATIENCE)

    daemon.trigger = slow  # type: ignore[method-assign]
    web = serve(daemon.app())
    with ExitStack() as stack:
        busy = []
        for _ in range(2):
            one = http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE, source_address=("127.0.0.2", 0))
            busy.append(stack.enter_context(closing(one)))
            one.request("POST", "/api/v1/trigger", b'{"nodes": ["n1"]}', JSON)
            assert entered.acquire(timeout=PATIENCE)
        assert ask(web, client="127.0.0.2") == 503
        assert ask(web, client="127.0.0.3") == 200
        leave.set()
        assert [each.getresponse().status for each in busy] == [202, 202]
    until(lambda: ask(web, client="127.0.0.2") == 200)


async def large(scope: Any, _receive: Any, send: Any) -> None:
    """An application that answers 16 MiB."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"16777216")]})
    await send({"type": "http.response.body", "body": bytes(16 << 20)})


@pytest.mark.parametrize("ending", ["", "Connection: close\r\n"])
def test_a_client_that_does_not_read_is_hung_up(ending: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    web = serve(large)
    assert web._server is not None
    open_ = web._server.server_state.connections
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as slow:
        slow.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{ending}\r\n".encode())
        until(lambda: open_)
        until(lambda: not open_)


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_reads_gets_all_of_a_large_answer(tls: bool, serve: Serve, tmp_path: Path) -> None:
    context = None
    options = {}
    if tls:
        cert, key = certificate(tmp_path, "tls")
        options = {"tls_cert_file": cert, "tls_key_file": key}
        context = ssl.create_default_context(cafile=cert)
    web = serve(large, **options)
    connection = (
        http.client.HTTPSConnection("127.0.0.1", web.port, timeout=PATIENCE, context=context)
        if tls
        else http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
    )
    with closing(connection):
        for _ in range(2):  # on one connection
            connection.request("GET", "/")
            assert len(connection.getresponse().read()) == 16 << 20


# ---- TLS


@pytest.fixture
def trust(tmp_path: Path) -> Callable[[], ssl.SSLContext]:
    cert, _ = certificate(tmp_path, "tls")
    return lambda: ssl.create_default_context(cafile=cert)


def tls_server(serve: Serve, application: Any, tmp_path: Path) -> WebServer:
    return serve(application, tls_cert_file=str(tmp_path / "tls.crt"), tls_key_file=str(tmp_path / "tls.key"))


def tls_livez(web: WebServer, trust: Callable[[], ssl.SSLContext], *, client: str = "127.0.0.1") -> int:
    """The status of `/livez`, over a TLS connection of its own."""
    with closing(
        http.client.HTTPSConnection(
            "127.0.0.1", web.port, timeout=PATIENCE, context=trust(), source_address=(client, 0)
        )
    ) as connection:
        connection.request("GET", "/livez")
        return connection.getresponse().status


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed it, as far as it can be seen now. The connection doesn't block."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS handshake."""


@pytest.mark.parametrize("begun", [b"", HELLO], ids=["silent", "half a hello"])
def test_handshakes_that_do_not_end_count_in_the_bounds(
    begun: bytes, serve: Serve, daemon: Daemon, tmp_path: Path, trust: Callable[[], ssl.SSLContext]
) -> None:
    web = tls_server(serve, daemon.app(), tmp_path)
    with ExitStack() as stack:
        most = server.MAX_OF_CLIENT
        for client in ("127.0.0.2", "127.0.0.3"):
            held = []
            for _ in range(150):
                each = socket.create_connection(("127.0.0.1", web.port), PATIENCE, (client, 0))
                held.append(stack.enter_context(closing(each)))
                each.sendall(begun)
                each.setblocking(False)
            until(lambda held=held: sum(not closed(each) for each in held) <= most)
            assert sum(not closed(each) for each in held) == most
        assert [tls_livez(web, trust), tls_livez(web, trust, client="127.0.0.2")] == [200, 200]
        for number in range(4, 12):  # more than the listener takes, of addresses that each keep within their bound
            for _ in range(60):
                each = socket.create_connection(("127.0.0.1", web.port), PATIENCE, (f"127.0.0.{number}", 0))
                stack.enter_context(closing(each))
        assert tls_livez(web, trust) == 200


def test_a_handshake_that_does_not_end_is_closed_in_time(
    serve: Serve,
    daemon: Daemon,
    tmp_path: Path,
    trust: Callable[[], ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert connections.TLS_SECONDS == 10
    monkeypatch.setattr(connections, "TLS_SECONDS", 1)
    web = tls_server(serve, daemon.app(), tmp_path)
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as slow:
        began = time.monotonic()
        slow.sendall(HELLO)
        assert slow.recv(1) == b""
        assert 0.9 < time.monotonic() - began < 5
    assert tls_livez(web, trust) == 200


def test_a_client_that_keeps_all_its_connections_busy_gets_no_more_by_trying_again(
    serve: Serve, daemon: Daemon, tmp_path: Path, trust: Callable[[], ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without room is idle until its handshake ends: the next one takes its place, and has no room."""
    monkeypatch.setattr(server, "MAX_OF_CLIENT", 1)
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(_: object, __: object) -> None:
        entered.release()
        leave.wait(PATIENCE)

    daemon.trigger = slow  # type: ignore[method-assign]
    web = tls_server(serve, daemon.app(), tmp_path)
    with closing(http.client.HTTPSConnection("127.0.0.1", web.port, timeout=PATIENCE, context=trust())) as busy:
        busy.request("POST", "/api/v1/trigger", b'{"nodes": ["n1"]}', JSON)
        assert entered.acquire(timeout=PATIENCE)
        with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)):
            assert tls_livez(web, trust) == 503
        leave.set()
        assert busy.getresponse().status == 202
    until(lambda: tls_livez(web, trust) == 200)


# ---- files


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("a token")
    return path


def replaced(path: Path, by: Callable[[Path], None]) -> None:
    """Another file in its place, in one step."""
    new = path.with_suffix(".new")
    by(new)
    os.replace(new, path)


def test_a_token_that_is_a_pipe_takes_no_probe_away(serve: Serve, daemon: Daemon, token: Path) -> None:
    web = serve(daemon.app(Auth(bearer_token_file=str(token))))
    assert ask(web, "POST", ALERTS, token="a token") == 200
    replaced(token, os.mkfifo)
    until(lambda: ask(web, "POST", ALERTS, token="a token") == 503)
    assert ask(web) == 200
    replaced(token, lambda path: path.write_text("a token") and None)
    until(lambda: ask(web, "POST", ALERTS, token="a token") == 200)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is clear, reading a file hangs, as on a dead NFS."""
    alive = threading.Event()
    alive.set()
    real = files.content

    def content(path: str) -> bytes:
        alive.wait(PATIENCE * 3)
        return real(path)

    monkeypatch.setattr(files, "content", content)
    monkeypatch.setattr(files, "READ_SECONDS", 1.0)
    monkeypatch.setattr(files, "AGAIN_SECONDS", 0.5)
    yield alive
    alive.set()


def test_a_token_that_hangs_takes_no_probe_away(
    serve: Serve, daemon: Daemon, token: Path, hanging: threading.Event
) -> None:
    web = serve(daemon.app(Auth(bearer_token_file=str(token))))
    until(lambda: ask(web, "POST", ALERTS, token="a token") == 200)
    hanging.clear()
    until(lambda: ask(web, "POST", ALERTS, token="a token") == 503)
    assert ask(web) == 200
    hanging.set()
    until(lambda: ask(web, "POST", ALERTS, token="a token") == 200)


@pytest.fixture
def stuck(hanging: threading.Event, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set from when a read hangs, which it does for as long as the test waits."""
    entered, read = threading.Event(), files.content

    def content(path: str) -> bytes:
        if not hanging.is_set():
            entered.set()
        return read(path)

    monkeypatch.setattr(files, "content", content)
    monkeypatch.setattr(files, "READ_SECONDS", PATIENCE)
    return entered


def test_other_requests_are_answered_while_a_token_is_read(
    serve: Serve, daemon: Daemon, token: Path, hanging: threading.Event, stuck: threading.Event
) -> None:
    web = serve(daemon.app(Auth(bearer_token_file=str(token))))
    hanging.clear()
    waiting = threading.Thread(target=ask, args=(web, "POST", ALERTS), kwargs={"token": "a token"}, daemon=True)
    waiting.start()
    assert stuck.wait(PATIENCE)
    began = time.monotonic()
    assert ask(web) == 200
    assert time.monotonic() - began < PATIENCE / 2
    hanging.set()
    waiting.join(PATIENCE)


def test_a_file_is_read_again_while_an_earlier_read_hangs(token: Path, hanging: threading.Event) -> None:
    reader = files.FileReader(str(token))
    hanging.clear()
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"no answer within 1 s"):
            reader.read()
    waits = sum(thread.name == "web-file" for thread in threading.enumerate())
    assert waits < files.MOST_HANGING + 1
    hanging.set()
    until(lambda: not any(thread.name == "web-file" for thread in threading.enumerate()))
    assert reader.read() == b"a token"


def test_a_token_that_hangs_at_the_start_is_one_error(token: Path, hanging: threading.Event) -> None:
    hanging.clear()
    with pytest.raises(ConfigError, match=r"token: the bearer token can't be read: no answer within 1 s"):
        Auth(bearer_token_file=str(token)).check_files()


def test_a_certificate_that_hangs_takes_no_probe_away(
    serve: Serve,
    daemon: Daemon,
    tmp_path: Path,
    hanging: threading.Event,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "TLS_LOOK_SECONDS", 0)
    cert, key = certificate(tmp_path, "tls")
    web = serve(daemon.app(), tls_cert_file=cert, tls_key_file=key)
    context = ssl.create_default_context(cafile=cert)
    hanging.clear()
    until(lambda: "the old certificate stays" in caplog.text)
    with closing(http.client.HTTPSConnection("127.0.0.1", web.port, timeout=PATIENCE, context=context)) as connection:
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200


def test_other_requests_are_answered_while_a_certificate_is_read(
    serve: Serve,
    daemon: Daemon,
    tmp_path: Path,
    hanging: threading.Event,
    stuck: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "TLS_LOOK_SECONDS", 0)
    cert, key = certificate(tmp_path, "tls")
    web = serve(daemon.app(), tls_cert_file=cert, tls_key_file=key)
    context = ssl.create_default_context(cafile=cert)
    hanging.clear()
    assert stuck.wait(PATIENCE)
    began = time.monotonic()
    with closing(http.client.HTTPSConnection("127.0.0.1", web.port, timeout=PATIENCE, context=context)) as connection:
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
    assert time.monotonic() - began < PATIENCE / 2


# ---- checks


def test_checks_that_hang_are_not_ready_and_take_livez_not_away(
    serve: Serve, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "READY_SECONDS", 0.3)
    leave = threading.Event()

    def checks() -> list[Any]:
        leave.wait(PATIENCE)
        return []

    health = serve(make_health_app(daemon.ports(checks=checks), metrics=daemon.metrics))
    assert [ask(health, path="/readyz") for _ in range(4)] == [503] * 4
    assert ask(health) == 200
    leave.set()
    until(lambda: ask(health, path="/readyz") == 200)
