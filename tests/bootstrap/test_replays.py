"""Where a recording is read from."""

from typing import Any

import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings import replay as replays
from rebalancer.bootstrap.recordings.replay import Source
from rebalancer.cycle.context import NullProgress
from tests.builders import a_policy


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
