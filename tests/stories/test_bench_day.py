"""An hour of the living cluster of `make bench ONLY=day`: what holds on every day, and what its account is made of."""

from dataclasses import replace

import numpy as np
import pytest

from bench.day.account import Budgets, Day, account, service_of
from bench.day.bench import Output, codes, figures, options
from bench.day.cluster import PERIOD_SECONDS, SMALL, SPOT_NOTICE, Size, make
from bench.day.run import MIDNIGHT, Course, live, policy_of
from bench.day.state import cluster_of, coolable_nodes, hot_nodes
from bench.day.unserved import exposed_spans, seconds_by_us, without
from bench.plan.cluster import Thresholds
from rebalancer.lab import Lab, PdbSpec, Scenario, node, workload
from rebalancer.lab.controlplane.owned import terminate
from rebalancer.lab.log import Entry
from rebalancer.lab.objects.disruption import update_statuses
from rebalancer.lab.scenarios.steps import AddNode, DrainNode, RemoveNode, Taint

SEED = 2
"""Of an hour in which something is hot and something is moved."""


@pytest.fixture(scope="module")
def ours() -> Course:
    return live(SEED, SMALL, acts=True)


def test_day_an_hour_breaks_no_budget_and_no_limit(ours: Course) -> None:
    assert ours.day.evictions > 0
    assert ours.day.evictions == sum(each.evicted for each in ours.cycles)
    assert ours.day.broken_budgets == ()
    assert ours.day.over_limit == ()
    assert all(not each.stopped for each in ours.cycles)
    assert all(each.coolable <= each.hot for each in ours.cycles)


def test_day_a_seed_gives_the_same_day_again(ours: Course) -> None:
    again = live(SEED, SMALL, acts=True)
    assert again.day == ours.day
    assert [replace(each, seconds=0.0) for each in again.cycles] == [replace(each, seconds=0.0) for each in ours.cycles]


