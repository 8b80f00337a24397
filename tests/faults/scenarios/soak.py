"""The soak, hours with a random fault a minute, and failovers, each over an eviction where there is one."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from rebalancer.lab.faults import Webhook
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS
from tests.faults.fakes import Killed, Point
from tests.faults.oracles import Call, disagreements, fullest, limited, most_out_at_once, out_of_term, rows_of
from tests.faults.scenarios.fleet import (
    MOST_CLUSTER,
    MOST_GLOBAL,
    MOST_NODE,
    SPACING_SECONDS,
    WINDOW_SECONDS,
    Cluster,
    Fleet,
    Replica,
)
from tests.stories.scenarios.stage import START

FAULT_SECONDS = 40.0
FAILOVER_SECONDS = 40.0
"""Long enough for another replica to lead and evict."""
LONG_SECONDS = 2.0 * CALL_GRACE_SECONDS
SETTLE_SECONDS = 240.0
"""At the end, without faults: what is unknown is reconciled after a minute."""

LIMITS = (
    ("global", MOST_GLOBAL, WINDOW_SECONDS),
    ("cluster", MOST_CLUSTER, WINDOW_SECONDS),
    ("cluster", 1, SPACING_SECONDS),
    ("node", MOST_NODE, WINDOW_SECONDS),
)
KUBERNETES: tuple[str, ...] = ("kubernetes",)
SOURCES: Mapping[str, dict[str, Any]] = {
    "API server: errors": {"sides": KUBERNETES, "error_share": 0.4},
    "API server: throttled": {"sides": KUBERNETES, "throttled_share": 0.4, "retry_after_seconds": 3600},
    "API server: cut": {"sides": KUBERNETES, "cut_share": 0.4},
    "API server: garbage": {"sides": KUBERNETES, "garbage_share": 0.4},
    "API server: continue expired": {"expire_continue": True},
    "no right to evict": {"denied": (("create", "pods/eviction"),)},
    "no right to the Lease": {"denied": (("update", "leases"),)},
    "no right to list pods": {"denied": (("list", "pods"),)},
    "webhook refuses": {"webhooks": (Webhook(pods="shop/web-*"), Webhook(pods="shop/api-*", code=429))},
    "webhook fails": {"webhooks": (Webhook(pods="shop/*", fails=True),)},
    "Prometheus: 503": {"prometheus_down": "error"},
    "Prometheus: closed": {"prometheus_down": "closed"},
    "Prometheus: garbage": {"sides": ("prometheus",), "garbage_share": 0.5},
    "Prometheus: stale": {"stale": ("*",)},
    "Prometheus: missing": {"missing": ("*",)},
    "Prometheus: NaN": {"nan": ("*",)},
    "Prometheus: partial": {"partial": "a store did not answer"},
}


# ---- what happens to a replica


def killed(_replica: Replica) -> None:
    raise Killed


def stopped(replica: Replica, seconds: float = FAILOVER_SECONDS) -> None:
    """SIGSTOP, and SIGCONT when another one leads."""
    replica.stopped = True
    try:
        replica.wait(seconds)
    finally:
        replica.stopped = False


def stopped_for_long(replica: Replica) -> None:
    """Until the other one has refunded what was reserved."""
    stopped(replica, LONG_SECONDS)


def cut_off(replica: Replica) -> None:
    """From the API server until it stands by: requests that have left arrive, and no answers come back."""
    replica.client.cut_off = True
    replica.wait(FAILOVER_SECONDS)


def slow(replica: Replica) -> None:
    """The API server answers after the lease has run out."""
    cut_off(replica)
    replica.client.cut_off = False


FAILOVERS: Mapping[str, Callable[[Replica], None]] = {
    "killed": killed,
    "stopped": stopped,
    "stopped for long": stopped_for_long,
    "cut off": cut_off,
    "slow": slow,
}


def interrupt(cluster: Cluster, kind: str, point: Point) -> None:
    """At the leader's next eviction."""
    if (leader := cluster.leader()) is not None:
        leader.interruption = (point, FAILOVERS[kind])


def answered_by_a_page(cluster: Cluster, status: int, *, instead: bool) -> None:
    if (leader := cluster.leader()) is not None:
        leader.client.page, leader.client.page_instead = status, instead  # type: ignore[assignment]


def restart(cluster: Cluster) -> None:
    for replica in cluster.replicas:
        if not replica.busy:
            replica.end()


def set_clocks(cluster: Cluster, offset: float) -> None:
    for replica in cluster.replicas:
        replica.clock.offset = offset


def lose(fleet: Fleet, what: str) -> None:
    fleet.lose = what


def database_away(fleet: Fleet) -> None:
    if fleet.proxy is None:
        fleet.lose = "commit"
    else:
        fleet.proxy.cut()


def all_faults() -> dict[str, Callable[[Fleet, Cluster], object]]:
    """Name -> what begins it."""
    out: dict[str, Callable[[Fleet, Cluster], object]] = {}
    for name, fields in SOURCES.items():
        out[name] = lambda _, cluster, fields=fields: cluster.lab.faults.set(**fields)
    for kind, point in product(FAILOVERS, Point):
        out[f"replica {kind}: {point}"] = lambda _, cluster, kind=kind, point=point: interrupt(cluster, kind, point)
    for status, instead in ((200, True), (500, True), (500, False)):
        name = f"page {status}, {'not ' if instead else ''}carried out"
        out[name] = lambda _, cluster, page=status, instead=instead: answered_by_a_page(cluster, page, instead=instead)
    for offset in (-3600.0, -600.0, 600.0, 3600.0):
        out[f"clock {offset:+g} s"] = lambda _, cluster, offset=offset: set_clocks(cluster, offset)
    out["replicas restarted"] = lambda _, cluster: restart(cluster)
    out["database away"] = lambda fleet, _: database_away(fleet)
    out["database: commit lost"] = lambda fleet, _: lose(fleet, "commit")
    out["database: answer of a commit lost"] = lambda fleet, _: lose(fleet, "answer")
    return out


