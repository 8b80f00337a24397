"""Assessments by memory: a node is relieved of what its pods don't share with the cache."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.cycle.evict.reservation import amounts_of
from rebalancer.cycle.evict.scheduled_assessments import assessments_of
from rebalancer.cycle.observe.observation import Observation
from rebalancer.effect.account import account, outcome_of
from rebalancer.evaluation.assessments import run_due_assessments
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.model.records.effect import Assessment, Outcome, Step
from tests.builders import GIB, NOW, APod, a_node, a_pod, a_policy, set_fields
from tests.evaluation.test_assessments import SETTLE, a_report, an_eviction, found_by, seen_at

NODES = [a_node("hot", cpu=10_000.0, used=2_000.0), a_node("cool", cpu=10_000.0, used=2_000.0)]
PODS = [a_pod("web-1", "hot", owner="web", used=100.0), a_pod("db-1", "hot", owner="db", used=100.0)]
POLICY = a_policy(
    pools=[
        {
            "name": "general",
            "selector": {"matchLabels": {"pool": "general"}},
            "thresholds": {
                "high": 75,
                "target": 65,
                "low": 50,
                "resources": {"memory": {"high": 85, "target": 75, "low": 60}},
            },
        }
    ],
    guards={"minReplicas": 1},
)


def memory(hot: float, pods: Sequence[float], anonymous: Sequence[float]) -> ResourceUsage:
    """GiB of nodes of 64 GiB and of their pods."""
    node = np.array([hot, 10.0]) * GIB
    return ResourceUsage(
        node=node,
        capacity=np.full(2, 64.0 * GIB),
        pod=np.array(pods) * GIB,
        relief=np.array(anonymous) * GIB,
        samples=np.repeat(node[None, :], 5, axis=0),
    )


def seen(now: float, pods: Sequence[APod], used: ResourceUsage) -> Observation:
    return seen_at(now, NODES, pods, POLICY, resources={MEMORY: used})


def expected() -> tuple[Observation, list[Assessment]]:
    """`web-1` has 3 GiB of its own in a working set of 12, `db-1` 10 in one of 20."""
    before = seen(NOW, PODS, memory(58.0, [12.0, 20.0], [3.0, 10.0]))
    return before, assessments_of(a_report(an_eviction("web-1")), before, found_by(before, POLICY), POLICY, now=NOW)


def test_the_planned_share_of_memory_is_without_what_the_node_is_free_of() -> None:
    before, (settled, *_) = expected()
    assert settled.resource == MEMORY
    assert settled.planned_share == pytest.approx(55 / 64)
    assert [each.amount / GIB for each in settled.pods] == [3.0, 10.0]
    move = an_eviction("web-1")
    set_fields(move, pod_index=0, node_index=before.snapshot.node_index["hot"])
    found = amounts_of(move, before)[MEMORY]
    assert (found.amount / GIB, found.share) == (12.0, pytest.approx(3 / 64))


def test_evictions_that_a_limit_kept_too_few_are_not_ineffective_by_memory() -> None:
    """The cache of the pod never counted as in use: 12 GiB less would have been enough, 3 are not."""
    _, rows = expected()
    kept: Any = _Records(rows)
    after = seen(NOW + SETTLE, PODS[1:], memory(55.0, [24.0], [10.0]))
    run_due_assessments(kept, after.snapshot, after.usage, replacements=lambda _: {}, policy=POLICY, now=NOW + SETTLE)
    (made,) = kept.done
    assert made.outcome is Outcome.TOO_FEW_EVICTED
    assert made.breakdown is not None
    parts = made.breakdown
    assert (parts.evicted / GIB, parts.remaining_change, parts.residual) == (3.0, 0.0, pytest.approx(0.0))
    assert outcome_of(made, account(made, [], 58.0 * GIB, 55.0 * GIB), 55 / 64)[0] is Outcome.TOO_FEW_EVICTED


class _Records:
    """Rows in memory."""

    def __init__(self, rows: Sequence[Assessment]) -> None:
        self.rows, self.done = rows, list[Assessment]()

    def due(self, now: float) -> list[Assessment]:
        return [each for each in self.rows if each.step is Step.SETTLED]

    def assessments(self, *_: object) -> Sequence[Assessment]:
        return self.rows

    def moved(self, *_: object) -> Sequence[Any]:
        return ()

    def pool_hours(self, *_: object, **__: object) -> Sequence[Any]:
        return ()

    def expect(self, rows: Sequence[Assessment]) -> None:
        """Nothing is withdrawn."""

    def made(self, rows: Sequence[Assessment]) -> None:
        self.done += rows
