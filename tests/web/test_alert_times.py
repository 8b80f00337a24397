"""Times of alerts at the ends of what a date can hold, down to the database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.bootstrap.process.clock import SystemClock
from rebalancer.store import open_records, upgrade
from tests.web.fakes import AsgiClient, Clients, Daemon, a_payload, an_alert

PATH = "/api/v1/alerts"


@pytest.fixture
def client(daemon: Daemon, clients: Clients, tmp_path: Path) -> Iterator[AsgiClient]:
    """The web server with the inbox of a daemon."""
    url = f"sqlite:///{tmp_path / 'alerts.db'}"
    upgrade(url)
    with open_records(url=url, cluster="test", clock=SystemClock()) as records:
        daemon.inbox = records.inbox()  # type: ignore[assignment]
        yield clients(daemon.app())


@pytest.mark.parametrize("name", ["startsAt", "endsAt"])
@pytest.mark.parametrize("status", ["firing", "resolved"])
@pytest.mark.parametrize("moment", ["10000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"])
def test_a_time_at_the_year_10000_is_answered_400_in_one_line(
    name: str, status: str, moment: str, client: AsgiClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.post(PATH, a_payload(an_alert(**{"status": status, name: moment})))
    assert answer.status == 400
    assert f"`$.alerts[0].{name}`" in answer.error
    assert [record.exc_info for record in caplog.records] == [None]


def test_a_body_nested_100000_deep_is_answered_400_in_one_line(
    client: AsgiClient, caplog: pytest.LogCaptureFixture
) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for path in (PATH, "/api/v1/trigger"):
        for body in (deep, b'{"version": "4", "x": %s, "alerts": []}' % deep, b'{"nodes": %s}' % deep):
            answer = client.post(path, body)
            assert answer.status == 400
            assert "\n" not in answer.error
    assert [record.exc_info for record in caplog.records if record.exc_info] == []
