"""The wall clock is set back while the worker waits: it waits no longer for it."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rebalancer.daemon.supervisor import Heartbeat
from rebalancer.daemon.threads import worker
from rebalancer.model.errors import ConnectError
from tests.daemon.test_worker import Around, around

SHORT_SECONDS = 0.05
SET_BACK_SECONDS = 600.0
PATIENCE_SECONDS = 20.0


@pytest.fixture
def _set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading of the worker's wall clock but the first is ten minutes earlier."""
    readings = iter([0.0])

    def wall() -> float:
        return time.time() - SET_BACK_SECONDS + (SET_BACK_SECONDS if next(readings, None) is not None else 0.0)

    clocks = SimpleNamespace(time=wall, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(worker, "time", clocks)
    monkeypatch.setattr(worker, "LONGEST_NAP_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(worker, "PAUSE_AFTER_ERROR_SECONDS", SHORT_SECONDS)


def ends(it: Around) -> bool:
    thread = threading.Thread(target=it.worker.run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    over = not thread.is_alive()
    it.stopping[:] = [True]
    it.queue.wake()
    thread.join(PATIENCE_SECONDS)
    return over


@pytest.mark.usefixtures("_set_back")
def test_the_inbox_is_read_again_in_time_when_the_clock_is_set_back(tmp_path: Path) -> None:
    with around(tmp_path) as it:
        it.stopping[:] = [False, False, False, True]  # before and after two naps
        assert ends(it)


@pytest.mark.usefixtures("_set_back")
def test_a_rest_after_an_error_is_as_long_as_it_was_meant_when_the_clock_is_set_back(tmp_path: Path) -> None:
    class Away:
        reads = 0

        def next_at(self) -> float:
            self.reads += 1
            raise ConnectError("the database is away")

    away = Away()
    with around(tmp_path, wrap_inbox=lambda _: away) as it:
        it.worker.stopping = lambda: away.reads > 1 or it.stopping[0]
        assert ends(it)
    assert away.reads == 2


def test_a_heartbeat_is_a_reading_of_the_monotonic_clock() -> None:
    heartbeat = Heartbeat(stopping=threading.Event())
    before = time.monotonic()
    heartbeat.beat()
    assert before <= heartbeat.at <= time.monotonic()
