"""Who sees the dashboard, and what every answer of it forbids a browser."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.web import Auth, make_app
from tests.web.builders import CYCLE
from tests.web.fakes import AsgiClient, Clients, Daemon
from tests.web.readers import faults, read_page
from tests.web.scenarios import HandMade, the_app

PAGES = ("/", "/nodes", "/nodes/node-1", "/cycles", f"/cycles/{CYCLE}", "/limits", "/services", "/reports")
BASIC = "Basic " + base64.b64encode("ada:a pässword".encode()).decode()


@pytest.fixture
def views() -> HandMade:
    return HandMade(cluster="secret-cluster")


def closed(folder: Path, *, token: bool = False, basic: bool = False) -> Auth:
    (folder / "token").write_text("a token\n")
    (folder / "basic").write_text("ada:a pässword\n")
    return Auth(
        bearer_token_file=str(folder / "token") if token else None,
        basic_auth_file=str(folder / "basic") if basic else None,
    )


@pytest.fixture
def behind(views: HandMade, daemon: Daemon, clients: Clients, tmp_path: Path) -> Callable[..., AsgiClient]:
    """A client where these credentials are asked for."""

    def client_of(*, views_open: bool = False, **files: bool) -> AsgiClient:
        return clients(the_app(views, daemon, auth=closed(tmp_path, **files), views_open=views_open))

    return client_of


@pytest.mark.parametrize("path", [*PAGES, "/nodes/none", "/cycles?before=x"])
def test_without_credentials_no_page_says_anything(
    path: str, views: HandMade, daemon: Daemon, behind: Callable[..., AsgiClient]
) -> None:
    client = behind(token=True, basic=True)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic wrong"}):
        answer = client.send("GET", path, headers=headers)
        assert answer.status == 401
        assert b"secret-cluster" not in answer.body
        assert answer.headers["www-authenticate"] == 'Basic realm="rebalancer", charset="UTF-8"'
        assert faults(read_page(answer.body)) == []
    assert views.calls == []
    assert daemon.count("rebalancer_auth_failures_total", reason="missing") == 1
    assert daemon.count("rebalancer_auth_failures_total", reason="wrong") == 2


def test_both_ways_in_of_the_webhook_are_ways_in_here(behind: Callable[..., AsgiClient]) -> None:
    client = behind(token=True, basic=True)
    for authorization in ("Bearer a token", BASIC):
        assert client.get("/", authorization=authorization).status == 200


def test_a_browser_is_asked_for_a_password_only_where_there_is_one(behind: Callable[..., AsgiClient]) -> None:
    answer = behind(token=True).get("/")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "configure basic auth" in read_page(answer.body).one("main").text


def test_without_any_credentials_configured_it_is_closed_and_says_so(behind: Callable[..., AsgiClient]) -> None:
    answer = behind().get("/")
    assert answer.status == 401
    assert "access is denied" in read_page(answer.body).one("main").text


def test_it_can_be_opened_by_choice_while_the_webhook_stays_closed(behind: Callable[..., AsgiClient]) -> None:
    client = behind(token=True, views_open=True)
    assert client.get("/").status == 200
    assert client.post("/api/v1/alerts", b"{}").status == 401


OWN_HOSTS = ("127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "localhost:8080", "rebalancer", "rebalancer.ops.svc:8080")


@pytest.mark.parametrize("path", PAGES)
def test_without_credentials_no_page_is_read_under_a_foreign_name(
    path: str, views: HandMade, behind: Callable[..., AsgiClient]
) -> None:
    """DNS rebinding: the name of another site resolves to the daemon's address."""
    client = behind(views_open=True)
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "[x"):
        answer = client.get(path, host=host)
        assert answer.status == 403, host
        assert b"secret-cluster" not in answer.body
        assert "REBALANCER_DASHBOARD_HOSTS" in read_page(answer.body).one("main").text
    assert views.calls == []
    assert [client.get("/", host=host).status for host in OWN_HOSTS] == [200] * len(OWN_HOSTS)


