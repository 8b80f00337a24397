"""Real HTTP against a started server."""

import http.client
import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rebalancer.model.errors import ConfigError
from rebalancer.web import Auth, WebServer
from rebalancer.web.http import connections, server
from rebalancer.web.http.server import parse_listen
from tests.web.fakes import JSON, Daemon, a_payload

ALERTS = "/api/v1/alerts"
PATIENCE = 20.0

Serve = Callable[..., WebServer]


def connect(web: WebServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)


def posted(web: WebServer, **headers: str) -> urllib.request.Request:
    return urllib.request.Request(f"{web.url}{ALERTS}", a_payload(), JSON | headers)


def until(what: Callable[[], object]) -> None:
    """Wait until it is so; a test that waits in vain fails."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_alerts_come_in_and_the_daemon_is_woken(serve: Serve, daemon: Daemon) -> None:
    web = serve(daemon.app())

    with urllib.request.urlopen(posted(web), timeout=PATIENCE) as answer:
        assert answer.status == 200
        assert json.load(answer) == {"opened": 1, "duplicate": 0, "resolved": 0, "ignored": {}}
        assert "server" not in {name.lower() for name in answer.headers}
    until(lambda: daemon.woken == 1)


def test_one_connection_serves_many_requests(serve: Serve, daemon: Daemon) -> None:
    web = serve(daemon.app())
    with closing(connect(web)) as connection:
        for method, path, status in [("HEAD", "/livez", 200), ("GET", "/nowhere", 404), ("POST", ALERTS, 200)]:
            connection.request(method, path, a_payload() if method == "POST" else None, JSON)
            answer = connection.getresponse()
            assert answer.status == status
            assert bool(answer.read()) == (method != "HEAD")
            sock = connection.sock
        connection.request("GET", "/readyz?verbose")
        assert connection.sock is sock
        assert connection.getresponse().read() == b"[+]cache ok\nreadyz check passed\n"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_answered_413(serve: Serve, daemon: Daemon, chunked: bool) -> None:
    web = serve(daemon.app(max_body_bytes=100_000))
    body = b" " * 200_000
    with closing(connect(web)) as connection:
        if chunked:
            pieces = (body[at : at + 4096] for at in range(0, len(body), 4096))
            connection.request("POST", ALERTS, pieces, JSON | {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        else:
            connection.request("POST", ALERTS, body, JSON)
        answer = connection.getresponse()
        assert answer.status == 413
        answer.read()
        connection.request("POST", ALERTS, a_payload(), JSON)
        assert connection.getresponse().status == 200


def test_a_chunked_body_is_read(serve: Serve, daemon: Daemon) -> None:
    web = serve(daemon.app())
    body = a_payload()
    with closing(connect(web)) as connection:
        pieces = (body[at : at + 50] for at in range(0, len(body), 50))
        connection.request("POST", ALERTS, pieces, JSON | {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        assert connection.getresponse().status == 200
    assert len(daemon.inbox.alerts) == 1


def test_a_body_that_does_not_come_is_answered_408_and_hung_up(serve: Serve, daemon: Daemon) -> None:
    web = serve(daemon.app(body_seconds=0.2))
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as slow:
        slow.sendall(
            b"POST /api/v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: slow.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"expected the body within 0.2 s" in answer
    assert daemon.inbox.alerts == []


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HT",
        b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
    ],
)
def test_a_connection_that_dawdles_is_closed(
    begun: bytes, serve: Serve, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 1)
    web = serve(daemon.app())
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as slow:
        if begun:
            slow.sendall(begun)
        while slow.recv(4096):
            pass
    with closing(connect(web)) as connection:
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200


def test_a_byte_now_and_then_buys_no_time(serve: Serve, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    web = serve(daemon.app())
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=0.05)) as slow:

        def closed() -> bool:
            try:
                slow.sendall(b"G")
                return slow.recv(10) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        until(closed)


def test_a_request_that_takes_longer_than_a_head_may_is_answered(
    serve: Serve, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    web = serve(daemon.app())
    body = a_payload()
    with closing(connect(web)) as connection:
        for _ in range(2):
            connection.putrequest("POST", ALERTS)
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body[:10])
            time.sleep(0.3)
            connection.send(body[10:])
            answer = connection.getresponse()
            assert (answer.status, answer.read()[:10]) == (200, b'{"opened":')


def test_a_head_that_is_too_long_or_none_is_refused(serve: Serve, daemon: Daemon) -> None:
    web = serve(daemon.app())
    for head in (b"GET /livez HTTP/1.1\r\nX: " + b"y" * 100_000, b"\x16\x03\x01 no http\r\n\r\n"):
        with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as connection:
            connection.sendall(head)
            assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_with_two_lengths_is_answered_400_and_ends_the_connection(
    tls: bool, serve: Serve, daemon: Daemon, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path, "tls") if tls else (None, None)
    web = serve(daemon.app(), tls_cert_file=cert, tls_key_file=key)
    smuggled = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /api/v1/alerts HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    plain = socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)
    trust = ssl.create_default_context(cafile=cert) if tls else None
    with closing(trust.wrap_socket(plain, server_hostname="127.0.0.1") if trust else plain) as connection:
        connection.sendall(head % len(b"0\r\n\r\n" + smuggled) + b"0\r\n\r\n" + smuggled)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"expected Content-Length or Transfer-Encoding, got both" in answer
    assert answer.count(b"HTTP/1.1") == 1


def test_more_busy_connections_than_it_takes_are_turned_away_and_later_served(
    serve: Serve, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(_: object, __: object) -> None:
        entered.release()
        leave.wait(PATIENCE)

    daemon.trigger = slow  # type: ignore[method-assign]
    web = serve(daemon.app())
    busy = [connect(web) for _ in range(2)]
    for each in busy:
        each.request("POST", "/api/v1/trigger", b'{"nodes": ["n1"]}', JSON)
        assert entered.acquire(timeout=PATIENCE)

    def livez() -> int:
        with closing(connect(web)) as connection:
            connection.request("GET", "/livez")
            return connection.getresponse().status

    assert livez() == 503
    leave.set()
    for each in busy:
        assert each.getresponse().status == 202
        each.close()
    until(lambda: livez() == 200)


def test_the_token_rotates_while_it_serves(serve: Serve, daemon: Daemon, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    web = serve(daemon.app(Auth(bearer_token_file=str(token))))

    def status(sent: str) -> int:
        try:
            with urllib.request.urlopen(posted(web, Authorization=f"Bearer {sent}"), timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert (status("old"), status("new")) == (200, 401)
    token.write_text("new")
    until(lambda: status("new") == 200)
    assert status("old") == 401


def test_the_log_has_no_query_strings(serve: Serve, daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    web = serve(daemon.app())
    with closing(connect(web)) as connection:
        for path in ("/livez?token=s3cret", "/nowhere?token=s3cret"):
            connection.request("GET", path, headers={"Authorization": "Bearer s3cret"})
            connection.getresponse().read()

    assert "s3cret" not in caplog.text


def test_a_stop_lets_a_running_request_end(serve: Serve, daemon: Daemon) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(_: object, __: object) -> None:
        entered.set()
        leave.wait(PATIENCE)

    daemon.trigger = slow  # type: ignore[method-assign]
    web = serve(daemon.app())
    with closing(connect(web)) as connection:
        connection.request("POST", "/api/v1/trigger", b'{"nodes": ["n1"]}', JSON)
        assert entered.wait(PATIENCE)
        stopping = threading.Thread(target=web.stop, args=(PATIENCE,))
        stopping.start()
        until(lambda: _refused(web.port))
        leave.set()
        assert connection.getresponse().status == 202
        stopping.join(PATIENCE)
    assert not web.running


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_its_thread_has_a_name_and_ends(serve: Serve, daemon: Daemon) -> None:
    web = serve(daemon.app())
    assert web.running
    assert "web" in [thread.name for thread in threading.enumerate()]

    assert web.stop(1.0)
    assert web.stop(1.0)
    assert not web.running


def test_a_taken_address_is_one_line(serve: Serve, daemon: Daemon) -> None:
    taken = serve(daemon.app()).port

    with pytest.raises(ConfigError) as caught:
        WebServer(daemon.app(), f"127.0.0.1:{taken}").start()

    assert str(caught.value) == f"listen 127.0.0.1:{taken}: Address already in use"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        (":8080", ("0.0.0.0", 8080)),
        ("[::]:0", ("::", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_an_address_is_read(text: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(text) == parsed


@pytest.mark.parametrize("text", ["", "8080", "x:", "x:http", "x:70000", "x:-1", "::1:8080", "[x]:1", "x:\u0661"])
def test_what_is_no_address_is_refused(text: str, daemon: Daemon) -> None:
    with pytest.raises(ConfigError, match=r"^listen: expected ADDRESS:PORT, got "):
        WebServer(daemon.app(), text)


def certificate(directory: Path, name: str, *options: str) -> tuple[str, str]:
    """A new self-signed certificate for 127.0.0.1: paths of (certificate, key)."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is missing")
    cert, key = directory / f"{name}.crt", directory / f"{name}.key"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key), "-out", str(cert)]
    rest = ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", *(options or ["-nodes"])]
    subprocess.run(["openssl", "req", "-x509", *kind, *rest], check=True, capture_output=True)
    return str(cert), str(key)


