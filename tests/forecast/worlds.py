"""Small clusters with a history, for tests of forecasts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rebalancer.forecast import Arrival, Forecasts, NodeForecast, forecast
from rebalancer.model.history import DAY_SECONDS, SLOTS, DayBlock, History
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy.forecast import Forecast
from tests.builders import NOW, ANode, APod, cluster

DAYS = 8
TODAY = int(NOW // DAY_SECONDS)
MIDNIGHT = float(TODAY * DAY_SECONDS)
"""With `now` at midnight the eight days are calendar days."""


def flat(*levels: float) -> np.ndarray:
    """(days, 288) one level a day, the oldest first; a single level holds for all eight."""
    days = levels if len(levels) > 1 else levels * DAYS
    return np.repeat(np.array(days, dtype=np.float32)[:, None], SLOTS, axis=1)


def history(pods: Mapping[str, np.ndarray], nodes: Mapping[str, np.ndarray] | None = None) -> History:
    """The days that end at MIDNIGHT. Series are (days, 288), the last row is yesterday; shorter ones began later."""
    nodes = nodes or {}
    blocks = []
    for back in range(DAYS, 0, -1):
        there = [name for name, series in pods.items() if len(series) >= back and not np.isnan(series[-back]).all()]
        on = [name for name, series in nodes.items() if len(series) >= back]
        blocks.append(
            DayBlock(
                day=TODAY - back,
                pods=tuple(there),
                pod_millicores=np.array([pods[name][-back] for name in there], dtype=np.float32).reshape(-1, SLOTS),
                nodes=tuple(on),
                node_millicores=np.array([nodes[name][-back] for name in on], dtype=np.float32).reshape(-1, SLOTS),
            )
        )
    return History(days=blocks)


def world(nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any) -> ClusterSnapshot:
    return cluster(nodes, pods, **fields)


def forecasts(
    past: History,
    snapshot: ClusterSnapshot,
    *,
    now: float = MIDNIGHT,
    arrivals: Sequence[Arrival] = (),
    **policy: Any,
) -> Forecasts:
    """Forecast with all nodes in pool `general`; `policy` are fields of the section."""
    return forecast(
        past,
        snapshot,
        policy=Forecast.model_validate(policy),
        pool_of=np.zeros(len(snapshot.nodes), dtype=np.int32),
        pools=["general"],
        now=now,
        arrivals=arrivals,
    )


def the_forecast(past: History, snapshot: ClusterSnapshot, **options: Any) -> NodeForecast:
    """Of the first node."""
    return forecasts(past, snapshot, **options).nodes[0]
