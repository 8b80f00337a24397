"""What a year leaves behind in the database, for `bench.store.report`."""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Engine, insert

from rebalancer.model.reason import BlockedReason, MissReason, Reason
from rebalancer.model.records.effect import (
    Assessment,
    ChangeBreakdown,
    DayRow,
    HotEpisode,
    Outcome,
    PodBefore,
    PoolHour,
    Step,
)
from rebalancer.store import SqlEffect
from rebalancer.store.db.engine import write
from rebalancer.store.db.tables import CYCLES, EVICTIONS, FORECASTS

POOLS = 10
PER_EPISODE = 3
HISTORY_DAYS, DETAIL_DAYS, FORECAST_DAYS = 400, 30, 35
PODS_ON_A_NODE, SERVICES = 30, 400

CLUSTER, STRATEGY = "bench", "LowNodeUtilization"
TRIGGERS = ("periodic", "alert", "forecast")
DAY, HOUR = 86_400.0, 3600.0
TODAY = 20_700  # days since the epoch
NOW = TODAY * DAY
AT_ONCE = 10_000


def pool_of(node: int) -> str:
    """Nodes are dealt to the pools in turn."""
    return f"pool-{node % POOLS}"


def a_day(day: int, pool: int, strategy: str, trigger: str) -> DayRow:
    """A day's counts of one pool and trigger; without one, of what was missed."""
    reasons = {f"discovery/{miss}": 1 for miss in list(MissReason)[:3]} if not trigger else {}
    if trigger:
        reasons |= {f"eviction/{BlockedReason.GUARDS}": 2, f"eviction/{BlockedReason.LIMITS}": 1}
        reasons |= {f"effect/{outcome}": 1 for outcome in list(Outcome)[:5]}
    return DayRow(
        cluster=CLUSTER,
        pool=f"pool-{pool}",
        strategy=strategy,
        trigger=trigger,
        day=day,
        hot=3,
        discovered=3 if trigger else 0,
        evicted_from=2,
        cooled=1,
        assessed=2,
        evictions=7,
        relief_planned=6.5,
        relief_measured=6.0,
        hot_node_minutes=90.0,
        reasons=reasons,
    )


def an_hour(hour: int, pool: int, nodes: int, dice: random.Random) -> PoolHour:
    """One hour of one pool."""
    return PoolHour(
        pool=f"pool-{pool}",
        hour=hour,
        nodes=nodes // POOLS,
        hot_nodes=dice.random() * 4,
        hot_node_minutes=dice.random() * 240,
        cpu_share=0.4 + dice.random() / 5,
        requested_share=0.7,
        share_stddev=0.1 + dice.random() / 10,
        highest_share=0.8 + dice.random() / 5,
        new_pods=dice.randrange(100),
        new_pods_over_target=dice.randrange(10),
    )


def an_episode(number: int, nodes: int, dice: random.Random) -> HotEpisode:
    """One of the last days'; a third was missed, a third of the others kept all its pods."""
    node, start = dice.randrange(nodes), NOW - dice.random() * DETAIL_DAYS * DAY
    kind = number % 3
    return HotEpisode(
        node=f"node-{node:05d}",
        pool=pool_of(node),
        started_at=start,
        ended_at=start + 600 + dice.random() * 7200,
        peak_share=0.97,
        threshold=0.85,
        discovered_at=None if kind == 0 else start + 300,
        discovery_trigger="" if kind == 0 else TRIGGERS[number % 2],
        strategy="" if kind == 0 else STRATEGY,
        evictions=PER_EPISODE if kind == 2 else 0,
        measured_peak_share=0.93,
        miss_reason=list(MissReason)[number % len(MissReason)] if kind == 0 else None,
        blocked_reason=list(BlockedReason)[number % len(BlockedReason)] if kind == 1 else None,
        codes={Reason.LOCAL_VOLUME: 4, Reason.TOO_YOUNG: 2} if kind == 1 else None,
        detail="found 5m after it became hot, 3 evictions" if kind == 2 else "nothing evicted: guards protect its pods",
        cooled=number % 2 == 0 if kind == 2 else None,
    )


def some_assessments(number: int, cycle: str, node: int, last_eviction_at: float) -> Iterator[Assessment]:
    """All three of one cycle and node, made."""
    for step, after in ((Step.SETTLED, 900.0), (Step.HOUR, HOUR), (Step.DAY, DAY)):
        yield Assessment(
            cycle=cycle,
            node=f"node-{node:05d}",
            pool=pool_of(node),
            strategy=STRATEGY,
            trigger=TRIGGERS[number % 3],
            step=step,
            last_eviction_at=last_eviction_at,
            due_at=last_eviction_at + after,
            before_share=0.92,
            planned_share=0.68,
            target=0.7,
            high=0.8,
            capacity=16_000.0,
            pods=tuple(
                PodBefore(
                    uid=f"{number:08x}-{pod:04d}-4000-8000-000000000000",
                    pod=f"shop/service-{pod}-{number}",
                    amount=500.0,
                    evicted=pod < PER_EPISODE,
                )
                for pod in range(PODS_ON_A_NODE)
            ),
            assessed_at=last_eviction_at + after,
            after_share=0.66,
            breakdown=ChangeBreakdown(
                before=14_720.0,
                after=10_560.0,
                evicted=4_000.0,
                departed=500.0,
                arrived=300.0,
                returned=0.0,
                remaining_change=40.0,
                residual=0.0,
            ),
            outcome=list(Outcome)[number % 4],
            detail="from 92 % to 66 %, target 70 %",
        )


