"""Where a recording is read from."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings import recording as recordings
from rebalancer.bootstrap.recordings import replay as replays
from rebalancer.bootstrap.recordings.replay import Source
from rebalancer.cycle.context import NullProgress
from rebalancer.model.errors import ConfigError
from rebalancer.store import open_records, upgrade
from tests.builders import a_policy
from tests.evaluation.builders import SINCE, UNTIL, fill
from tests.forecasting.builders import a_snapshot
from tests.prometheus.fakes import Clock


@pytest.mark.parametrize(
    ("source", "covered", "expected"),
    [
        (None, True, "journal"),
        (None, False, "Prometheus"),
        (Source.JOURNAL, False, "journal"),
        (Source.PROMETHEUS, True, "Prometheus"),
    ],
)
def test_the_journal_is_the_source_where_it_covers_the_time(
    source: Source | None, covered: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    today, read = object(), dict[str, Any]()

    def from_journal(*_: Any, **options: Any) -> str:
        read.update(options)
        return "journal"

    def from_prometheus(*_: Any, **options: Any) -> str:
        read.update(options)
        return "Prometheus"

    monkeypatch.setattr(replays, "read_cluster", lambda *_, **__: today)
    monkeypatch.setattr(replays, "journal_covers", lambda *_, **__: covered)
    monkeypatch.setattr(replays, "stored_usage", lambda *_, **__: {})
    monkeypatch.setattr(replays, "recording_from_journal", from_journal)
    monkeypatch.setattr(replays, "read_recording", from_prometheus)
    found = replays.recorded(a_policy(), Settings(), start=600.0, end=1200.0, source=source, progress=NullProgress())
    assert found == expected
    assert read["today"] is today
    assert (read.get("start", 600.0), read.get("end", read.get("until"))) == (600.0, 1200.0)


def test_a_recording_from_prometheus_takes_the_evictions_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, read = a_policy(usage={"prometheus": {"url": "http://127.0.0.1:9"}}), list[set[str]]()

    def state(*_: Any, evicted: set[str], **__: Any) -> None:
        read.append(evicted)
        raise ConfigError("no Prometheus")

    monkeypatch.setattr(recordings, "recorded_state", state)
    settings = Settings(database=f"sqlite:///{tmp_path / 'rebalancer.db'}")
    for there in (False, True):
        if there:
            upgrade(settings.database)
            fill(settings.database, policy.cluster)
        with pytest.raises(ConfigError, match="no Prometheus"):
            recordings.read_recording(
                policy,
                settings,
                since_seconds=UNTIL - SINCE,
                until=UNTIL,
                progress=NullProgress(),
                clock=Clock(UNTIL),
                today=a_snapshot(),
            )
    with open_records(url=settings.database, cluster=policy.cluster, clock=Clock(UNTIL)) as records:
        made = {each.uid for each in records.ledger().evicted(SINCE)}
    assert read == [set(), made]
    assert made
