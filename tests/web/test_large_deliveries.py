"""Large deliveries of alerts, over a real socket and into a real database: bounded work, and what was left is said."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.store import open_records, upgrade
from rebalancer.store.inbox import PART, SqlInbox
from rebalancer.web import WebServer
from tests.web.fakes import JSON, Daemon, alert_policy, an_alert

COUNT = 10_000
STATEMENTS = 600
"""Of a delivery that needs none for each alert."""


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[SqlInbox]:
    url = f"sqlite:///{tmp_path / 'alerts.db'}"
    upgrade(url)
    with open_records(url=url, cluster="test", clock=SystemClock()) as records:
        inbox = records.inbox()
        inbox._monotonic = lambda: 0.0  # on a busy machine the time of a delivery is over before its work
        yield inbox


@pytest.fixture
def web(daemon: Daemon, inbox: SqlInbox) -> Iterator[WebServer]:
    daemon.inbox = inbox  # type: ignore[assignment]
    daemon.policy = alert_policy(maxAge="3650d")
    server = WebServer(daemon.app(), "127.0.0.1:0")
    server.start()
    yield server
    assert server.stop(1.0)


def deliver(web: WebServer, count: int, **fields: str) -> tuple[int, Any]:
    alerts = [
        an_alert(fingerprint=f"{number:x}", labels={"alertname": "NodeCPUHigh", "node": f"n{number}"}, **fields)
        for number in range(count)
    ]
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=120)) as connection:
        connection.request("POST", "/api/v1/alerts", json.dumps({"version": "4", "alerts": alerts}), JSON)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def counting(engine: Engine) -> list[str]:
    """The statements that the engine executes from now on; those with many parameters count once."""
    seen: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _k, statement, *_: seen.append(statement))
    return seen


def test_ten_thousand_alerts_are_taken_without_a_statement_for_each(web: WebServer, inbox: SqlInbox) -> None:
    statements = counting(inbox._engine)
    later = "2026-11-21T04:10:00Z"
    for fields, counts in [
        ({}, (COUNT, 0, 0)),
        ({}, (0, COUNT, 0)),
        ({"startsAt": later}, (COUNT, 0, COUNT)),
        ({"startsAt": later, "status": "resolved"}, (0, 0, COUNT)),
    ]:
        statements.clear()
        status, body = deliver(web, COUNT, **fields)
        assert (status, (body["opened"], body["duplicate"], body["resolved"])) == (200, counts)
        assert len(statements) < STATEMENTS
    assert inbox.open_count() == 0


def test_a_delivery_that_takes_too_long_is_partly_accepted_and_says_so(
    web: WebServer, inbox: SqlInbox, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 100_000, 5))
    monkeypatch.setattr(inbox, "_monotonic", lambda: float(next(seconds)))  # a part takes five seconds
    status, body = deliver(web, 3 * PART)
    assert status == 503
    assert (body["opened"], body["deferred"]) == (PART, 2 * PART)
    assert body["error"] == f"{2 * PART} of {3 * PART} alerts are not written yet: send all again"
    assert inbox.open_count() == PART
    assert daemon.count("rebalancer_alerts_received_total", result="deferred") == 2 * PART
    deliver(web, 3 * PART)
    deliver(web, 3 * PART)
    assert inbox.open_count() == 3 * PART


def test_more_alerts_than_a_delivery_may_have_are_ignored_and_counted(web: WebServer, daemon: Daemon) -> None:
    status, body = deliver(web, COUNT + 5)
    assert (status, body["opened"], body["ignored"]) == (200, COUNT, {"too_many": 5})
    assert daemon.count("rebalancer_alerts_ignored_total", reason="too_many") == 5