def end_faults(fleet: Fleet) -> None:
    for cluster in fleet.clusters:
        cluster.lab.faults.clear()
        set_clocks(cluster, 0.0)
    if fleet.proxy is not None:
        fleet.proxy.mend()


# ---- the two runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run showed; `wrong` is empty where everything held."""

    counts: dict[str, int]
    wrong: tuple[str, ...]
    memory_mib: tuple[float, ...] = field(default=())


def memory_mib() -> float:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def soak(fleet: Fleet, *, minutes: int, seed: int, each_hour: Callable[[Verdict], None] = lambda _: None) -> Verdict:
    """A random fault in each cluster every minute; it lasts 40 s, or until it has happened."""
    draw, faults = random.Random(seed), all_faults()
    memory: list[float] = []
    fleet.advance(60.0)
    for minute in range(minutes):
        for cluster in fleet.clusters:
            if minute % 2 == 0:
                cluster.heat()
            name = draw.choice(sorted(faults))
            fleet.counts["faults"] += 1
            fleet.seen.add(name)
            faults[name](fleet, cluster)
        fleet.advance(FAULT_SECONDS)
        end_faults(fleet)
        fleet.advance(60.0 - FAULT_SECONDS)
        fleet.calls()
        if minute % 60 == 59:
            memory.append(memory_mib())
            wrong = tuple(passed_limits(fleet, fleet.calls()))
            each_hour(Verdict(counts=counted(fleet), wrong=wrong, memory_mib=tuple(memory)))
    calls, found = settled(fleet)
    found += passed_limits(fleet, calls)
    return Verdict(counts=counted(fleet), wrong=tuple(found), memory_mib=tuple(memory))


def failovers(fleet: Fleet, *, number: int, seed: int, each_hundred: Callable[[int], None] = lambda _: None) -> Verdict:
    """Leaders are lost in all four ways, at every point of an eviction."""
    draw = random.Random(seed)
    (cluster,) = fleet.clusters
    fleet.advance(60.0)
    for done in range(number):
        kind, point = draw.choice(sorted(FAILOVERS)), draw.choice(list(Point))
        lost, term = None, 0
        for attempt in range(60):
            leader = cluster.leader()
            if lost is None and leader is not None:
                lost, term = leader, leader.term
                interrupt(cluster, kind, point)
            # another replica, or the same process in a later term
            if leader is not None and (leader is not lost or leader.term != term):
                fleet.counts["led again"] += leader is lost
                break
            if attempt == 30 and lost is not None and lost.alive and lost.interruption is not None and not lost.busy:
                fleet.counts["failovers without an eviction"] += 1
                lost.end()
            fleet.advance(5.0)
        else:
            fleet.wrong.append(f"failover {done} ({kind}, {point}): no new leader within 300 s")
        fleet.counts["failovers"] += 1
        fleet.seen.add(f"{kind}: {point}")
        if done % 100 == 99:
            fleet.calls()
            each_hundred(done + 1)
    _, wrong = settled(fleet)
    return Verdict(counts=counted(fleet), wrong=tuple(wrong))


def passed_limits(fleet: Fleet, calls: list[Call]) -> list[str]:
    rows, late = rows_of(fleet.direct_url), fleet.late()
    wrong = []
    fleet.counts["calls under way until after their refund"] = len(calls) - len(limited(calls, late, rows))
    for scope, most, seconds in LIMITS:
        found = fullest(calls, scope, seconds, late, rows)
        fleet.counts[f"fullest {seconds:g} s of a {scope} (limit {most})"] = len(found)
        if len(found) > most:
            wrong.append(f"limit of {scope}: {len(found)} evictions in {seconds:g} s, allowed are {most}: {found}")
    if (out := most_out_at_once(fleet.changes())) > 1:
        wrong.append(f"limit of a service: {out} pods without a Ready replacement at once")
    return wrong


def settled(fleet: Fleet) -> tuple[list[Call], list[str]]:
    """(evictions, what is wrong with them), when no fault is left."""
    for cluster in fleet.clusters:
        for replica in cluster.replicas:
            replica.interruption = None
            replica.client.page = 0
    fleet.lose = ""
    fleet.advance(SETTLE_SECONDS)
    calls, late = fleet.calls(), fleet.late()
    wrong = list(fleet.wrong)
    wrong += [f"{cluster.name}: no replica leads at the end" for cluster in fleet.clusters if cluster.leader() is None]
    wrong += disagreements(calls, rows_of(fleet.direct_url), late, fleet.lost())
    stale = out_of_term(calls)
    fleet.counts["calls under way at a failover, carried out and counted"] = len(stale)
    wrong += [f"evicted in a term that was over: {each}" for each in stale if (each.cluster, each.uid) not in late]
    if uncertain := fleet.counts["calls without a certain reservation"]:
        wrong.append(f"{uncertain} calls without a certain reservation")
    return calls, wrong


def counted(fleet: Fleet) -> dict[str, int]:
    return {
        "simulated minutes": round((fleet.now() - START) / 60),
        "evictions": len(fleet.calls()),
        "different faults": len(fleet.seen),
        **dict(sorted(fleet.counts.items())),
    }
