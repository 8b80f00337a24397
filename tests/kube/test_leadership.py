"""Who leads: asked for until it is ours; a lost term is over for good, and another may follow."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import structlog

from rebalancer.kube.leader import leadership as module
from rebalancer.kube.leader.leadership import Leadership
from rebalancer.model.errors import ConnectError, LeaseHeldError, RebalancerError, UnsafeDataError


@dataclass
class FakeLock:
    """A Lease without a server."""

    refusal: RebalancerError | None = None
    given_term: int = 1
    left: float = 10.0
    kept: bool = False
    held: bool = False
    released: int = 0
    abandoned: int = 0

    @property
    def term(self) -> int | None:
        return self.given_term if self.held else None

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return self.held and self.left > margin_seconds

    def acquire(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.held = True

    def keep(self) -> None:
        self.kept = True

    def release(self) -> None:
        self.held = False
        self.released += 1

    def abandon(self) -> None:
        self.held = False
        self.abandoned += 1

    def seconds_left(self) -> float:
        return self.left

    def note_sequence(self) -> bool:
        return self.held


@dataclass
class Cluster:
    """Locks in the order in which they are made, and the terms that reached the ledger."""

    locks: list[FakeLock | RebalancerError]
    fenced: list[int] = field(default_factory=list)
    fence_errors: list[RebalancerError] = field(default_factory=list)
    led_when_fenced: list[bool] = field(default_factory=list)
    leadership: Leadership | None = None
    lost: int = 0

    def lose(self) -> None:
        self.lost += 1

    def make_lock(self) -> FakeLock:
        made = self.locks.pop(0)
        if isinstance(made, RebalancerError):
            raise made
        return made

    def fence(self, term: int) -> None:
        assert self.leadership is not None
        self.led_when_fenced.append(self.leadership.holds())
        if self.fence_errors:
            raise self.fence_errors.pop(0)
        self.fenced.append(term)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)


@dataclass
class Running:
    leadership: Leadership
    cluster: Cluster
    thread: threading.Thread
    stopping: threading.Event


@pytest.fixture
def runs() -> Iterator[list[Running]]:
    all_: list[Running] = []
    yield all_
    for each in all_:
        each.stopping.set()
        each.thread.join(10)
        assert not each.thread.is_alive()


def start(
    runs: list[Running], *locks: FakeLock | RebalancerError, fence_errors: tuple[RebalancerError, ...] = ()
) -> Running:
    cluster = Cluster(locks=list(locks), fence_errors=list(fence_errors))
    leadership = Leadership(make_lock=cluster.make_lock, fence=cluster.fence, lost=cluster.lose)
    cluster.leadership = leadership
    stopping = threading.Event()
    thread = threading.Thread(target=leadership.run, args=(stopping,), daemon=True)
    runs.append(Running(leadership=leadership, cluster=cluster, thread=thread, stopping=stopping))
    thread.start()
    return runs[-1]


def test_none_leads_without_a_request() -> None:
    idle = Leadership(make_lock=FakeLock, fence=lambda _: None)
    assert not idle.holds()
    assert idle.term is None
    assert idle.seconds_left() == 0.0


def test_the_ledger_knows_the_term_before_anybody_leads(runs: list[Running]) -> None:
    running = start(runs, FakeLock(given_term=7))
    assert running.leadership.led.wait(10)
    assert running.cluster.fenced == [7]
    assert running.cluster.led_when_fenced == [False]
    assert running.leadership.term == 7
    assert running.leadership.holds(9.0)
    assert not running.leadership.holds(11.0)


def test_a_follower_asks_again_and_says_what_it_waits_for(runs: list[Running]) -> None:
    mine = FakeLock(given_term=3)
    running = start(runs, FakeLock(refusal=UnsafeDataError("held by b")), mine)
    assert running.leadership.led.wait(10)
    assert running.leadership.waiting_for == "held by b"
    assert mine.kept


@pytest.mark.parametrize("error", [ConnectError("database is away"), UnsafeDataError("no ledger")])
def test_a_database_that_is_away_when_a_lock_is_made_is_waited_for(runs: list[Running], error: RebalancerError) -> None:
    running = start(runs, error, FakeLock())
    assert running.leadership.led.wait(10)
    assert running.leadership.waiting_for == str(error)


def test_what_keeps_a_replica_from_leading_is_logged_and_following_is_not(runs: list[Running]) -> None:
    with structlog.testing.capture_logs() as logs:
        follower = start(runs, LeaseHeldError("held by b"), LeaseHeldError("held by b"), FakeLock())
        assert follower.leadership.led.wait(10)
        while not logs:  # the line comes after the event
            time.sleep(0.01)
        assert logs == [{"event": "leading", "term": 1, "log_level": "info"}]
        other = start(runs, *[UnsafeDataError("belongs to ledger x")] * 1_000)
        while len(other.cluster.locks) > 997:
            time.sleep(0.01)
        assert other.leadership.prevented
        other.stopping.set()
        other.thread.join(10)
    lines = [each for each in logs if each["event"] == "not leading"]
    assert lines == [{"event": "not leading", "error": "belongs to ledger x", "log_level": "warning"}]


def test_a_term_that_did_not_reach_the_ledger_is_given_back(runs: list[Running]) -> None:
    first, second = FakeLock(given_term=1), FakeLock(given_term=2)
    running = start(runs, first, second, fence_errors=(ConnectError("database is away"),))
    assert running.leadership.led.wait(10)
    assert first.released == 1
    assert running.cluster.fenced == [2]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def test_a_lost_lease_stands_by_and_leads_again_in_a_later_term(runs: list[Running]) -> None:
    lock, refused = FakeLock(), FakeLock(refusal=LeaseHeldError("held by b"))
    with structlog.testing.capture_logs() as logs:
        running = start(runs, lock, refused, refused, FakeLock(given_term=4))
        assert running.leadership.led.wait(10)
        assert running.leadership.term == 1
        lock.held = False
        until(lambda: running.leadership.term == 4)
    assert running.thread.is_alive()
    assert lock.abandoned == 1
    assert lock.released == 0, "nothing is sent: the lease is another's, or runs out"
    assert running.cluster.fenced == [1, 4]
    assert running.cluster.led_when_fenced == [False, False]
    assert running.cluster.lost == 1
    assert [each["event"] for each in logs if each["event"] != "leading"] == ["lease lost, standing by"]
    assert running.leadership.waiting_for == "held by b"


def test_a_lock_that_is_lost_never_leads_again_by_itself(runs: list[Running]) -> None:
    lock = FakeLock()
    running = start(runs, lock, *[FakeLock(refusal=LeaseHeldError("held by b")) for _ in range(10_000)])
    assert running.leadership.led.wait(10)
    lock.held = False
    until(lambda: lock.abandoned == 1)
    lock.held = True  # a renewal that was under way has arrived
    assert not running.leadership.holds()
    assert running.leadership.term is None
    assert not running.leadership.note_sequence()
    assert running.leadership.seconds_left() == 0.0


def test_no_term_begins_while_a_cycle_of_the_lost_one_runs(runs: list[Running]) -> None:
    lock = FakeLock()
    running = start(runs, lock, FakeLock(given_term=2))
    assert running.leadership.led.wait(10)
    with running.leadership.work() as leads:
        assert leads
        lock.held = False
        until(lambda: lock.abandoned == 1)
        time.sleep(0.1)
        assert not running.leadership.holds()
        assert len(running.cluster.locks) == 1, "the lease is not asked for"
        assert running.cluster.fenced == [1]
    until(lambda: running.leadership.term == 2)
    with running.leadership.work() as leads:
        assert leads


def test_a_cycle_that_begins_after_the_loss_does_not_lead(runs: list[Running]) -> None:
    lock = FakeLock()
    running = start(runs, lock, *[FakeLock(refusal=LeaseHeldError("held by b")) for _ in range(10_000)])
    assert running.leadership.led.wait(10)
    lock.held = False
    until(lambda: lock.abandoned == 1)
    with running.leadership.work() as leads:
        assert not leads


def test_stopping_ends_the_wait_for_a_cycle_of_the_lost_term(runs: list[Running]) -> None:
    lock = FakeLock()
    running = start(runs, lock, FakeLock(given_term=2))
    assert running.leadership.led.wait(10)
    with running.leadership.work():
        lock.held = False
        until(lambda: lock.abandoned == 1)
        running.stopping.set()
        running.thread.join(10)
        assert not running.thread.is_alive()
    assert running.cluster.fenced == [1]


def test_a_release_gives_the_lease_back_once(runs: list[Running]) -> None:
    lock = FakeLock()
    running = start(runs, lock)
    assert running.leadership.led.wait(10)
    running.stopping.set()
    running.thread.join(10)
    running.leadership.release()
    running.leadership.release()
    assert lock.released == 1
    assert not running.leadership.holds()


def test_stopping_ends_the_asking(runs: list[Running]) -> None:
    running = start(runs, *[FakeLock(refusal=UnsafeDataError("held by b")) for _ in range(10_000)])
    time.sleep(0.05)
    running.stopping.set()
    running.thread.join(10)
    assert not running.thread.is_alive()
    assert not running.leadership.led.is_set()