def test_names_of_proxies_are_configured(views: HandMade, daemon: Daemon, clients: Clients) -> None:
    settings = Settings(dashboard_hosts=" Rebalancer.example.com, ops.example. ,")
    ports = daemon.ports(views=views, views_open=True, views_hosts=settings.dashboard_names)
    client = clients(make_app(ports, auth=Auth(), metrics=daemon.metrics))
    hosts = ("rebalancer.EXAMPLE.com:443", "ops.example", "example.com", "x.ops.example")
    assert [client.get("/", host=host).status for host in hosts] == [200, 200, 403, 403]


def test_with_credentials_a_page_answers_under_any_name(behind: Callable[..., AsgiClient]) -> None:
    """A page of another site has none for its own name."""
    client = behind(basic=True)
    assert client.get("/", host="rebalancer.example.com", authorization=BASIC).status == 200
    assert client.get("/", host="rebalancer.example.com").status == 401


def test_probes_and_metrics_answer_under_any_name(behind: Callable[..., AsgiClient]) -> None:
    client = behind(views_open=True)
    assert [client.get(path, host="anything.example").status for path in ("/livez", "/readyz", "/metrics")] == [200] * 3


def test_a_password_file_that_is_gone_closes_it_for_a_while(behind: Callable[..., AsgiClient], tmp_path: Path) -> None:
    client = behind(basic=True)
    (tmp_path / "basic").unlink()
    answer = client.get("/", authorization=BASIC)
    assert (answer.status, answer.headers["retry-after"]) == (503, "10")


def test_probes_and_metrics_ask_for_nothing_beside_it(behind: Callable[..., AsgiClient]) -> None:
    client = behind(token=True)
    assert [client.get(path).status for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 200]


def test_switched_off_there_is_no_page(daemon: Daemon, clients: Clients) -> None:
    client = clients(daemon.app())
    assert [client.get(path).status for path in (*PAGES, "/static/style.css")] == [404] * (len(PAGES) + 1)


@pytest.fixture
def client(views: HandMade, daemon: Daemon, clients: Clients) -> AsgiClient:
    return clients(the_app(views, daemon))


@pytest.mark.parametrize("path", [*PAGES, "/nodes/none", "/cycles?before=x", "/static/style.css", "/static/none"])
def test_every_answer_forbids_scripts_frames_and_whatever_is_elsewhere(path: str, client: AsgiClient) -> None:
    headers = client.get(path).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    own, none = "'self'", "'none'"
    closed_to = dict.fromkeys(("object-src", "base-uri", "frame-ancestors"), none)
    assert policy == {"default-src": own, "form-action": own, **closed_to}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_pages_are_not_cached_and_what_they_load_is_for_long(client: AsgiClient) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-store"
    document = read_page(page.body)
    loaded = [each.attributes["href"] for each in document.all("link")]
    loaded += [each.attributes["src"] for each in document.all("script")]
    types = {each.partition("?")[0]: client.get(each).headers["content-type"] for each in loaded}
    assert types == {
        "/static/style.css": "text/css; charset=utf-8",
        "/static/icon.svg": "image/svg+xml",
        "/static/more.js": "text/javascript; charset=utf-8",
        "/static/alive.js": "text/javascript; charset=utf-8",
    }
    for each in loaded:
        answer = client.get(each)
        assert "immutable" in answer.headers["cache-control"]
        assert "?v=" in each
        assert len(answer.body) > 100


@pytest.mark.parametrize("name", ["..%2fapp.py", "../app.py", "STYLE.CSS", "none.css"])
def test_no_other_file_can_be_had(name: str, client: AsgiClient) -> None:
    assert client.get(f"/static/{name}").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed_through_it(method: str, views: HandMade, client: AsgiClient) -> None:
    assert {client.send(method, path).status for path in (*PAGES, "/static/style.css")} == {405}
    assert views.calls == []


def test_answers_are_counted_by_route_and_not_by_name(client: AsgiClient, daemon: Daemon) -> None:
    for path in ("/nodes/node-1", "/nodes/node-2", "/nodes/none"):
        client.get(path)
    assert daemon.count("rebalancer_http_requests_total", route="/nodes/{name:path}", code="200") == 2
    assert daemon.count("rebalancer_http_requests_total", route="/nodes/{name:path}", code="404") == 1
