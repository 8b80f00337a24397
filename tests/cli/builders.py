"""Replays made by hand, for the texts and pages of `rebalancer replay`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.reason import Reason
from rebalancer.model.recordings.recording import Gap
from rebalancer.model.recordings.replay import Blocked, HotBound, PoolCapacity, Replay, ReplayedCycle, ReplayRun
from tests.builders import an_eviction

START = 1_789_948_800.0
"""2026-09-21 00:00 UTC, a Monday."""
HOUR, DAY, STEP = 3600.0, 86_400.0, 300.0
HOUR_STEPS = 12
HIGH = {"general": 0.75, "batch": 0.9}
SERVICES = ("shop/checkout", "shop/cart", "batch/report", "web/front", "web/search", "ops/logs")


def a_replayed_eviction(at: float, number: int, node: str) -> Eviction:
    service = SERVICES[number % len(SERVICES)]
    name = service.partition("/")[2]
    return an_eviction(
        service=service,
        pod=f"{name}-6c9f7d5b8-{number:05d}",
        node=node,
        planned_at=at,
        answered_at=at,
        outcome=Outcome.EVICTED,
        replacement_node="node-7",
        cpu_millicores=1650.0,
        reason="real CPU 91.2% is over high 75.0%, to be cooled to 65.0%",
    )


def a_run(
    label: str = "policy.yaml",
    *,
    nodes: int = 8,
    hours: int = 168,
    hot: Sequence[int] = (10,),
    hot_nodes: int = 1,
    evictions: int = 0,
    until: float | None = None,
    **fields: Any,
) -> ReplayRun:
    """Its first `hot_nodes` nodes are hot in these hours of each day; a cycle each hour blocks those that are."""
    steps = hours * HOUR_STEPS
    share = np.full((nodes, steps), 0.45, dtype=np.float32)
    minutes = np.zeros((nodes, steps), dtype=np.float32)
    for hour in range(hours):
        if hour % 24 in hot:
            at = slice(hour * HOUR_STEPS, (hour + 1) * HOUR_STEPS)
            share[:hot_nodes, at], minutes[:hot_nodes, at] = 0.93, 5.0
    code, message = Reason.NO_NODE_WITH_HEADROOM.value, "no node of general has 1.65 cores of headroom"
    blocked = tuple(
        Blocked(node=f"node-{number}", code=code, message=f"{message} ({number})") for number in range(hot_nodes)
    )
    cycles = [
        ReplayedCycle(at=START + hour * HOUR, trigger="schedule", hot=hot_nodes, evicted=0, blocked=blocked)
        for hour in range(hours)
        if hour % 24 in hot
    ]
    given: dict[str, Any] = {
        "label": label,
        "until": START + hours * HOUR if until is None else until,
        "share": share,
        "hot_minutes": minutes,
        "evictions": tuple(
            a_replayed_eviction(START + 9 * HOUR + number * 1800.0, number, f"node-{number % nodes}")
            for number in range(evictions)
        ),
        "cycles": tuple(cycles),
        "most_in_flight": min(evictions, 2),
    }
    return ReplayRun(**{**given, **fields})


def a_capacity(pool: str = "general", **fields: Any) -> PoolCapacity:
    """A pool of six nodes that lacks none."""
    given: dict[str, Any] = {
        "pool": pool,
        "nodes": 6,
        "node_millicores": 16_000.0,
        "missing": 0,
        "hot_node_minutes": 0.0,
        "short": (),
        "spare_by_usage": 3,
        "spare_by_requests": 1,
    }
    return PoolCapacity(**{**given, **fields})


def a_replay(*runs: ReplayRun, nodes: int = 8, hours: int = 168, **fields: Any) -> Replay:
    """A week of which two nodes were hot for three hours a day; by default with one policy."""
    recorded = a_run("as recorded", nodes=nodes, hours=hours, hot=(9, 10, 11), hot_nodes=2, cycles=())
    policies = runs or (a_run(nodes=nodes, hours=hours, evictions=14),)
    measured = recorded.hot_minutes.copy()
    measured[0, 9 * HOUR_STEPS] = 0.0
    given: dict[str, Any] = {
        "cluster": "blue",
        "source": "Prometheus at http://prometheus:9090",
        "start": START,
        "end": START + hours * HOUR,
        "nodes": tuple(f"node-{number}" for number in range(nodes)),
        "pools": tuple("batch" if number % 4 == 3 else "general" for number in range(nodes)),
        "high": HIGH,
        "pods": 240,
        "measured_share": recorded.share,
        "measured_hot_minutes": measured,
        "as_recorded": recorded,
        "without": recorded,
        "runs": policies,
        "bound": HotBound(np.full(hours * HOUR_STEPS, 0.5), np.zeros(hours * HOUR_STEPS)),
        "capacity": (a_capacity(),),
        "gaps": (
            Gap(text="affinity and tolerations are those of today's objects", pods=212),
            Gap(text="autoscalers are not replayed", pods=0),
        ),
        "parts": {run.label: "pools: []" for run in policies},
    }
    return Replay(**{**given, **fields})