def test_tls_is_served_and_a_new_certificate_taken(
    serve: Serve, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(server, "TLS_LOOK_SECONDS", 0)
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    live = str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")
    for source, target in zip(first, live, strict=True):
        shutil.copy(source, target)
    web = serve(daemon.app(), tls_cert_file=live[0], tls_key_file=live[1])

    def served() -> str:
        return ssl.get_server_certificate(("127.0.0.1", web.port), timeout=PATIENCE)

    trust = ssl.create_default_context(cafile=first[0])
    with urllib.request.urlopen(posted(web), timeout=PATIENCE, context=trust) as answer:
        assert answer.status == 200

    shutil.copy(second[0], live[0])  # without its key: no pair
    until(lambda: "the old certificate stays" in caplog.text)
    assert served() == Path(first[0]).read_text()
    shutil.copy(second[1], live[1])
    until(lambda: served() == Path(second[0]).read_text())
    assert "tls.crt was reloaded" in caplog.text
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_a_client_without_tls_does_not_stop_a_server_with_it(serve: Serve, daemon: Daemon, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "tls")
    web = serve(daemon.app(), tls_cert_file=cert, tls_key_file=key)
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not plain.recv(4096).startswith(b"HTTP")

    trust = ssl.create_default_context(cafile=cert)
    with urllib.request.urlopen(f"{web.url}/livez", timeout=PATIENCE, context=trust) as answer:
        assert answer.status == 200


def test_tls_files_that_cannot_be_used_are_one_line(daemon: Daemon, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "a")
    _, other = certificate(tmp_path, "b")
    locked_cert, locked = certificate(tmp_path, "c", "-passout", "pass:secret")
    empty = tmp_path / "empty"
    empty.touch()
    missing = str(tmp_path / "missing")
    for cert_file, key_file, reported in [
        (cert, missing, f"TLS: {missing}: No such file or directory"),
        (missing, key, f"TLS: {missing}: No such file or directory"),
        (cert, other, f"TLS: {cert} and {other}: key values mismatch"),
        (str(empty), key, f"TLS: {empty} and {key}: "),
        (cert, str(empty), f"TLS: {cert} and {empty}: "),
        (locked_cert, locked, f"TLS: {locked_cert} and {locked}: "),
        (cert, None, "TLS: expected both a certificate file and a key file, got one of them"),
        (None, key, "TLS: expected both a certificate file and a key file, got one of them"),
    ]:
        with pytest.raises(ConfigError) as caught:
            WebServer(daemon.app(), "127.0.0.1:0", tls_cert_file=cert_file, tls_key_file=key_file).start()
        assert str(caught.value).startswith(reported)
        assert "\n" not in str(caught.value)
