"""Threads under one roof: one that fails is run again; that of the lease, and a process without memory, end all."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from rebalancer.daemon.supervisor import Supervisor
from rebalancer.model import parts as module
from rebalancer.model.parts import FailedParts, VitalError


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> FailedParts:
    monkeypatch.setattr(module, "SHORTEST_SECONDS", 0.02)
    return FailedParts(now=time.time, monotonic=time.monotonic)


@pytest.fixture
def supervisor(parts: FailedParts) -> Iterator[Supervisor]:
    made = Supervisor(parts)
    yield made
    made.stop()
    assert made.join(10.0, monotonic=time.monotonic) == []


def idle(supervisor: Supervisor) -> None:
    supervisor.stopping.wait()


def test_a_thread_that_raises_is_run_again_after_a_wait(supervisor: Supervisor, parts: FailedParts) -> None:
    runs: list[float] = []
    works = threading.Event()

    def fail_twice() -> None:
        runs.append(time.monotonic())
        if len(runs) < 3:
            raise KeyError("gone")
        works.set()
        idle(supervisor)

    supervisor.start("journal", fail_twice)
    assert works.wait(10)
    (failed,) = parts.current()
    assert (failed.name, failed.failures) == ("thread journal", 2)
    assert failed.cause.startswith("KeyError: 'gone' (test_supervisor.py:")
    assert runs[1] - runs[0] >= 0.02
    assert runs[2] - runs[1] >= 0.04
    assert not supervisor.stopping.is_set()


def test_a_thread_that_just_returns_is_run_again_too(supervisor: Supervisor, parts: FailedParts) -> None:
    runs: list[int] = []
    works = threading.Event()

    def return_once() -> None:
        runs.append(1)
        if len(runs) > 1:
            works.set()
            idle(supervisor)

    supervisor.start("gauges", return_once)
    assert works.wait(10)
    assert [each.cause for each in parts.current()] == ["it ended"]


@pytest.mark.parametrize(
    "error", [VitalError("the ledger"), MemoryError(), RuntimeError("can't start new thread")], ids=str
)
def test_an_error_that_is_no_parts_own_ends_the_wait_with_its_name(supervisor: Supervisor, error: Exception) -> None:
    def fail() -> None:
        raise error

    supervisor.start("idle", lambda: idle(supervisor))
    supervisor.start("cycles", fail)
    ending = supervisor.wait()
    assert ending is not None
    assert (ending.thread, ending.error) == ("cycles", error)


def test_any_error_of_a_vital_thread_ends_the_wait(supervisor: Supervisor) -> None:
    def fail() -> None:
        raise KeyError("gone")

    supervisor.start("leadership", fail, vital=True)
    ending = supervisor.wait()
    assert ending is not None
    assert ending.thread == "leadership"
    assert isinstance(ending.error, KeyError)


def test_a_vital_thread_that_just_returns_ends_the_wait_too(supervisor: Supervisor) -> None:
    supervisor.start("leadership", lambda: None, vital=True)
    ending = supervisor.wait()
    assert ending is not None
    assert (ending.thread, ending.error) == ("leadership", None)


def test_an_exit_in_a_thread_is_no_quiet_end(supervisor: Supervisor) -> None:
    def leave() -> None:
        raise SystemExit(0)

    supervisor.start("gauges", leave)
    ending = supervisor.wait()
    assert ending is not None
    assert isinstance(ending.error, SystemExit)


def test_the_first_end_is_the_one_that_counts(supervisor: Supervisor) -> None:
    first = threading.Event()

    def second() -> None:
        first.wait()
        raise ValueError

    supervisor.start("second", second, vital=True)
    supervisor.start("first", lambda: None, vital=True)
    ending = supervisor.wait()
    first.set()
    assert ending is not None
    assert ending.thread == "first"


def test_a_part_that_ends_because_we_stop_is_no_failure(supervisor: Supervisor) -> None:
    supervisor.start("idle", lambda: idle(supervisor))
    supervisor.stop()
    assert supervisor.wait() is None
    assert supervisor.stopping.is_set()


def test_all_parts_stop_when_one_has_ended(supervisor: Supervisor) -> None:
    supervisor.start("idle", lambda: idle(supervisor))
    supervisor.start("broken", lambda: None, vital=True)
    supervisor.wait()
    assert supervisor.stopping.is_set()
    assert supervisor.join(10.0, monotonic=time.monotonic) == []


def test_a_thread_that_does_not_end_is_named_and_not_waited_for(supervisor: Supervisor) -> None:
    release = threading.Event()

    def stuck() -> None:
        release.wait()

    supervisor.start("stuck", stuck)
    supervisor.start("idle", lambda: idle(supervisor))
    supervisor.stop()
    assert supervisor.join(0.2, monotonic=time.monotonic) == ["stuck"]
    release.set()


def test_a_signal_handler_may_stop_us_while_we_wait(supervisor: Supervisor) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: supervisor.stop())
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR2))
        timer.start()
        assert supervisor.wait() is None
        timer.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
