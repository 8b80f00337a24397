"""The snapshot that the pages share."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.dashboard.snapshot import SHARED_SECONDS, SharedSnapshot
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import UnsafeDataError
from tests.builders import a_node, cluster

EMPTY = cluster([a_node("n1")], [])


@dataclass
class Around:
    """A cluster that counts how often it is read, and its clock."""

    at: float = 1000.0
    reads: int = 0
    problem: str = ""
    shared: SharedSnapshot = field(init=False)

    def __post_init__(self) -> None:
        current: Any = SimpleNamespace(context=SimpleNamespace(cluster=self))
        clock: Any = self
        self.shared = SharedSnapshot(lambda: current, clock)

    def now(self) -> float:
        return self.at

    def snapshot(self) -> ClusterSnapshot:
        if self.problem:
            raise UnsafeDataError(self.problem)
        self.reads += 1
        return replace(EMPTY, taken=self.at)


def test_all_pages_of_some_seconds_share_one_snapshot() -> None:
    around = Around()
    first = around.shared.latest()
    around.at += SHARED_SECONDS - 1
    assert around.shared.latest() is first
    around.at += 1
    assert around.shared.latest().taken == around.at
    assert around.reads == 2


def test_what_a_cycle_has_read_is_not_read_again() -> None:
    around = Around()
    read = replace(EMPTY, taken=around.at - 1)
    around.shared.measured(read)
    assert around.shared.latest() is read
    assert around.reads == 0


def test_an_older_snapshot_of_a_cycle_replaces_no_newer_one() -> None:
    around = Around()
    newest = around.shared.latest()
    around.shared.measured(replace(EMPTY, taken=around.at - 5))
    assert around.shared.latest() is newest


def test_after_evictions_the_cluster_is_read_again() -> None:
    around = Around()
    around.shared.latest()
    around.shared.forget()
    around.shared.latest()
    assert around.reads == 2


def test_a_clock_that_was_set_back_keeps_no_snapshot_for_long() -> None:
    around = Around()
    around.shared.latest()
    around.at -= 3600
    assert around.shared.latest().taken == around.at


def test_a_cluster_that_cannot_be_read_is_said_once_the_snapshot_is_old() -> None:
    around = Around()
    around.shared.latest()
    around.problem = "the cache of pods is 200 s old"
    around.shared.latest()
    around.at += SHARED_SECONDS
    with pytest.raises(UnsafeDataError, match="200 s old"):
        around.shared.latest()
