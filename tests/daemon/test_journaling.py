"""The journal's thread: when it appends, and that errors stay its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from rebalancer.daemon.threads import journaling
from rebalancer.daemon.threads.journaling import JournalWriter
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.alerts import AlertEpisode
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.errors import ConfigError
from rebalancer.model.parts import FailedParts
from rebalancer.model.recordings.journal import ReadUsage
from tests.builders import NOW, a_node, an_eviction, cluster, usage_of

NO_USAGE = usage_of(cluster([a_node("n1")], []), [a_node("n1")], [])


@dataclass
class Around:
    """The journal, the ledger, the inbox and the clock."""

    at: float = NOW
    leads: bool = True
    error: Exception | None = None
    appended: list[tuple[float, list[str], int]] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    read: list[ReadUsage | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts = FailedParts(now=self.now, monotonic=self.now)

    def append(
        self,
        snapshot: ClusterSnapshot,
        *,
        evictions: Sequence[Eviction],
        alerts: Sequence[AlertEpisode],
        read: ReadUsage | None = None,
    ) -> None:
        if self.error is not None:
            raise self.error
        self.read.append(read)
        self.appended.append((snapshot.taken, [each.pod for each in evictions], len(alerts)))

    def take_notes(self) -> tuple[str, ...]:
        return self.notes

    def evicted(self, since: float) -> list[Eviction]:
        self.asked.append(since)
        return self.evictions

    def replaced(self, since: float) -> list[Eviction]:
        return self.evictions

    def open_episodes(self) -> list[AlertEpisode]:
        return []

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def snapshot(self) -> ClusterSnapshot:
        return replace(cluster([a_node("n1")], []), taken=self.at)

    def writer(self) -> JournalWriter:
        ledger: Any = self
        return JournalWriter(
            journal=self,
            ledger=ledger,
            inbox=self,
            snapshot=self.snapshot,
            leads=lambda: self.leads,
            clock=self,
            parts=self.parts,
        )


def test_it_appends_after_a_cycle_and_every_minute() -> None:
    around = Around()
    writer = around.writer()
    assert writer.turn(done=False)
    around.at += 59.0
    assert not writer.turn(done=False)
    around.at += 1.0
    assert writer.turn(done=False)
    around.at += 10.0
    writer.observed(replace(around.snapshot(), taken=around.at - 3.0), NO_USAGE)
    assert writer.turn(done=True)
    assert [at for at, _, _ in around.appended] == [NOW, NOW + 60.0, NOW + 67.0]


def test_a_snapshot_that_is_older_than_the_last_entry_is_read_again() -> None:
    around = Around()
    writer = around.writer()
    writer.observed(around.snapshot(), NO_USAGE)
    around.at += 400.0
    assert writer.turn(done=False)
    writer.observed(replace(around.snapshot(), taken=NOW - 1.0), NO_USAGE)
    around.at += 10.0
    assert writer.turn(done=True)
    assert [at for at, _, _ in around.appended] == [NOW, NOW + 410.0]


def test_what_a_cycle_has_read_is_appended_once_also_after_a_newer_entry() -> None:
    around = Around()
    writer, before, usage = around.writer(), around.snapshot(), usage_of(around.snapshot(), [a_node("n1")], [])
    writer.observed(before, usage)
    assert writer.turn(done=True)
    around.at += 60.0
    assert writer.turn(done=False)
    # a minute's entry was made while the cycle read its usage
    writer.observed(replace(before, taken=around.at - 5.0), usage)
    around.at += 60.0
    assert writer.turn(done=True)
    assert [each and each.snapshot.taken for each in around.read] == [NOW, None, NOW + 55.0]
    assert [at for at, _, _ in around.appended] == [NOW, NOW + 60.0, NOW + 120.0]


def test_a_follower_appends_nothing() -> None:
    around = Around(leads=False)
    assert not around.writer().turn(done=True)
    assert around.appended == []


class Turns(Event):
    """Is set after so many looks at it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def dones_of(writer: JournalWriter, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each of four turns of the loop is called with after a cycle."""
    dones: list[bool] = []
    turn = writer.turn

    def counted(*, done: bool) -> bool:
        dones.append(done)
        return turn(done=done)

    monkeypatch.setattr(journaling, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(writer, "turn", counted)
    writer.cycle_done()
    writer.run(Turns(4))
    return dones


@pytest.mark.parametrize("leads", [False, True])
def test_the_end_of_a_cycle_ends_one_wait_of_the_loop_also_of_a_follower(
    leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dones_of(Around(leads=leads).writer(), monkeypatch) == [True, False, False, False]


@pytest.mark.parametrize("part", ["leads", "clock"])
def test_no_error_ends_the_loop(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Around()
    writer = around.writer()
    monkeypatch.setattr(writer, part, None)
    assert dones_of(writer, monkeypatch) == [True, False, False, False]
    (failed,) = around.parts.current()
    assert (failed.name, failed.failures) == ("journal", 1)


def test_evictions_are_those_since_the_last_entry_and_two_hours() -> None:
    around = Around(evictions=[an_eviction(record=1, pod="a"), an_eviction(record=2, pod="b")])
    writer = around.writer()
    writer.turn(done=True)
    around.at += 60.0
    writer.turn(done=True)
    assert around.asked == [NOW - 86_400.0, NOW - 7_200.0]
    assert around.appended == [(NOW, ["a", "b"], 0), (NOW + 60.0, ["a", "b"], 0)]


def test_a_defect_is_a_failed_part_until_the_journal_goes_on() -> None:
    around = Around(error=ValueError("a defect"))
    writer = around.writer()
    for failures in (1, 2, 3):
        assert writer.turn(done=True)
        (failed,) = around.parts.current()
        assert (failed.name, failed.since, failed.failures) == ("journal", NOW, failures)
        assert failed.cause.startswith("ValueError: a defect (test_journaling.py:")
        around.at += 60.0
    around.error = None
    assert writer.turn(done=True)
    assert around.parts.current() == []


def test_an_error_is_logged_once_and_the_journal_goes_on() -> None:
    around = Around(error=ConfigError("the disk is full"))
    writer = around.writer()
    with capture_logs() as log:
        for _ in range(3):
            assert writer.turn(done=True)
            around.at += 60.0
        around.error, around.notes = None, ("a day is full",)
        assert writer.turn(done=True)
    assert [each["event"] for each in log] == ["journal not written", "journal continued", "journal"]
    assert len(around.appended) == 1
