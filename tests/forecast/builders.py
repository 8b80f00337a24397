"""Small clusters with a history, for tests of forecasts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rebalancer.forecast import Arrival, Forecasts, NodeForecast, NodeForecasts, forecast, forecast_nodes
from rebalancer.forecast.series.membership import DepartedPod
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock, History
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import NOW, ANode, APod, a_node, a_pod, cluster

DAYS = 8
TODAY = int(NOW // DAY_SECONDS)
MIDNIGHT = float(TODAY * DAY_SECONDS)
"""With `now` at midnight the eight days are calendar days."""
AGED = 60 * 86_400.0


def flat(*levels: float) -> np.ndarray:
    """(days, 288) one level a day, the oldest first; a single level holds for all eight."""
    days = levels if len(levels) > 1 else levels * DAYS
    return np.repeat(np.array(days, dtype=np.float32)[:, None], SLOTS, axis=1)


def history(pods: Mapping[str, np.ndarray], nodes: Mapping[str, np.ndarray] | None = None) -> History:
    """The days that end at MIDNIGHT, at least eight. Series are (days, 288), the last row is yesterday; shorter ones
    began later."""
    nodes = nodes or {}
    blocks = []
    for back in range(max([DAYS, *(len(each) for each in pods.values())]), 0, -1):
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
    return forecast(past, snapshot, **in_general(snapshot, policy), now=now, arrivals=arrivals)


def in_general(snapshot: ClusterSnapshot, policy: Mapping[str, Any]) -> dict[str, Any]:
    """All nodes are of one pool."""
    pool_of = np.zeros(len(snapshot.nodes), dtype=np.int32)
    return {"policy": Forecast.model_validate(policy), "pool_of": pool_of, "pools": ["general"]}


def the_forecast(past: History, snapshot: ClusterSnapshot, **options: Any) -> NodeForecast:
    """Of the first node."""
    return forecasts(past, snapshot, **options).nodes[0]


def look(
    past: History,
    snapshot: ClusterSnapshot,
    *,
    now: float = MIDNIGHT,
    arrivals: Sequence[Arrival] = (),
    before: NodeForecasts | None = None,
    evicted: Sequence[DepartedPod] = (),
    **policy: Any,
) -> NodeForecasts:
    options: dict[str, Any] = {"now": now, "arrivals": arrivals, "before": before, "evicted": evicted}
    return forecast_nodes(past, snapshot, **in_general(snapshot, policy), **options)


def expect(past: History, snapshot: ClusterSnapshot, **options: Any) -> Peaks:
    """Laid over the snapshot that it was made of."""
    return look(past, snapshot, **options).peaks(snapshot, now=options.get("now", MIDNIGHT))


def a_stored_forecast(made_at: float, **fields: Any) -> StoredForecast:
    """Of a node of 4 cores for the day from then on: 2000 millicores and a margin of 400."""
    times = {"made_at": made_at, "until": made_at + DAY_SECONDS, "peak_at": made_at + 7200.0}
    amounts = {"peak_millicores": 2400.0, "margin_millicores": 400.0, "capacity_millicores": 4000.0, "high": 0.75}
    known = {"kind": ForecastKind.DAILY, "predictor": "combined", "days_used": 8, "confidence": 1.0}
    return StoredForecast(**{"node": "n1", "pool": "general", **times, **amounts, **known, **fields})


def an_actual(p95: float, peak_at: float, **fields: Any) -> Actuals:
    """What came of a forecast; the busiest quarter lay 100 millicores over its P95."""
    peaks = {"peak_millicores": p95 + 100.0, "counterfactual_peak_millicores": p95 + 100.0, "peak_at": peak_at}
    return Actuals(**{"p95_millicores": p95, "departed_peak_share": 0.0, "verdict": None, **peaks, **fields})


def by_pod(snapshot: ClusterSnapshot, column: np.ndarray) -> dict[str, float]:
    return dict(zip(snapshot.pods.names, column.tolist(), strict=True))


def services(*names: str, on: str = "b", level: float = 400) -> tuple[dict[str, np.ndarray], list[APod]]:
    """Series and pods of services of two replicas."""
    named = [(f"{name}-{index}", name) for name in names for index in range(2)]
    return {f"shop/{pod}": flat(level) for pod, _ in named}, [
        a_pod(pod, owner=name, node=on, age=AGED) for pod, name in named
    ]


def diverse(seed: int, *, whole: bool = True) -> tuple[History, list[ANode], list[APod]]:
    """Eight nodes of eight pods of ten services: flat ones, days, half hours, twice a day, growing, restless ones."""
    random = np.random.default_rng(seed)
    slots = np.arange(SLOTS) / SLOTS * 2 * np.pi
    curves = []
    for kind in range(10):
        curve = np.ones((DAYS, SLOTS))
        if kind % 5 == 1:
            curve *= 1 + 0.6 * np.sin(slots + random.uniform(0, 6))
        elif kind % 5 == 2:
            begin = int(random.integers(0, SLOTS - 6))
            curve[:, begin : begin + 6] = 4
        elif kind % 5 == 3:
            curve *= (1 + 0.4 * np.sin(2 * slots + random.uniform(0, 6))) * np.linspace(0.7, 1.3, DAYS)[:, None]
        elif kind % 5 == 4:
            curve *= (1 + 0.3 * np.sin(slots)) * random.lognormal(0, 0.1, (DAYS, 1))
        curves.append(curve)
    series, pods, totals = {}, [], {}
    for node in range(8):
        total = np.full((DAYS, SLOTS), random.uniform(200, 600))
        for place in range(8):
            kind = int(random.integers(0, len(curves)))
            level = 300 * (1 + kind % 3) * random.lognormal(0, 0.1)
            name = f"s{kind}-{node}{place}"
            series[f"shop/{name}"] = (curves[kind] * level * random.lognormal(0, 0.15, (DAYS, SLOTS))).astype(
                np.float32
            )
            total += series[f"shop/{name}"]
            pods.append(a_pod(name, owner=f"s{kind}", node=f"n{node}", age=AGED))
        totals[f"n{node}"] = total.astype(np.float32)
    return history(series, totals if whole else {}), [a_node(f"n{node}") for node in range(8)], pods
