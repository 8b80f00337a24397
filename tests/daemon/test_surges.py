"""The thread of replacement first: on the leader alone, and it goes on after an error."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rebalancer.cycle.evict.surges import POLL_SECONDS
from rebalancer.daemon.threads.loops import RETRY_SECONDS, SurgeThread
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.errors import ConnectError


class Looks:
    """`Surges` whose looks find so many open ones, or raise."""

    def __init__(self, *found: int | Exception) -> None:
        self._found = list(found)

    def turn(self) -> int:
        found = self._found.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def begin(self, eviction: Eviction, *, server_dry_run: bool) -> Answer:
        return Answer(outcome=Outcome.EVICTED)


class Pauses(threading.Event):
    """Never waits, and ends the thread after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        self._left -= 1
        return self._left < 0


def run(looks: int, *, surges: Looks | None, leads: Callable[[], bool] = lambda: True) -> list[float]:
    """The pauses before the looks, and after the last one."""
    active = cast("Any", SimpleNamespace(context=SimpleNamespace(surges=surges)))
    pauses = Pauses(looks)
    SurgeThread(active=lambda: active, leads=leads).run(pauses)
    return pauses.seconds


def test_it_looks_less_often_while_many_are_open() -> None:
    assert run(3, surges=Looks(0, 5, 100)) == [POLL_SECONDS, POLL_SECONDS, POLL_SECONDS, 20.0]


def test_it_goes_on_after_an_error() -> None:
    assert run(2, surges=Looks(ConnectError("the database is away"), 0)) == [POLL_SECONDS, RETRY_SECONDS, POLL_SECONDS]


@pytest.mark.parametrize("surges", [None, Looks()])
def test_a_follower_does_not_look(surges: Looks | None) -> None:
    assert run(3, surges=surges, leads=lambda: False) == [POLL_SECONDS] * 4
