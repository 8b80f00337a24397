"""Threads under one roof: the first that ends by itself ends everything, and says how."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from rebalancer.daemon.supervisor import Supervisor


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = Supervisor()
    yield made
    made.stop()
    assert made.join(10.0, monotonic=time.monotonic) == []


def idle(supervisor: Supervisor) -> None:
    supervisor.stopping.wait()


def test_a_thread_that_raises_ends_the_wait_with_its_name_and_error(supervisor: Supervisor) -> None:
    def fail() -> None:
        raise KeyError("gone")

    supervisor.start("idle", lambda: idle(supervisor))
    supervisor.start("cycles", fail)
    ending = supervisor.wait()
    assert ending is not None
    assert ending.thread == "cycles"
    assert isinstance(ending.error, KeyError)


def test_a_thread_that_just_returns_ends_the_wait_too(supervisor: Supervisor) -> None:
    supervisor.start("leadership", lambda: None)
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

    supervisor.start("second", second)
    supervisor.start("first", lambda: None)
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
    supervisor.start("broken", lambda: None)
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