def test_day_the_day_without_us_has_the_same_changes_and_no_eviction_of_ours(
    ours: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = live(SEED, SMALL, acts=False)
    assert alone.cycles == []
    assert alone.day.evictions == 0
    assert alone.day.hot_minutes >= ours.day.hot_minutes
    figures(Output(), alone, ours)
    assert '"figure": "hot node-minutes with / without"' in capsys.readouterr().out


def test_the_scenario_has_all_that_a_living_cluster_has() -> None:
    found = make(1, SMALL)
    assert {each.tag for each in (type(step).__struct_config__ for step in found.steps)} >= {
        "add-node",
        "drain-node",
        "fail-zone",
        "restore-zone",
        "roll-out",
        "resize",
        "add-workload",
        "taint",
    }
    assert {each.kind for each in found.workloads} >= {"Deployment", "StatefulSet", "DaemonSet", "CronJob"}
    assert any(each.hpa for each in found.workloads)
    assert any(each.cpu.total for each in found.workloads)
    assert make(1, SMALL) == found != make(2, SMALL)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm_takes_six_nodes_at_once_in_the_middle_of_whose_notice_a_cycle_begins(seed: int) -> None:
    steps = make(seed, Size()).steps
    notices = [each for each in steps if isinstance(each, Taint)]
    assert {each.key for each in notices} == {SPOT_NOTICE}
    times = sorted(each.at_seconds for each in notices)
    assert [times[:6], times[6:]] == [[times[0]] * 6, [times[-1]] * 6]
    assert {(at + 60.0) % PERIOD_SECONDS for at in times} == {0.0}
    gone = {each.node: each.at_seconds for each in steps if isinstance(each, RemoveNode)}
    assert all(gone[each.node] == each.at_seconds + 120.0 for each in notices)
    # a node goes once, and another comes for it
    leaving = [each.node for each in steps if isinstance(each, RemoveNode | DrainNode)]
    joining = [each.node.name for each in steps if isinstance(each, AddNode)]
    assert len(set(leaving)) == len(leaving) == len(set(joining)) == len(joining)


def test_options_have_defaults() -> None:
    assert vars(options().parse_args([]))["seeds"] == 1


# ---- the account


def a_pair(name: str = "web", **fields: object) -> Scenario:
    web = workload(name, namespace="shop", place={"hot": 4, "cool": 2}, cpu=3.5, cpu_request="500m", **fields)
    return Scenario(nodes=(node("hot", overhead_cores=0.0), node("cool", overhead_cores=0.0)), workloads=(web,))


def day_with_evictions(count: int) -> Day:
    """So many pods of a service leave at the same time; its budget allows one."""
    with Lab.start(a_pair(pdb=PdbSpec(max_unavailable=1)), stepped=True, start_time=MIDNIGHT) as lab:
        budgets, policy = Budgets(lab), policy_of(lab.prometheus_url)
        lab.clock.sleep(60.0)
        _evict_by_force(lab, count)
        lab.clock.sleep(300.0)
        return account(lab, budgets, policy, start=MIDNIGHT, end=lab.clock.now(), high=0.75)


def test_a_budget_is_broken_by_an_eviction_that_takes_it_under_its_floor() -> None:
    day = day_with_evictions(2)
    assert day.broken_budgets == (("shop", "web"),)
    assert day.low_budget_minutes > 0
    assert day.over_limit == (("shop", "web"),)  # a quarter of six, rounded down, is one
    assert (day.evictions, day.most_of_a_service) == (2, 2)


def test_one_eviction_within_budget_and_limit_is_neither() -> None:
    day = day_with_evictions(1)
    assert day.broken_budgets == day.over_limit == ()
    assert day.evictions == 1


def a_day_of_two(*, evicts: int, vanishes: bool, replicas: int = 2) -> Day:
    """`web` has a pod on `hot` and, with two replicas, one on `cool`, which may vanish; pods take 90 seconds to be
    Ready, one of ours leaves `hot` a minute before."""
    nodes = (node("hot", overhead_cores=0.0), node("cool", overhead_cores=0.0), node("spare", overhead_cores=0.0))
    place = {"hot": 1, "cool": replicas - 1} if replicas > 1 else {"hot": 1}
    web = workload("web", namespace="shop", place=place, cpu=1.0, cpu_request="500m", start_seconds=90.0)
    scenario = Scenario(nodes=nodes, workloads=(web,))
    with Lab.start(scenario, stepped=True, start_time=MIDNIGHT) as lab:
        budgets, policy = Budgets(lab), policy_of(lab.prometheus_url)
        lab.clock.sleep(60.0)
        _evict_by_force(lab, evicts)
        lab.clock.sleep(60.0)
        if vanishes:
            lab.cluster.remove_node("cool")
        lab.clock.sleep(880.0)
        return account(lab, budgets, policy, start=MIDNIGHT, end=lab.clock.now(), high=0.75)


def by_us(ours: Day, alone: Day) -> dict[tuple[str, str], float]:
    return seconds_by_us(ours.unserved, ours.exposed, alone.unserved)


def test_an_eviction_whose_sibling_vanishes_is_ours_until_its_replacement_is_ready() -> None:
    ours, alone = (a_day_of_two(evicts=count, vanishes=True) for count in (1, 0))
    assert ours.unserved == {("shop", "web"): ((MIDNIGHT + 120.0, MIDNIGHT + 150.0),)}
    assert alone.unserved == {}
    assert by_us(ours, alone) == {("shop", "web"): 30.0}


def test_what_was_the_same_without_us_is_not_ours() -> None:
    ours = a_day_of_two(evicts=1, vanishes=True)
    assert by_us(ours, ours) == {}
    assert by_us(replace(ours, exposed={}), a_day_of_two(evicts=0, vanishes=True)) == {}


def test_neither_an_eviction_with_a_sibling_nor_a_service_of_one_is_without_a_ready_pod() -> None:
    assert a_day_of_two(evicts=1, vanishes=False).unserved == {}
    assert a_day_of_two(evicts=1, vanishes=False, replicas=1).unserved == {}


def test_an_eviction_counts_for_ten_minutes_or_until_its_replacement_is_ready() -> None:
    assert exposed_spans([100.0, 400.0], [], end=2_000.0) == ((100.0, 2_000.0),)
    assert a_day_of_two(evicts=1, vanishes=False).exposed == {("shop", "web"): ((MIDNIGHT + 60.0, MIDNIGHT + 660.0),)}


def test_spans_without_others_are_what_is_left_of_them() -> None:
    assert without([(0.0, 10.0), (5.0, 20.0)], [(2.0, 3.0), (19.0, 30.0)]) == ((0.0, 2.0), (3.0, 19.0))
    assert without([(0.0, 10.0)], []) == ((0.0, 10.0),)
    assert without([(0.0, 10.0)], [(-5.0, 20.0)]) == ()


def _evict_by_force(lab: Lab, count: int) -> None:
    """As our evictions, past the budget."""
    with lab.cluster.lock:
        for pod in lab.cluster.pods(node="hot")[:count]:
            meta = pod["metadata"]
            terminate(lab.cluster.store, lab.log, pod)
            update_statuses(lab.cluster.store)
            lab.log.add(
                Entry(
                    event="eviction",
                    at=lab.clock.now(),
                    namespace=meta["namespace"],
                    name=meta["name"],
                    uid=meta["uid"],
                    code=201,
                    user_agent="rebalancer/1",
                )
            )


def test_the_planning_benchs_cluster_has_the_labs_load() -> None:
    with Lab.start(make(3, SMALL), stepped=True, start_time=MIDNIGHT) as lab:
        lab.clock.sleep(900.0)
        names, cluster = cluster_of(lab, Thresholds())
        truth = lab.truth.node_cpu_share_instant()
        load = cluster.load / cluster.machines.cpu_capacity
    assert names
    settled = [row for row, name in enumerate(names) if truth[name] < 1.0]
    assert np.abs(load[settled] - [truth[names[row]] for row in settled]).max() < 0.05


def test_a_hot_node_can_be_cooled_where_a_pod_may_go_and_has_room() -> None:
    with Lab.start(a_pair(), stepped=True, start_time=MIDNIGHT) as lab:
        lab.clock.sleep(900.0)
        assert hot_nodes(lab, 0.75) == {"hot"}
        assert coolable_nodes(lab, Thresholds(target=0.66)) == {"hot"}  # three pods on each node
        assert coolable_nodes(lab, Thresholds(target=0.65)) == frozenset()  # the other would be over its target


def test_pods_that_a_webhook_keeps_cool_nothing() -> None:
    with Lab.start(a_pair(name="guarded-web"), stepped=True, start_time=MIDNIGHT) as lab:
        lab.clock.sleep(900.0)
        assert hot_nodes(lab, 0.75) == {"hot"}
        assert coolable_nodes(lab, Thresholds(target=0.66)) == frozenset()


def test_services_are_read_off_names_of_pods() -> None:
    assert service_of("cart-7d9fbcdgf-x2x2x") == "cart"
    assert service_of("store-1-0") == "store-1"
    assert service_of("app-12-7d9fbcdgf-x2x2x") == "app-12"


def test_codes_count_only_cycles_that_could_have_done_something(ours: Course) -> None:
    counted = sum(codes(ours).values())
    assert counted == sum(each.coolable for each in ours.cycles if each.idle)
