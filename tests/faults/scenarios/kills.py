"""A daemon that always finds pods to evict, killed with SIGKILL at random moments and started again.

Nothing in the daemon is changed: the moment is a time after it has begun to lead. Only what 15 s without a renewal
would do to its Lease is done at once. What happened is read from the lab's log, what was counted with SQL.
"""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, Scenario, node, scenario, workload
from tests.e2e.servers import daemon, until
from tests.faults.oracles import Call, Row, disagreements, fullest, most_out_at_once, out_of_term, rows_of
from tests.programs.cli import policy_for
from tests.stories.readers import service_of

LONGEST_LIFE_SECONDS = 4.0
"""From the beginning of leading to the kill."""
ANSWER_SECONDS = (0.0, 0.2, 1.0)
"""How long the API server takes to answer an eviction that it has carried out."""
NODES, SERVICES, PODS = 6, 30, 3
WINDOW_SECONDS, LATE_SECONDS = 60.0, 10.0
"""Of the limits; from a reservation to its call, at most."""
MOST_CLUSTER, MOST_NODE, MOST_OUT = 40, 9, 1
MANY = 10_000
SETTLED_SECONDS = 180.0
LIMITS: dict[str, Any] = {
    "perCycle": 20,
    "cluster": {"evictions": [{"max": MOST_CLUSTER, "per": "1m"}], "inFlight": MANY},
    "node": {"evictions": [{"max": MOST_NODE, "per": "1m"}]},
    "service": {"inFlight": MOST_OUT},
    "replacements": {"perNode": MANY},
}
SAFETY: dict[str, Any] = {
    "circuitBreaker": {"lateInPool": MANY, "lateInCluster": MANY},
    "cooldowns": {
        **dict.fromkeys(("node", "service", "serviceNode", "poolAfterScaleUp", "newNode"), "0s"),
        # PodLifeTime evicts the replacements of its own evictions
        "backoff": {"initial": "1s", "factor": 1.0, "max": "1s"},
    },
}
IMPATIENT = """
import runpy
from rebalancer.store.ledger import reconcile
reconcile.CALL_GRACE_SECONDS = 5.0
runpy.run_module("rebalancer", run_name="__main__", alter_sys=True)
"""
"""The program, which takes no call to be on its way for longer than 5 s."""


@dataclass(slots=True, kw_only=True)
class Kills:
    """What a number of kills has shown; `wrong` is empty where everything held."""

    kills: int = 0
    in_a_call: int = 0
    """Kills with an eviction that was reserved and had no outcome."""
    carried_out: int = 0
    """Of these: with such an eviction that the API server had carried out."""
    evictions: int = 0
    fullest: dict[str, int] = field(default_factory=dict)
    """The most evictions of a window, by scope."""
    wrong: list[str] = field(default_factory=list)


def kill_often(
    folder: Path,
    url: str,
    *,
    number: int,
    seed: int,
    impatient: bool = False,
    each: Callable[[Kills], None] = lambda _: None,
) -> Kills:
    """Kill the daemon so many times; `url` is that of a database whose schema is current. `impatient`: at the end an
    open eviction is settled after 5 s in place of 60 s."""
    draw, found, begun = random.Random(seed), Kills(), set[str]()
    with Lab.start(a_cluster(), speed=1.0) as lab:
        kubeconfig, policy = lab.write_kubeconfig(folder / "config"), _policy(lab)
        while found.kills < number:
            lab.faults.set(eviction_delay_seconds=draw.choice(ANSWER_SECONDS))
            with daemon(folder, policy, kubeconfig, name=f"killed-{found.kills}", database=url) as running:
                until(lambda running=running: running.events("leading"), running.tail)  # type: ignore[misc]
                time.sleep(draw.uniform(0.0, LONGEST_LIFE_SECONDS))
                running.signal(signal.SIGKILL)
                if (code := running.ended()) != -signal.SIGKILL:
                    found.wrong.append(f"life {found.kills} ended with {code} before the kill: {running.tail()}")
            lab.faults.clear()
            _end_lease(lab)
            found.kills += 1
            rows, calls = rows_of(url), calls_of(lab)
            open_now = {row.uid for row in rows if row.outcome == "planned"} - begun
            begun |= open_now
            found.in_a_call += bool(open_now)
            found.carried_out += bool(open_now & {call.uid for call in calls})
            found.wrong += forgotten(calls, rows)
            each(found)
        left = {row.uid for row in rows_of(url) if row.outcome in ("planned", "unknown")}
        program = IMPATIENT if impatient else ""
        with daemon(folder, policy, kubeconfig, name="last", database=url, program=program) as running:
            until(lambda: not left & _open(url), running.tail, SETTLED_SECONDS)
            running.signal(signal.SIGTERM)
            if code := running.ended():
                found.wrong.append(f"the last one ended with {code}: {running.tail()}")
        calls, rows = calls_of(lab), rows_of(url)
        found.evictions = len(calls)
        found.wrong += disagreements(calls, rows)
        found.wrong += [f"evicted in a term that was over: {call}" for call in out_of_term(calls)]
        found.wrong += _over_limits(lab, calls, rows, found.fullest)
    return found


