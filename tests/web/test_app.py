"""The endpoints, called in this process."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.model.errors import ConfigError, ConnectError, UnsafeDataError
from rebalancer.web import Auth
from rebalancer.web.app import ReadyCheck
from tests.web.fakes import Clients, Daemon, a_payload, alert_policy, an_alert
from tests.web.test_auth import basic

ALERTS = "/api/v1/alerts"
TRIGGER = "/api/v1/trigger"


def test_alerts_are_acknowledged_once_they_are_in_the_inbox(daemon: Daemon, clients: Clients) -> None:
    answer = clients(daemon.app()).post(ALERTS, a_payload())

    assert answer.status == 200
    assert answer.json == {"opened": 1, "duplicate": 0, "resolved": 0, "ignored": {}}
    assert [alert.fingerprint for alert in daemon.inbox.alerts] == ["c4b7e5d1a2f30918"]
    assert daemon.woken == 1


def test_a_delivery_is_split_into_opened_known_resolved_and_ignored(daemon: Daemon, clients: Clients) -> None:
    client = clients(daemon.app())
    client.post(ALERTS, a_payload())
    body = a_payload(
        an_alert(),
        an_alert(status="resolved"),
        an_alert(fingerprint="new"),
        an_alert(labels={"alertname": "Watchdog"}),
        an_alert(labels={"alertname": "NodeCPUHigh", "cluster": "other"}),
    )

    answer = client.post(ALERTS, body)

    expected = {"opened": 1, "duplicate": 1, "resolved": 1, "ignored": {"no_rule": 1, "other_cluster": 1}}
    assert answer.json == expected
    assert daemon.count("rebalancer_alerts_received_total", result="opened") == 2
    assert daemon.count("rebalancer_alerts_received_total", result="resolved") == 1
    assert daemon.count("rebalancer_alerts_ignored_total", reason="other_cluster") == 1
    assert daemon.count("rebalancer_http_requests_total", route=ALERTS, code="200") == 2


def test_the_answer_names_a_resource_that_is_not_known(
    daemon: Daemon, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    strange = an_alert(annotations={"rebalancer_resource": "memry\n"})

    answer = clients(daemon.app()).post(ALERTS, a_payload(strange, an_alert(fingerprint="other")))

    assert answer.status == 200
    assert answer.json == {
        "opened": 1,
        "duplicate": 0,
        "resolved": 0,
        "ignored": {"unknown_resource": 1},
        "error": "expected rebalancer_resource to be one of cpu, memory, got 'memry'",
    }
    assert answer.json["error"] in caplog.text
    assert daemon.count("rebalancer_alerts_ignored_total", reason="unknown_resource") == 1


def test_alerts_that_concern_no_node_need_no_database_and_wake_no_loop(daemon: Daemon, clients: Clients) -> None:
    daemon.inbox.fails = ConnectError("the database is away")

    answer = clients(daemon.app()).post(ALERTS, a_payload(an_alert(labels={"alertname": "Watchdog"})))

    assert answer.status == 200
    assert answer.json["ignored"] == {"no_rule": 1}
    assert daemon.woken == 0


@pytest.mark.parametrize(
    "problem",
    [
        ConnectError("postgresql://db: connection refused"),
        ConfigError("the policy can't be used"),
        RuntimeError("password=hunter2"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_what_is_our_fault_is_answered_so_that_alertmanager_sends_again(
    problem: Exception, daemon: Daemon, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    client = clients(daemon.app())
    daemon.inbox.fails = problem

    answer = client.post(ALERTS, a_payload())

    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert str(problem) not in answer.error
    assert daemon.woken == 0
    assert str(problem) in caplog.text

    daemon.inbox.fails = None
    assert client.post(ALERTS, a_payload()).json["opened"] == 1


def test_a_delivery_is_judged_by_the_policy_that_holds_now(daemon: Daemon, clients: Clients) -> None:
    client = clients(daemon.app())
    daemon.policy = alert_policy(rules=[{"alert": "Other"}])

    assert client.post(ALERTS, a_payload()).json["ignored"] == {"no_rule": 1}


def test_a_body_that_is_no_payload_is_refused_with_one_line(
    daemon: Daemon, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    answer = clients(daemon.app()).post(ALERTS, b'{"version": "3"}')

    assert answer.status == 400
    assert answer.error == "not a payload of Alertmanager or Grafana: Invalid enum value '3' - at `$.version`"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert daemon.inbox.alerts == []


def _chunks(body: bytes) -> Iterator[bytes]:
    return (body[start : start + 1000] for start in range(0, len(body), 1000))


def test_a_body_may_be_so_long_and_no_longer(daemon: Daemon, clients: Clients) -> None:
    body = a_payload(an_alert(annotations={"x": "y" * 5000}))
    client = clients(daemon.app(max_body_bytes=len(body)))

    assert client.post(ALERTS, body).status == 200
    assert client.post(ALERTS, _chunks(body)).status == 200
    assert client.post(ALERTS, body, content_length=str(len(body))).status == 200
    for longer in (body + b" ", _chunks(body + b" ")):
        answer = client.post(ALERTS, longer)
        assert answer.status == 413
        assert answer.error == f"expected at most {len(body)} bytes"
    assert client.post(ALERTS, b"", content_length=str(len(body) + 1)).status == 413
    assert client.post(ALERTS, b"", content_length="9" * 5000).status == 413
    assert len(daemon.inbox.alerts) == 3


def test_a_storm_of_ten_thousand_alerts_fits_in_one_body(daemon: Daemon, clients: Clients) -> None:
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": "NodeCPUHigh", "node": f"node-{number}"},
            "startsAt": "2026-11-21T03:10:00Z",
        }
        for number in range(10_000)
    ]
    body = json.dumps({"version": "4", "alerts": alerts}, separators=(",", ":")).encode()
    client = clients(daemon.app(max_body_bytes=len(body)))

    assert client.post(ALERTS, body).json == {"opened": 10_000, "duplicate": 0, "resolved": 0, "ignored": {}}
    assert client.post(ALERTS, body).json == {"opened": 0, "duplicate": 10_000, "resolved": 0, "ignored": {}}
    assert client.get("/livez").status == 200


def test_a_cycle_can_be_asked_for(daemon: Daemon, clients: Clients) -> None:
    client = clients(daemon.app())

    answers = [
        client.post(TRIGGER, b'{"nodes": ["n1", "n2"]}'),
        client.post(TRIGGER, b'{"nodes": ["n3"], "strategy": "LowNodeUtilization"}'),
    ]

    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json == {"nodes": 2}
    assert daemon.triggered == [(("n1", "n2"), None), (("n3",), "LowNodeUtilization")]


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `nodes`"),
        (b'{"nodes": []}', "length >= 1"),
        (b'{"nodes": [""]}', "length >= 1"),
        (b'{"nodes": ["n1"], "node": "n2"}', "unknown field `node`"),
        (b'{"nodes": ["n1"], "a\\nb\\u0000": 1}', "unknown field `a b?`"),
        (b'{"nodes": "n1"}', "Expected `array`, got `str`"),
        (b'{"nodes": ["n1"], "strategy": ""}', "length >= 1"),
        (b'{"nodes": ["\xff"]}', "utf-8"),
        (b'{"nodes":' + b"[" * 100_000, "Expected `str`"),
    ],
)
def test_a_cycle_that_is_asked_for_badly_is_refused(
    body: bytes, reported: str, daemon: Daemon, clients: Clients
) -> None:
    answer = clients(daemon.app()).post(TRIGGER, body)

    assert answer.status == 400
    assert reported in answer.error
    assert daemon.triggered == []


@pytest.mark.parametrize(
    ("problem", "status", "reported"),
    [
        (UnsafeDataError("this replica doesn't lead: pod-2 does"), 409, "this replica doesn't lead: pod-2 does"),
        (ConfigError("no strategy Foo in the policy"), 400, "no strategy Foo in the policy"),
        (ConnectError("API server away"), 503, "not possible at the moment, see the log"),
        (KeyError("x"), 503, "an internal error, see the log"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_cycle_that_the_daemon_refuses_has_its_own_answer(
    problem: Exception, status: int, reported: str, daemon: Daemon, clients: Clients
) -> None:
    daemon.refuses = problem

    answer = clients(daemon.app()).post(TRIGGER, b'{"nodes": ["n1"]}')

    assert (answer.status, answer.error) == (status, reported)


def test_it_is_live_while_the_daemon_says_so(daemon: Daemon, clients: Clients) -> None:
    client = clients(daemon.app())
    assert (client.get("/livez").status, client.get("/livez").body) == (200, b"ok\n")

    daemon.is_alive = False
    assert client.get("/livez").status == 503


def test_it_is_ready_when_all_checks_are_ok_and_says_what_is_not(daemon: Daemon, clients: Clients) -> None:
    client = clients(daemon.app())
    assert (client.get("/readyz").status, client.get("/readyz").body) == (200, b"ok\n")
    assert client.get("/readyz?verbose").body == b"[+]cache ok\nreadyz check passed\n"

    daemon.checks.append(ReadyCheck("database", False, "can't be reached:\nno route to host"))
    answer = client.get("/readyz")
    assert answer.status == 503
    assert answer.body.decode().splitlines() == [
        "[+]cache ok",
        "[-]database failed: can't be reached: no route to host",
        "readyz check failed",
    ]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/livez/", 404),
        ("GET", "/api/v1/alerts/", 404),
        ("GET", "/api/v1/../../etc/passwd", 404),
        ("GET", ALERTS, 405),
        ("HEAD", ALERTS, 405),
        ("PUT", ALERTS, 405),
        ("POST", "/metrics", 405),
        ("DELETE", TRIGGER, 405),
        ("HEAD", "/livez", 200),
        ("HEAD", "/readyz", 200),
        ("HEAD", "/metrics", 200),
    ],
)
def test_other_paths_and_methods_are_answered_in_json(
    method: str, path: str, status: int, daemon: Daemon, clients: Clients
) -> None:
    answer = clients(daemon.app()).send(method, path)

    assert answer.status == status
    if status >= 400:
        assert set(answer.json) == {"error"}
        assert daemon.count("rebalancer_http_requests_total", route="other", code=str(status)) == 1
    if status == 405:
        assert answer.headers["allow"]


@pytest.fixture
def secrets(tmp_path: Path) -> tuple[str, str]:
    """Paths of (token, user and password)."""
    (tmp_path / "token").write_text("s3cret-token")
    (tmp_path / "basic").write_text("user:s3cret-password")
    return str(tmp_path / "token"), str(tmp_path / "basic")


def test_what_changes_something_asks_for_credentials_and_probes_do_not(
    secrets: tuple[str, str], daemon: Daemon, clients: Clients
) -> None:
    client = clients(daemon.app(Auth(bearer_token_file=secrets[0], basic_auth_file=secrets[1])))

    for path in (ALERTS, TRIGGER):
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = client.post(path, a_payload(), **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/livez", "/readyz", "/metrics"):
        assert client.get(path).status == 200
    assert client.post(ALERTS, a_payload(), authorization="Bearer s3cret-token").status == 200
    assert client.post(ALERTS, a_payload(), authorization=basic("user:s3cret-password")).status == 200
    assert daemon.count("rebalancer_auth_failures_total", reason="missing") == 2
    assert daemon.count("rebalancer_auth_failures_total", reason="wrong") == 2
    assert len(daemon.inbox.alerts) == 2
    assert daemon.triggered == []


def test_without_any_secret_the_web_api_is_closed_and_says_why(daemon: Daemon, clients: Clients) -> None:
    answer = clients(daemon.app(Auth())).post(ALERTS, a_payload(), authorization="Bearer x")

    assert answer.status == 401
    assert answer.error == "closed: neither a bearer token nor basic auth is configured"


def test_while_our_own_secret_cannot_be_read_alertmanager_is_to_send_again(
    secrets: tuple[str, str], daemon: Daemon, clients: Clients
) -> None:
    Path(secrets[0]).unlink()

    answer = clients(daemon.app(Auth(bearer_token_file=secrets[0]))).post(
        ALERTS, a_payload(), authorization="Bearer s3cret-token"
    )

    assert answer.status == 503
    assert answer.headers["retry-after"]
    assert daemon.inbox.alerts == []


def test_no_secret_is_in_any_answer_or_log(
    secrets: tuple[str, str], daemon: Daemon, clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = clients(daemon.app(Auth(bearer_token_file=secrets[0], basic_auth_file=secrets[1])))
    right, ours, wrong = "Bearer s3cret-token", basic("user:s3cret-password"), "Bearer a-gu3ss"
    seen = []
    for problem in (None, ConnectError("away"), RuntimeError("broken")):
        daemon.inbox.fails = daemon.refuses = problem
        for path in (ALERTS, TRIGGER, "/metrics", "/nowhere", "/readyz?verbose&token=s3cret-token"):
            for header in (right, ours, wrong):
                for body in (a_payload(), b"{", b'{"nodes": ["n1"]}'):
                    seen.append(client.post(path, body, authorization=header))
                seen.append(client.send("GET", path, headers={"authorization": header}))

    assert {answer.status for answer in seen} >= {200, 202, 400, 401, 404, 405, 503}
    reported = caplog.text + "".join(f"{answer.headers}{answer.body.decode()}" for answer in seen)
    for secret in ("s3cret", ours.removeprefix("Basic "), "a-gu3ss"):
        assert secret not in reported
