"""Terms of leadership: each later one begins with adapters of its own, and a cycle runs in none but its own."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.daemon.terms import Terms
from rebalancer.daemon.triggers import TriggerQueue
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.errors import ConfigError


class Around:
    """Leadership and cache, as `DaemonResources` has them."""

    def __init__(self) -> None:
        self.leadership = self.cluster = self
        self.term: int | None = None
        self.complete = True
        self.error: Exception | None = None
        self.renewed = 0
        self.queue = TriggerQueue()
        resources: Any = self
        self.terms = Terms(resources=resources, queue=self.queue, renew=self._renew)

    def _renew(self) -> None:
        if self.error is not None:
            raise self.error
        self.renewed += 1

    @contextmanager
    def work(self) -> Iterator[bool]:
        yield self.term is not None

    def synced(self) -> bool:
        return self.complete

    def waiting(self) -> CycleRequest | None:
        return self.queue.take(0.0, monotonic=time.monotonic)

    def leads(self) -> bool:
        with self.terms.leading() as leads:
            return leads


def test_a_term_begins_with_a_cycle_of_the_whole_cluster_and_a_later_one_anew() -> None:
    around = Around()
    around.terms.begin()
    assert around.waiting() is None
    around.term = 3
    around.terms.begin()
    around.terms.begin()
    assert (around.waiting(), around.renewed) == (CycleRequest(trigger=Trigger.PERIODIC), 0)
    assert around.waiting() is None
    around.term = None
    around.terms.begin()
    around.term = 5
    around.terms.begin()
    assert (around.waiting(), around.renewed) == (CycleRequest(trigger=Trigger.PERIODIC), 1)


def test_a_cycle_runs_in_the_term_that_was_begun_and_in_no_other() -> None:
    around = Around()
    assert not around.leads()
    around.term = 3
    assert not around.leads()
    around.terms.begin()
    assert around.leads()
    around.term = 4
    assert not around.leads(), "lost and acquired again since"
    around.terms.begin()
    assert around.leads()
    around.complete = False
    assert not around.leads()


def test_a_term_whose_adapters_can_not_be_built_does_not_begin() -> None:
    around = Around()
    around.term = 1
    around.terms.begin()
    around.waiting()
    around.term, around.error = 2, ConfigError("ca.crt: not there")
    with pytest.raises(ConfigError):
        around.terms.begin()
    assert not around.leads()
    assert around.waiting() is None
    around.error = None
    around.terms.begin()
    assert around.leads()