def a_cluster() -> Scenario:
    """Every pod is old enough to be evicted, and so is its replacement after a minute."""
    names = [f"n{number}" for number in range(NODES)]
    return scenario(
        nodes=[node(name, cpu=16) for name in names],
        workloads=[
            workload(
                f"s{number:02}",
                namespace="shop",
                place={names[(number + at) % NODES]: 1 for at in range(PODS)},
                cpu_request="100m",
                memory_request="64Mi",
                cpu=0.05,
            )
            for number in range(SERVICES)
        ],
        start_seconds=0.5,
        stop_seconds=0.5,
    )


def _policy(lab: Lab) -> dict[str, Any]:
    return policy_for(
        lab.prometheus_url,
        strategies=[{"name": "PodLifeTime", "interval": "10s", "args": {"maxPodLifeTime": "1m"}}],
        guards={"minAge": "0s"},
        limits=LIMITS,
        safety=SAFETY,
    )


def _end_lease(lab: Lab) -> None:
    """What 15 s without a renewal would do. Its transitions stay: the next holder's term is a newer one."""
    store = lab.cluster.store
    with lab.cluster.lock:
        for lease in store.sorted("leases"):
            if lease["metadata"]["name"] == "rebalancer":
                store.change("leases", lease, lambda new: new["spec"].update(holderIdentity=""))


def calls_of(lab: Lab) -> list[Call]:
    """The evictions that the lab has carried out."""
    return [
        Call(
            cluster="test",
            at=each.at,
            uid=each.uid,
            service=service_of(each),
            node=each.node,
            term=int(each.user_agent.rpartition(" term/")[2]),
        )
        for each in lab.log.evictions(code=201)
    ]


def forgotten(calls: list[Call], rows: list[Row]) -> list[str]:
    """At any moment, also right after a kill: evictions that not exactly one row may count."""
    may = [row.uid for row in rows if row.outcome in ("evicted", "planned", "unknown")]
    return [
        f"{call.uid} was evicted, {may.count(call.uid)} rows count it" for call in calls if may.count(call.uid) != 1
    ]


def _open(url: str) -> set[str]:
    return {row.uid for row in rows_of(url) if row.outcome in ("planned", "unknown")}


def _over_limits(lab: Lab, calls: list[Call], rows: list[Row], most: dict[str, int]) -> list[str]:
    """By the times of the reservations; and by the lab's own, in windows that are shorter by what a call takes."""
    wrong, every = [], {(call.cluster, call.uid) for call in calls}
    for scope, at_most in (("cluster", MOST_CLUSTER), ("node", MOST_NODE)):
        reserved = fullest(calls, scope, WINDOW_SECONDS, every, rows)
        carried_out = fullest(calls, scope, WINDOW_SECONDS - LATE_SECONDS, set(), rows)
        most[f"{scope} (limit {at_most})"] = len(reserved)
        for found in (reserved, carried_out):
            if len(found) > at_most:
                wrong.append(f"limit of a {scope}: {len(found)} evictions in a window, allowed are {at_most}")
    changes = [
        (each.at, service_of(each), 1 if each.event == "terminating" else -1)
        for each in lab.log.entries()
        if each.namespace == "shop" and each.event in ("terminating", "ready")
    ]
    if (out := most_out_at_once(changes)) > MOST_OUT:
        wrong.append(f"limit of a service: {out} pods without a Ready replacement at once")
    return wrong
