"""A morning with a peak, seen from the evening before.

Unless a test says otherwise it is Thursday 21:00 UTC and node n1 (16 cores, hot over 75%, cooled to 65%) is expected
at 91% on Friday at 10:20, over 75% from 09:40. That is 4160 millicores too many. Pods drain in 30 s and start in
270 s, the margin is 2 minutes and the lead 15: the deadline is 09:18.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.constraints.moves.windows import CHANGE_WINDOW
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import SLOTS, STEP_SECONDS
from rebalancer.model.measured.peaks import Peaks
from rebalancer.planner.ahead import PredictedHotNode, predicted_hot_nodes
from rebalancer.policy.pools import NodePools
from tests.builders import ANode, APod, a_node, a_policy, cluster, replicas

NODES = [a_node("n1"), a_node("n2")]
MORNING = [("2027-01-15 09:40", 12_800.0), ("2027-01-15 10:20", 14_560.0), ("2027-01-15 11:00", 6_000.0)]
EXCESS = 14_560.0 - 10_400.0
HEAD = "peak 91% expected at 2027-01-15 10:20 UTC, over 75% from 2027-01-15 09:40 UTC; "


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def in_words(at: float | None) -> str | None:
    return None if at is None else f"{datetime.fromtimestamp(at, UTC):%a %H:%M:%S}"


EVENING = utc("2027-01-14 21:00")


def expected(
    snapshot: ClusterSnapshot,
    now: float,
    curves: Mapping[str, Sequence[tuple[str, float]]],
    relief: Mapping[str, float],
) -> Peaks:
    """`curves` = node -> (from when, millicores), 5000 before that; `relief` = pod -> millicores, 0 for the others."""
    times = now + STEP_SECONDS * np.arange(SLOTS)
    grid = np.full((len(snapshot.nodes), SLOTS), 5_000.0)
    for node, curve in curves.items():
        for since, level in curve:
            grid[snapshot.node_index[node], times >= utc(since)] = level
    taken = np.array([relief.get(name, 0.0) for name in snapshot.pods.names])
    return Peaks(
        made_at=now,
        starts_at=now,
        expected=grid.astype(np.float32),
        node_millicores=grid.max(axis=1),
        node_at=times[grid.argmax(axis=1)],
        relief_millicores=taken,
        pod_millicores=taken,
    )


def usual(service: str) -> float:
    return 270.0


def seen(
    pods: Sequence[APod],
    relief: Mapping[str, float],
    *,
    now: float = EVENING,
    curves: Mapping[str, Sequence[tuple[str, float]]] | None = None,
    nodes: Sequence[ANode] = NODES,
    start_up: Callable[[str], float] = usual,
    change: Callable[[Peaks], Peaks] = lambda peaks: peaks,
    **policy: Any,
) -> list[PredictedHotNode]:
    """What one look sees; `policy` replaces sections of it."""
    rules = a_policy(**policy)
    snapshot = cluster(nodes, pods)
    node_pools = NodePools.of(rules.pools, snapshot.nodes)
    door = EvictionAdmission(
        policy=rules, snapshot=snapshot, pool_of=node_pools.of_node, ledger_state=LedgerState(), now=now
    )
    peaks = change(expected(snapshot, now, {"n1": MORNING} if curves is None else curves, relief))
    return predicted_hot_nodes(
        snapshot=snapshot, peaks=peaks, policy=rules, node_pools=node_pools, admission=door, start_up=start_up, now=now
    )


def service(name: str, annotation: str | None = None, *, node: str = "n1", **fields: Any) -> list[APod]:
    """Two replicas, `<name>-0` of them on the node."""
    template = {} if annotation is None else {"annotations": {CHANGE_WINDOW: annotation}}
    return replicas(name, {node: 1, "n2": 1}, template={**template, **fields.pop("template", {})}, **fields)


WEB = service("web")
ENOUGH = {"web-0": 5_000.0}


def the_one(*args: Any, **fields: Any) -> tuple[str | None, str]:
    """(start, the part of the sentence behind its numbers, with times of that day as clocks)"""
    (found,) = seen(*args, **fields)
    assert found.why.startswith(HEAD)
    return in_words(found.start_by), of_the_day(found.why.removeprefix(HEAD))


def of_the_day(text: str) -> str:
    return re.sub(r"2027-01-1[45] (\d\d:\d\d) UTC", r"\1", text)


def window(schedule: str, duration: str, name: str | None = None, kind: str = "Allow", zone: str = "UTC") -> Any:
    named = {} if name is None else {"name": name}
    return {**named, "kind": kind, "schedule": schedule, "duration": duration, "timeZone": zone}


NIGHT = window("0 0 * * *", "6h", "night")


def general(**fields: Any) -> dict[str, Any]:
    """The pool of the builders, with more to it."""
    return {
        "name": "general",
        "selector": {"matchLabels": {"pool": "general"}},
        "thresholds": {"high": 75, "target": 65, "low": 50},
        **fields,
    }


REQUESTS = {"high": {"cpu": 80}, "target": {"cpu": 70}, "low": {"cpu": 50}}
OTHER = general(name="other", selector={"matchLabels": {"pool": "other"}}, requestThresholds=REQUESTS)
"""A pool without nodes."""
BY_REQUESTS = general(requestThresholds=REQUESTS)
