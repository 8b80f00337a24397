"""What a cycle writes to the ledger and reads from it: deadlines, replacements, stated limits, pruning."""

import pytest

from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.evict.reservation import expect_replacement, replacement_deadline
from rebalancer.cycle.observe.ledger_state import closed_note, load_ledger_state, longest_window
from rebalancer.cycle.observe.observation import observe
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.store.ledger.reconcile import CALL_GRACE_SECONDS
from tests.builders import a_door, a_node, a_pod, a_policy, cluster, usage_of
from tests.store.builders import CLUSTER, FakeReader, PodSeen, build_eviction
from tests.store.readers import cycle_report, raw_connection, read_rows

NODES = [a_node("n1"), a_node("n2")]
START_UP, MARGIN = 300.0, 120.0


def web(count, **fields):
    pods = [a_pod(f"web-{number}", "n1", owner="web", owner_kind="Deployment", **fields) for number in range(count)]
    owner = Owner(kind="Deployment", namespace="shop", name="web", uid="uid-web", desired=3)
    return cluster(NODES, pods, owners=[owner], listed_kinds=frozenset({"Deployment"}))


def policy(**fields):
    return a_policy(cluster=CLUSTER, **fields)


def expected(blue, *, service="web", **template):
    snapshot = web(3, template=template)
    eviction = build_eviction(service=service, pod_index=0, ready_before=0, desired_before=0)
    expect_replacement(eviction, snapshot)
    return eviction, replacement_deadline(eviction, policy(), blue.ledger, now=blue.ledger.now())


def test_the_deadline_is_the_pods_grace_period_and_the_start_up_of_the_policy(blue, clock):
    found, deadline_at = expected(blue, graceSeconds=600.0)
    assert deadline_at == clock.now() + 600 + START_UP + MARGIN
    assert (found.reserved.grace_seconds, found.reserved.ready_before, found.reserved.desired_before) == (600, 3, 3)


def test_the_deadline_is_what_its_service_usually_takes_once_that_was_seen(blue, clock):
    for number, took in enumerate((10.0, 20.0, 30.0)):
        assert expected(blue)[1] == clock.now() + 30 + START_UP + MARGIN
        eviction = blue.reserve(pod=f"web-{number}", grace_seconds=30.0, deadline_at=clock.now() + 600)
        blue.answer(eviction, Outcome.EVICTED)
        clock.sleep(30 + took)
        blue.ledger.landed(eviction.reserved.record, at=clock.now(), uid=f"new-{number}")
    assert expected(blue)[1] == pytest.approx(clock.now() + 30 + 28 + MARGIN)
    # another service's take as long as the policy says
    assert expected(blue, service="db")[1] == clock.now() + 30 + START_UP + MARGIN


def test_a_replacement_that_was_seen_before_is_nobody_elses(blue, clock):
    first = blue.answer(blue.reserve(pod="web-8", ready_before=3), Outcome.EVICTED)
    second = blue.answer(blue.reserve(pod="web-9", ready_before=3), Outcome.EVICTED)
    blue.ledger.landed(first.reserved.record, at=clock.now(), uid="uid-shop-web-0")
    load_ledger_state(blue.ledger, policy(), web(3, age=-(clock.now() - 1_800_000_000)), writes=True)
    (row,) = (
        each for each in cycle_report(blue.records, blue.report.id)["evictions"] if each["id"] == second.reserved.record
    )
    assert row["replacement_uid"] == "uid-shop-web-1"


def test_an_eviction_in_flight_has_its_replacement_before_that_is_ready(blue, clock):
    """What it will use is what its predecessor did."""
    blue.answer(blue.reserve(pod="web-9", ready_before=3), Outcome.EVICTED)
    ages = {"age": -(clock.now() - 1_800_000_000)}
    state = load_ledger_state(blue.ledger, policy(), web(1, ready=False, **ages), writes=True)
    [found] = state.open_evictions
    assert (found.replaced.replacement_uid, found.replaced.replacement_node) == ("uid-shop-web-0", "n1")
    assert found.replaced.replaced_at is None
    state = load_ledger_state(blue.ledger, policy(), web(1, **ages), writes=True)
    [found] = state.landed
    assert found.replaced.replacement_uid == "uid-shop-web-0"


@pytest.mark.parametrize(
    ("ready_since", "recorded"),
    [(20.0, 20.0), (-5.0, 0.0), (500.0, 120.0), (None, 120.0)],
    ids=["between two cycles", "the API server's clock is behind", "it is ahead", "not known"],
)
def test_a_replacement_is_recorded_as_ready_from_when_it_was_ready_on(blue, clock, ready_since, recorded):
    evicted_at = clock.now()
    eviction = blue.answer(blue.reserve(pod="web-9", ready_before=3), Outcome.EVICTED)
    clock.sleep(120.0)
    seen = PodSeen(uid="uid-shop-web-0", ready_since=0.0 if ready_since is None else evicted_at + ready_since)
    reader = FakeReader(pods={("shop", "web-0"): seen})
    snapshot = web(3, age=-(clock.now() - 1_800_000_000))
    load_ledger_state(blue.ledger, policy(), snapshot, writes=True, cluster=reader)
    [found] = blue.ledger.replaced(evicted_at)
    assert (found.reserved.record, found.replaced.replaced_at) == (eviction.reserved.record, evicted_at + recorded)