def cycles_and_evictions(nodes: int, a_day: int, dice: random.Random) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """(cycle's row, its evictions' rows): as many cycles a day as make up the evictions."""
    number = 0
    for day in range(TODAY - HISTORY_DAYS, TODAY):
        for turn in range(a_day // PER_EPISODE):
            number += 1
            at, node = (day + turn * PER_EPISODE / a_day) * DAY, dice.randrange(nodes)
            cycle = {
                "id": f"{number:032x}",
                "cluster": CLUSTER,
                "trigger": TRIGGERS[number % 3],
                "dry_run": False,
                "started_at": at,
                "finished_at": at + 60,
                "version": "0",
                "notes": [],
            }
            services = [f"shop/service-{dice.randrange(SERVICES)}" for _ in range(PER_EPISODE)]
            yield cycle, [an_eviction(cycle, node, service, at) for service in services]


def an_eviction(cycle: dict[str, Any], node: int, service: str, at: float) -> dict[str, Any]:
    """One eviction's row."""
    return {
        "cycle": cycle["id"],
        "cluster": CLUSTER,
        "pool": pool_of(node),
        "node": f"node-{node:05d}",
        "namespace": "shop",
        "pod": f"{service}-5d8f9c7b6-abcde",
        "uid": cycle["id"],
        "service": service,
        "service_identity": service,
        "service_kind": "Deployment",
        "strategy": STRATEGY,
        "cpu_millicores": 500.0,
        "target_nodes": [{"node": "node-00001", "probability": 1.0}],
        "reason": "relieves the node of 3% cpu",
        "outcome": "evicted",
        "detail": "",
        "dry_run": False,
        "planned_at": at + 30,
        "answered_at": at + 30.1,
        "replaced_at": at + 60,
    }


def a_forecast(node: int, day: int, dice: random.Random) -> dict[str, Any]:
    """One day's row, judged."""
    at, actual = day * DAY, 8_000 + dice.random() * 4_000
    return {
        "cluster": CLUSTER,
        "kind": "daily",
        "node": f"node-{node:05d}",
        "day": day,
        "pool": pool_of(node),
        "made_at": at + 60,
        "until": at + 60 + DAY,
        "predictor": "combined",
        "peak_millicores": 11_000.0,
        "peak_at": at + 36_000,
        "margin_millicores": 600.0,
        "capacity_millicores": 16_000.0,
        "high": 0.7,
        "days_used": 8,
        "confidence": 0.9,
        "pods": [],
        "evaluated_at": at + 2 * DAY,
        "actual_p95_millicores": actual,
        "actual_peak_millicores": actual * 1.05,
        "actual_peak_at": at + 37_000,
        "departed_peak_share": 0.1,
        "counterfactual_peak_millicores": actual,
    }


def fill(engine: Engine, nodes: int, evictions_a_day: int) -> None:
    """Write the year."""
    dice = random.Random(7)
    effect = SqlEffect(engine=engine, cluster=CLUSTER)
    pools = range(min(POOLS, nodes))
    for first in range(TODAY - HISTORY_DAYS, TODAY, 40):
        span = range(first, first + 40)
        keys = [("", ""), *((STRATEGY, trigger) for trigger in TRIGGERS)]
        effect.roll_up([a_day(day, pool, *key) for day in span for pool in pools for key in keys])
        hours = [an_hour(hour, pool, nodes, dice) for hour in range(first * 24, span.stop * 24) for pool in pools]
        effect.put_hours(hours, read_until=NOW)
    acted = evictions_a_day // PER_EPISODE
    effect.put_episodes([an_episode(number, nodes, dice) for number in range(3 * acted * DETAIL_DAYS)])
    everything = cycles_and_evictions(nodes, evictions_a_day, dice)
    while some := list(islice(everything, AT_ONCE // PER_EPISODE)):
        cycles, evictions = [cycle for cycle, _ in some], [row for _, rows in some for row in rows]
        write(engine, lambda connection, rows=cycles: connection.execute(insert(CYCLES), rows))  # type: ignore[misc]
        write(engine, lambda connection, rows=evictions: connection.execute(insert(EVICTIONS), rows))  # type: ignore[misc]
        late = [each for each in some if each[0]["started_at"] >= NOW - DETAIL_DAYS * DAY]
        assessed = [
            made
            for number, (cycle, rows) in enumerate(late)
            for made in some_assessments(number, cycle["id"], int(rows[0]["node"][5:]), rows[0]["planned_at"])
        ]
        effect.expect(assessed)
        effect.made(assessed)
    for day in range(TODAY - FORECAST_DAYS, TODAY):
        rows = [a_forecast(node, day, dice) for node in range(nodes)]
        write(engine, lambda connection, rows=rows: connection.execute(insert(FORECASTS), rows))  # type: ignore[misc]
