"""The door: limits at every scope, memory, pauses and the brake, as a plan sees them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.constraints.moves.windows import CHANGE_WINDOW
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.model.decisions.limits import (
    EVERY_NODE,
    EvictionBackoff,
    LedgerEntry,
    Pause,
    RemoteReadiness,
    ReplacementLineage,
    Scope,
)
from rebalancer.model.reason import Reason, Refusal
from tests.builders import NOW, APod, a_door, a_node, a_pod, a_policy, changed, cluster, pods_in, replicas, some_limits
from tests.builders import an_eviction as eviction_of

NODES = [a_node("n1"), a_node("n2"), a_node("n3")]
NO_MEMORY = {"cooldowns": {"node": "0s", "service": "0s", "serviceNode": "0s", "poolAfterScaleUp": "0s"}}


def a_move(
    pod: int = 0, *, service: str = "web", node: str = "n1", landing: str = "n2", pull: float = 0.0, to: str = "general"
) -> Eviction:
    targets = (TargetNode(landing, 1.0),) if landing else ()
    of_pod = {"pod": f"{service}-{pod}", "uid": f"uid-{service}-{pod}", "cpu_millicores": 500.0}
    place = {"node": node, "node_index": int(node[1:]) - 1, "target_nodes": targets, "target_pool": to}
    return scoped(eviction_of(service=f"shop/{service}", pod_index=pod, pull_bytes=pull, **of_pod, **place))


def scoped(move: Eviction) -> Eviction:
    """Of a ReplicaSet, with the scopes that it counts in."""
    return SCOPING.scope(replace(move, service=replace(move.service, kind="ReplicaSet")))


def door(
    limits: dict[str, Any] | None = None,
    *,
    safety: dict[str, Any] | None = None,
    more: Sequence[APod] = (),
    **standing: Any,
) -> EvictionAdmission:
    """`more` pods besides six of web and four of api."""
    policy = a_policy(limits=limits or some_limits(), safety={**NO_MEMORY, **(safety or {})})
    pods = [*replicas("web", {"n1": 6}), *replicas("api", {"n1": 4}), *more]
    return a_door(cluster(NODES, pods), policy, LedgerState(**standing))


SCOPING = door()


def entries(scope: Scope, *seconds_ago: float, in_flight: bool = False) -> tuple[LedgerEntry, ...]:
    return tuple(LedgerEntry(scope, NOW - ago, in_flight) for ago in seconds_ago)


WEB = Scope("service", "shop/web")
NOT_READY = 10
"""Index of the pod that comes after the usual ones."""


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (some_limits(cycle=1), Reason.LIMIT_CYCLE),
        ({**some_limits(), "global": {"evictions": [{"max": 1, "per": "1h"}]}}, Reason.LIMIT_GLOBAL),
        ({**some_limits(), "cluster": {"inFlight": 1}}, Reason.LIMIT_CLUSTER),
        ({**some_limits(), "pool": {"evictions": [{"max": 1, "per": "1h"}]}}, Reason.LIMIT_POOL),
        (some_limits(node=1), Reason.LIMIT_NODE),
        ({**some_limits(), "namespace": {"inFlight": 1}}, Reason.LIMIT_NAMESPACE),
        (some_limits(service=1), Reason.LIMIT_SERVICE),
        ({**some_limits(), "replacements": {"perNode": 1}}, Reason.LIMIT_REPLACEMENTS),
    ],
)
def test_every_scope_refuses_the_second_move_when_one_is_allowed(limits: dict[str, Any], reason: Reason) -> None:
    at = door(limits)
    assert at.reserve(a_move(0)) is None
    refusal = at.reserve(a_move(1))
    assert refusal is not None
    assert refusal.code is reason
    at.cancel_reservation(a_move(0))
    assert at.reserve(a_move(1)) is None


def test_the_refusal_names_the_limit_with_its_numbers_and_the_next_time_and_the_window_slides() -> None:
    limits = {**some_limits(), "service": {"evictions": [{"max": 2, "per": "1h"}], "inFlight": 9}}
    refusal = door(limits, entries=entries(WEB, 600, 1800)).refuses(a_move())
    assert refusal is not None
    assert refusal.code is Reason.LIMIT_SERVICE
    # the older one leaves the window in half an hour
    assert refusal.message == "service shop/web: 2 of 2 in 1h, next at 2027-01-15 08:30 UTC"

    assert door(limits, entries=entries(WEB, 600, 3601)).refuses(a_move()) is None
    assert door(limits, entries=entries(WEB, 600, 3599)).refuses(a_move()) is not None


@pytest.mark.parametrize(
    ("percent", "at_least", "allowed"), [("50%", 0, 3), ("10%", 0, 0), ("10%", 1, 1), ("100%", 0, 6)]
)
def test_a_percentage_is_of_the_wanted_replicas_rounded_down(percent: str, at_least: int, allowed: int) -> None:
    rate = {"max": percent, "per": "1h", **({"atLeast": at_least} if at_least else {})}
    at = door({**some_limits(), "service": {"evictions": [rate], "inFlight": 99}})
    assert sum(at.reserve(a_move(pod)) is None for pod in range(6)) == allowed


def test_a_move_that_is_nearly_due_gets_its_time_and_a_later_one_is_refused() -> None:
    limits = {**some_limits(), "cluster": {"spacing": "30s", "inFlight": 99}}
    at = door(limits)
    assert at.due(a_move(0)) == NOW
    assert at.reserve(a_move(0)) is None
    assert at.due(a_move(1)) == NOW + 30
    assert at.reserve(a_move(1)) is None
    assert at.due(a_move(2)) == NOW + 60
    assert at.reserve(a_move(2)) is None
    refusal = at.refuses(a_move(3))  # due in 90 s, and the cycle waits for a minute at most
    assert refusal is not None
    assert refusal.code is Reason.LIMIT_CLUSTER
    assert "at least 30s between two" in refusal.message


def test_what_has_landed_is_in_flight_no_more_but_counts_in_its_window() -> None:
    landed = open_eviction()
    in_flight = {**some_limits(service=1), "service": {"inFlight": 1}}
    held = entries(WEB, 60, in_flight=True)
    assert door(in_flight, entries=held, open_evictions=(landed,)).refuses(a_move()) is not None
    assert door(in_flight, entries=held, landed=(landed,)).refuses(a_move()) is None
    rate = {**some_limits(), "service": {"evictions": [{"max": 1, "per": "1h"}], "inFlight": 9}}
    assert door(rate, entries=held, landed=(landed,)).refuses(a_move()) is not None


def open_eviction(
    *, service: str = "shop/web", late: bool = False, pool: str = "general", record: int = 1, pull: float = 0.0
) -> Eviction:
    state = {"record": record, "pod": "web-9", "uid": "uid-gone", "pool": pool, "late": late, "pull_bytes": pull}
    wanted = {"planned_at": NOW - 60, "deadline_at": NOW + 60, "ready_before": 6, "desired_before": 6}
    return scoped(eviction_of(service=service, target_pool="general", **state, **wanted))


@pytest.mark.parametrize(
    ("cooldowns", "scope", "reason"),
    [
        ({"node": "10m"}, Scope("node", "test/n1"), Reason.COOLDOWN_NODE),
        ({"service": "10m"}, WEB, Reason.COOLDOWN_SERVICE),
        ({"serviceNode": "10m"}, Scope("serviceNode", "test/n1/shop/web"), Reason.COOLDOWN_SERVICE_NODE),
    ],
)
def test_cooldowns_hold_from_earlier_cycles_and_not_within_one(
    cooldowns: dict[str, str], scope: Scope, reason: Reason
) -> None:
    safety = {"cooldowns": {**NO_MEMORY["cooldowns"], **cooldowns}}
    refusal = door(safety=safety, entries=entries(scope, 300)).refuses(a_move())
    assert refusal is not None
    assert refusal.code is reason
    assert door(safety=safety, entries=entries(scope, 601)).refuses(a_move()) is None
    same_cycle = door(safety=safety)
    assert same_cycle.reserve(a_move(0)) is None
    assert same_cycle.reserve(a_move(1)) is None


def descent(*uids: str, **moved: float) -> ReplacementLineage:
    """`moved`: strategy -> how many seconds ago."""
    return ReplacementLineage(frozenset(uids), {strategy: NOW - ago for strategy, ago in moved.items()})


@pytest.mark.parametrize(
    ("descents", "wait"),
    [
        ({}, None),
        ({"uid-web-0": descent("a", Other=60)}, None),
        ({"uid-web-1": descent("a", Mine=60)}, None),
        ({"uid-web-0": descent("a", Mine=60)}, 3600 - 60),
        ({"uid-web-0": descent("a", Mine=3600)}, None),
        # another strategy moved it in between: whose doing it is doesn't matter
        ({"uid-web-0": descent("a", Other=60), "a": descent("b", Mine=300)}, 3600 - 300),
        # each time longer
        ({"uid-web-0": descent("a", Mine=3700), "a": descent("b", Mine=9000)}, 2 * 3600 - 3700),
        # several that were on their way at once: any of them may have been the predecessor
        ({"uid-web-0": descent("a", "b", Other=60), "b": descent("c", Mine=100)}, 3600 - 100),
        # two of one group, and a circle that no truth would have
        ({"uid-web-0": descent("a", "uid-web-0", Mine=60), "a": descent("a", "uid-web-0", Mine=60)}, 3600 - 60),
    ],
)
def test_a_strategy_does_not_do_the_same_to_a_pods_successor_for_a_while(
    descents: dict[str, ReplacementLineage], wait: float | None
) -> None:
    move = changed(a_move(), strategy="Mine", once=True)
    refusal = door(lineages=descents).refuses(move)
    if wait is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.code, refusal.next_at) == (Reason.REPEATED_EVICTION, NOW + wait)
    assert door(lineages=descents).refuses(changed(move, once=False)) is None


def backoff(**fields: Any) -> EvictionBackoff:
    """Of web on n1 for another minute."""
    given = {"service_identity": "shop/web", "node": "n1", "until": NOW + 60, "count": 2, "reason": "it came back"}
    return EvictionBackoff(**{**given, **fields})


def test_give_up_memory_holds_until_its_time() -> None:
    refusal = door(backoffs=(backoff(),)).refuses(a_move())
    assert refusal is not None
    assert refusal.code is Reason.EVICTION_BACKOFF
    assert "it came back (2 times)" in refusal.message
    assert door(backoffs=(backoff(until=NOW - 1),)).refuses(a_move()) is None


@pytest.mark.parametrize(
    ("of", "for_", "held"),
    [("memory", "memory", True), ("memory", "cpu", False), ("", "memory", True), ("memory", "", True)],
)
def test_a_backoff_by_a_resource_holds_evictions_for_it_and_for_other_goals(of: str, for_: str, held: bool) -> None:
    refusal = door(backoffs=(backoff(resource=of),)).refuses(replace(a_move(), resource=for_))
    assert (refusal is not None) is held


def test_a_webhooks_backoff_holds_on_every_node_for_its_service_only() -> None:
    memory = backoff(node=EVERY_NODE, count=1, reason="not now")
    for refusal in (door(backoffs=(memory,)).refuses(a_move()), _after(memory)):
        assert refusal is not None
        assert (refusal.code, refusal.next_at) == (Reason.WEBHOOK_BACKOFF, NOW + 60)
        assert "not now (once)" in refusal.message
    other = replace(memory, service_identity="shop/api")
    assert door(backoffs=(other,)).refuses(a_move()) is None


def _after(backoff: EvictionBackoff) -> Refusal | None:
    """The refusal of a move after the backoff began in the same cycle."""
    admission = door()
    assert admission.refuses(a_move()) is None
    admission.back_off(backoff)
    return admission.refuses(a_move())


@pytest.mark.parametrize(
    "scope",
    [Scope("global", ""), Scope("cluster", "test"), Scope("pool", "test/general"), Scope("service", "shop/web")],
)
def test_a_pause_closes_its_scope(scope: Scope) -> None:
    pause = Pause(scope=scope, reason="release day", created_by="ana", until=NOW + 60)
    refusal = door(pauses=(pause,)).refuses(a_move())
    assert refusal is not None
    assert refusal.code is Reason.PAUSED
    assert "release day" in refusal.message
    assert door(pauses=(Pause(scope=scope, reason="r", created_by="ana", until=NOW - 1),)).refuses(a_move()) is None


def test_late_replacements_brake_service_then_pool_then_cluster() -> None:
    def code(*late: Eviction) -> Reason | None:
        refusal = door(open_evictions=late).refuses(a_move())
        return refusal.code if refusal else None

    other = open_eviction(service="shop/other", late=True)
    assert code(open_eviction(service="shop/other")) is None
    assert code(other) is None
    assert code(open_eviction(late=True)) is Reason.REPLACEMENT_LATE
    assert code(other, open_eviction(service="shop/third", late=True, record=2)) is Reason.CIRCUIT_BREAKER_OPEN
    far = [open_eviction(service=f"shop/{name}", late=True, pool=name, record=at) for at, name in enumerate("abc")]
    assert code(*far[:2]) is None
    assert code(*far) is Reason.CIRCUIT_BREAKER_OPEN


def test_a_service_is_not_moved_in_two_clusters_within_the_separation() -> None:
    refusal = door(elsewhere={"shop/web": NOW - 60}).refuses(a_move())
    assert refusal is not None
    assert refusal.code is Reason.MOVED_IN_OTHER_CLUSTER
    assert door(elsewhere={"shop/web": NOW - 601}).refuses(a_move()) is None


def test_the_share_of_ready_replicas_is_kept_over_all_clusters() -> None:
    safety = {"crossCluster": {"minReadyShare": 75}}
    # 6 here, all ready; 6 wanted elsewhere
    enough = {"shop/web": RemoteReadiness(ready=4, desired=6, clusters=1)}
    at = door(safety=safety, remote_readiness=enough)
    assert at.reserve(a_move(0)) is None  # 9 of 12 stay
    refusal = at.reserve(a_move(1))
    assert refusal is not None
    assert refusal.code is Reason.READY_SHARE_TOO_LOW
    assert "8 of 12 would stay ready" in refusal.message


def test_a_pod_that_is_not_ready_takes_nothing_from_the_share_of_ready_replicas() -> None:
    enough = {"shop/web": RemoteReadiness(ready=4, desired=6, clusters=1)}
    more = [a_pod("web-10", "n1", owner="web", ready=False)]
    at = door(safety={"crossCluster": {"minReadyShare": 76}}, more=more, remote_readiness=enough)
    assert at.reserve(a_move(NOT_READY)) is None  # 10 of 13 are 76.9%
    refusal = at.reserve(a_move(0))
    assert refusal is not None
    assert "9 of 13 would stay ready" in refusal.message
    at.cancel_reservation(a_move(NOT_READY))
    assert at.reserve(a_move(NOT_READY)) is None
    too_few = door(safety={"crossCluster": {"minReadyShare": 90}}, more=more, remote_readiness=enough)
    assert too_few.reserve(a_move(NOT_READY)) is None


def test_only_the_windows_are_left_out_where_it_is_asked_what_protects_a_pod() -> None:
    policy = a_policy(
        windows={"cluster": [{"kind": "Deny", "schedule": "* * * * *", "duration": "1m"}]},
        lists={"deny": [{"services": ["shop/listed"]}]},
        serviceLevels={"default": "gold", "levels": [{"name": "gold"}]},
        safety={"crossCluster": {"placedBy": {"matchLabels": {"karmada": "yes"}}}},
    )
    owners: dict[str, dict[str, Any]] = {
        "web": {},
        "own": {"template": {"annotations": {CHANGE_WINDOW: "allow never"}}},
        "guarded": {"template": {"annotations": {"rebalancer.dev/evict": "false"}}},
        "listed": {},
        "unknown": {"labels": {"rebalancer.dev/level": "golden"}},
        "elsewhere": {"labels": {"karmada": "yes"}},
    }
    pods = [pod for name, fields in owners.items() for pod in replicas(name, {"n1": 2}, **fields)]
    snapshot = cluster(NODES, pods)
    at = a_door(snapshot, policy)

    def codes(name: str) -> list[Reason | None]:
        pod = next(each for each in pods_in(snapshot) if each.name == f"{name}-0")
        return [
            None if refusal is None else refusal.code
            for refusal in (at.protected(pod, pool="general"), at.stays(pod, pool="general"))
        ]

    assert codes("web") == [None, Reason.WINDOW_CLOSED]
    assert codes("own") == [None, Reason.WINDOW_INVALID]
    assert codes("guarded") == [Reason.OPTED_OUT, Reason.OPTED_OUT]
    assert codes("listed") == [Reason.DENY_LISTED, Reason.DENY_LISTED]
    assert codes("unknown") == [Reason.UNKNOWN_LEVEL, Reason.UNKNOWN_LEVEL]
    assert codes("elsewhere") == [Reason.CROSS_CLUSTER, Reason.CROSS_CLUSTER]


def test_a_limit_of_zero_closes() -> None:
    refusal = door({**some_limits(), "cluster": {"evictions": [{"max": 0, "per": "1h"}]}}).refuses(a_move())
    assert refusal is not None
    assert refusal.code is Reason.LIMIT_CLUSTER