def test_a_service_without_a_pod_is_still_in_flight(blue):
    blue.answer(blue.reserve(ready_before=1), Outcome.EVICTED)
    standing = load_ledger_state(blue.ledger, policy(), web(0), writes=True)
    assert (len(standing.open_evictions), standing.landed) == (1, ())
    deleted = cluster(NODES, [], listed_kinds=frozenset({"Deployment"}))
    assert len(load_ledger_state(blue.ledger, policy(), deleted, writes=True).landed) == 1


def test_what_is_late_for_too_long_is_closed_by_a_writing_cycle_and_named(blue, clock):
    """Its service stays one short, and nothing else of it may stop the pool."""
    short = web(2, age=365 * 86_400.0 * 3)
    eviction = blue.answer(blue.reserve(pod="web-9", ready_before=3, deadline_at=clock.now() + 60), Outcome.EVICTED)
    clock.sleep(61)
    assert [
        each.replaced.late for each in load_ledger_state(blue.ledger, policy(), short, writes=True).open_evictions
    ] == [True]
    clock.sleep(3600)
    looked = load_ledger_state(blue.ledger, policy(), short, writes=False)
    assert ([each.reserved.record for each in looked.closed], looked.open_evictions) == ([eviction.reserved.record], ())
    assert len(blue.ledger.open_evictions()) == 1
    state = load_ledger_state(blue.ledger, policy(), short, writes=True)
    assert (len(state.landed), state.open_evictions) == (1, ())
    (closed,) = state.closed
    assert closed_note(closed) == (
        "closed the eviction of shop/web-9 from n1: its replacement was not Ready 1h after the deadline"
    )
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert (row["closed_by"], row["late"], row["replaced_at"]) == ("rebalancer", True, None)
    assert load_ledger_state(blue.ledger, policy(), short, writes=True).closed == ()


def test_a_global_percentage_is_taken_of_the_nodes_of_all_clusters(blue, green):
    limits = {"global": {"inFlight": "50%"}, "cluster": {"inFlight": "50%"}}
    for cluster_of in (green, blue):
        load_ledger_state(cluster_of.ledger, policy(limits=limits), web(3), writes=True)
    state = load_ledger_state(blue.ledger, policy(limits=limits), web(3), writes=False)
    assert state.nodes_elsewhere == len(NODES)
    admission = a_door(web(3), policy(limits=limits), state)
    at_most = {check.scope.kind: check.at_most for check in admission.rules.every_check(set())}
    assert (at_most["global"], at_most["cluster"]) == (2, 1)


def test_a_cluster_that_is_gone_takes_part_in_no_global_percentage(blue, green, clock):
    load_ledger_state(green.ledger, policy(), web(3), writes=True)
    clock.sleep(86_399)
    assert load_ledger_state(blue.ledger, policy(), web(3), writes=False).nodes_elsewhere == len(NODES)
    clock.sleep(1)
    assert load_ledger_state(blue.ledger, policy(), web(3), writes=False).nodes_elsewhere == 0


def test_a_writing_cycle_states_how_far_it_looks_back_and_drops_what_is_older(url, blue, clock):
    blue.records.ledger_identity()
    limits = {"service": {"evictions": [{"max": 5, "per": "2d"}]}}
    long, short = policy(limits=limits), policy()
    assert (longest_window(long), longest_window(short)) == (2 * 86_400, 3600)
    eviction = blue.answer(blue.reserve(), Outcome.EVICTED)
    blue.ledger.landed(eviction.reserved.record, at=clock.now())
    clock.sleep(2.5 * 86_400)
    load_ledger_state(blue.ledger, long, web(3), writes=False)
    load_ledger_state(blue.ledger, long, web(3), writes=True)
    assert read_rows(url)
    with raw_connection(url) as connection:
        ((seconds,),) = connection.execute("SELECT longest_window_seconds FROM cluster_limits").fetchall()
    assert seconds == 2 * 86_400
    clock.sleep(3600)
    load_ledger_state(blue.ledger, short, web(3), writes=False)
    assert read_rows(url)
    load_ledger_state(blue.ledger, short, web(3), writes=True)
    assert read_rows(url) == []


class ThreePods(FakeReader):
    """A cluster that can be read as a whole, too."""

    def snapshot(self):
        return web(3)


class SomeUsage:
    def read(self, snapshot):
        return usage_of(snapshot, NODES, [a_pod(name, used=100.0) for name in snapshot.pods.names])


def test_a_writing_cycle_settles_what_has_no_outcome_before_it_counts(blue, clock):
    blue.reserve()
    clock.sleep(CALL_GRACE_SECONDS + 1)
    world = CycleContext(
        cluster=ThreePods(pods={("shop", "web-1"): PodSeen(uid="uid-web-1")}),
        usage=SomeUsage(),
        evictor=None,
        records=blue.records,
        ledger=blue.ledger,
        lease=None,
        clock=clock,
        progress=NullProgress(),
        soft_taint_controller=SoftTaintController(taints=None),
    )
    # only to look: it goes on counting
    seen = observe(world, policy(), writes=False)
    assert (len(seen.ledger_state.entries), len(seen.recent)) == (5, 1)
    # it is alive, so it was never evicted
    seen = observe(world, policy(), writes=True)
    assert (seen.ledger_state.entries, seen.recent) == ((), ())
    (row,) = cycle_report(blue.records, blue.report.id)["evictions"]
    assert row["outcome"] == "failed"
