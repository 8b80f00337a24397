"""Requests that a page of another origin makes a browser send: over real sockets, with the right password."""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from rebalancer.web import Auth, WebServer
from tests.web.fakes import Daemon, a_payload
from tests.web.test_auth import basic

PATHS = ("/api/v1/alerts", "/api/v1/trigger")
JSON = "application/json"
BODIES = {"/api/v1/alerts": a_payload(), "/api/v1/trigger": b'{"nodes": ["n1"]}'}


@pytest.fixture
def secret(tmp_path: Path) -> Auth:
    (tmp_path / "basic").write_text("ada:a password")
    return Auth(basic_auth_file=str(tmp_path / "basic"))


@pytest.fixture
def web(daemon: Daemon, secret: Auth) -> Iterator[WebServer]:
    yield from served(daemon, secret)


@pytest.fixture
def open_web(daemon: Daemon) -> Iterator[WebServer]:
    yield from served(daemon, Auth(insecure_no_auth=True))


def served(daemon: Daemon, auth: Auth) -> Iterator[WebServer]:
    server = WebServer(daemon.app(auth), "127.0.0.1:0")
    server.start()
    yield server
    assert server.stop(1.0)


def post(web: WebServer, path: str, headers: Mapping[str, str], host: str = "") -> int:
    """The status of a request with the password."""
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)) as connection:
        connection.putrequest("POST", path, skip_host=True)
        own = {"Host": host or f"127.0.0.1:{web.port}", "Authorization": basic("ada:a password")}
        for name, value in {**own, **headers, "Content-Length": str(len(BODIES[path]))}.items():
            connection.putheader(name, value)
        connection.endheaders(BODIES[path])
        return connection.getresponse().status


def taken(daemon: Daemon) -> int:
    return len(daemon.inbox.alerts) + len(daemon.triggered)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
)
def test_a_type_that_a_form_can_send_is_refused(path: str, kind: str | None, web: WebServer, daemon: Daemon) -> None:
    assert post(web, path, {} if kind is None else {"Content-Type": kind}) == 415
    assert taken(daemon) == 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://[bad"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_a_page_of_another_origin_changes_nothing(
    path: str, headers: dict[str, str], web: WebServer, daemon: Daemon
) -> None:
    assert post(web, path, {"Content-Type": JSON, **headers}) == 403
    assert taken(daemon) == 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example:8080", "a.svc.cluster.local.evil.example"])
def test_a_foreign_host_changes_nothing(path: str, host: str, web: WebServer, daemon: Daemon) -> None:
    headers = {"Content-Type": JSON, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert post(web, path, headers, host) == 403
    assert taken(daemon) == 0


@pytest.mark.parametrize("path", PATHS)
def test_without_credentials_the_host_is_always_checked(path: str, open_web: WebServer, daemon: Daemon) -> None:
    assert post(open_web, path, {"Content-Type": JSON}, "evil.example:8080") == 403
    assert taken(daemon) == 0
    assert post(open_web, path, {"Content-Type": JSON}, "localhost:8080") in (200, 202)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("", {}),
        ("alerts.example.com", {}),  # through a proxy, from a program
        ("rebalancer.rebalancer.svc:8080", {}),
        ("[::1]:8080", {"Origin": "http://[::1]:8080", "Sec-Fetch-Site": "same-origin"}),
        ("localhost:8080", {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}),
        ("rebalancer.rebalancer.svc", {"Origin": "https://rebalancer.rebalancer.svc", "Sec-Fetch-Site": "same-origin"}),
    ],
)
def test_alertmanager_and_our_own_origin_are_let_in(
    path: str, host: str, headers: dict[str, str], web: WebServer, daemon: Daemon
) -> None:
    assert post(web, path, {"Content-Type": f"{JSON}; charset=utf-8", **headers}, host) in (200, 202)
    assert taken(daemon) == 1
