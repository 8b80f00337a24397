"""Recordings from Prometheus: what is chained to what, whom a node that is gone was like, and what goes wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.model.recordings.recorded_usage import recorded_usage
from rebalancer.prometheus.recorded.disruptions import (
    Replacement,
    Rise,
    alert_gaps,
    attributed,
    eviction_gaps,
    recorded_alerts,
    recorded_budgets,
    replacements,
    rises,
)
from rebalancer.prometheus.recorded.kube_state import Bound, NodeHistory, PodHistory
from rebalancer.prometheus.recorded.nodes import RecordedNodes, recorded_nodes
from rebalancer.prometheus.recorded.pods import RecordedPodTable, recorded_pods
from tests.builders import a_budget, a_node, a_pod, cluster

START, HOUR = 20_700.0 * DAY_SECONDS, 3600.0
STEPS = 288
INF, NAN = float("inf"), float("nan")


def two_nodes(**fields: Any) -> ClusterSnapshot:
    found = cluster([a_node("a-1", labels={"pool": "a"}), a_node("b-1", cpu=4000, labels={"pool": "b"})], [], **fields)
    return replace(found, nodes=replace(found.nodes, created=np.array([0.0, 0.0])))


def nodes_of(today: ClusterSnapshot, **history: Any) -> RecordedNodes:
    known = NodeHistory(**history)
    return recorded_nodes(known, today.nodes, start=START, steps=STEPS)


def pods_of(
    today: ClusterSnapshot,
    pods: Sequence[tuple[str, str, float, float]],
    *,
    owner: tuple[str, str] = ("ReplicaSet", "web-1"),
) -> RecordedPodTable:
    """`pods` = (name, node, created, ended)."""
    history = PodHistory()
    for name, node, created, ended in pods:
        key = ("shop", name, name)
        history.info[key] = Bound(node=node, owner=owner, priority_class="")
        history.created[key] = history.scheduled[key] = history.ready[key] = created
        if ended < INF:
            history.ended[key] = ended
    return recorded_pods(history, {}, today, nodes=today.nodes.names, start=START, steps=STEPS)


def pairs(table: RecordedPodTable, nodes: RecordedNodes) -> list[tuple[str, str]]:
    names = table.pods.names
    return [(names[each.pod], names[each.by]) for each in replacements(table, nodes, start=START)]


def test_a_pod_that_ends_while_its_node_stays_is_paired_with_the_one_made_at_its_deletion() -> None:
    today = two_nodes()
    at = START + 5 * HOUR
    pods = [("old", "a-1", START - HOUR, at + 30.0), ("stays", "a-1", START - HOUR, INF)]
    table = pods_of(today, [*pods, ("new", "b-1", at, INF), ("later", "b-1", at + 2 * HOUR, INF)])
    assert pairs(table, nodes_of(today)) == [("old", "new")]


@pytest.mark.parametrize("trouble", ["left", "not ready", "cordoned"])
def test_a_pod_of_a_node_that_failed_or_was_drained_is_no_candidate(trouble: str) -> None:
    today = two_nodes()
    at = START + 5 * HOUR
    table = pods_of(today, [("old", "a-1", START - HOUR, at + 30.0), ("new", "b-1", at, INF)])
    nodes = nodes_of(today)
    if trouble == "left":
        nodes = replace(nodes, left=np.array([at + 60.0, INF]))
    else:
        nodes.ready[0] &= trouble != "not ready"
        nodes.unschedulable[0] |= trouble == "cordoned"
    assert pairs(table, nodes) == []


def test_pods_of_daemonsets_and_of_another_owner_replace_nothing() -> None:
    today = two_nodes()
    at = START + 5 * HOUR
    pods = [("old", "a-1", START - HOUR, at + 30.0), ("new", "b-1", at, INF)]
    assert pairs(pods_of(today, pods, owner=("DaemonSet", "agent")), nodes_of(today)) == []
    two = pods_of(today, pods)
    other = replace(two, owners=(*two.owners, two.owners[0]), pods=replace(two.pods, owner=np.array([0, 1])))
    assert pairs(other, nodes_of(today)) == []


def test_as_many_pods_are_attributed_as_the_counter_rose_by_in_their_pool() -> None:
    found = [Replacement(START + 60.0 * minute, 2 * minute, 2 * minute + 1) for minute in range(10, 20)]
    rose = [Rise(START + 900.0, START + 960.0, 2, "a"), Rise(START + 9000.0, START + 9060.0, 3, "a")]
    pools = ["a" if each.pod % 4 else "b" for each in found]
    got = attributed(found, rose, pools)
    assert {each.at for each in got} == {START + 780.0, START + 900.0}
    (gap,) = eviction_gaps(found, rose, len(got), has_counter=True)
    assert gap.text == "3 of 5 evictions by rebalancer: no pod that ended at that time fits"


def test_evictions_of_the_database_count_with_the_counter_and_without_it() -> None:
    found = [Replacement(START + 60.0 * minute, 2 * minute, 2 * minute + 1) for minute in range(10, 20)]
    pools = ["a"] * len(found)
    by_command = found[5]
    assert attributed(found, [], pools, evicted={by_command.pod}) == [by_command]
    # the daemon's counter rose by one at an eviction that its database has, too
    rose = [Rise(found[7].at, found[7].at + 120.0, 1, "a")]
    assert attributed(found, rose, pools) != [by_command]
    assert attributed(found, rose, pools, evicted={by_command.pod}) == [by_command]


def test_without_the_counter_none_is_attributed_and_a_gap_says_so_if_it_is_frequent() -> None:
    found = [Replacement(START + 60.0 * minute, 2 * minute, 2 * minute + 1) for minute in range(30)]
    assert attributed(found, [], [""] * 30) == []
    (gap,) = eviction_gaps(found, [], 0, has_counter=False)
    assert gap.pods == 30
    assert eviction_gaps(found[:3], [], 0, has_counter=False) == []
    assert eviction_gaps(found, [], 0, has_counter=True) == []


def test_a_counter_rises_also_with_its_first_sample_and_after_a_restart() -> None:
    row = np.full(60, np.nan, dtype=np.float32)
    row[10:20], row[20:30], row[35:] = 2.0, 3.0, 1.0
    got = rises([({"pool": "a"}, row), ({"pool": "b"}, np.full(60, 7.0, dtype=np.float32))], start=START)
    times = [(round((each.until - START) / 60.0 - 0.5), each.by, each.pool) for each in got]
    assert times == [(10, 2, "a"), (20, 1, "a"), (35, 1, "a")]


def test_budgets_are_there_while_their_status_was_and_keep_their_number_between_samples() -> None:
    row = np.full(STEPS, np.nan, dtype=np.float32)
    row[10:20], row[25:40] = 2.0, 3.0
    budgets, gaps = recorded_budgets({("shop", "web"): row}, [a_budget("web", "web", 1)], start=START, steps=STEPS)
    assert set(budgets[0].desired_healthy[10:25]) == {2}
    assert (budgets[0].since, budgets[0].until) == (START + 10 * STEP_SECONDS, START + 40 * STEP_SECONDS)
    assert gaps == ()
    _, gaps = recorded_budgets({("shop", "gone"): row}, [], start=START, steps=STEPS)
    assert "1 budget gone today" in gaps[0].text
    budgets, gaps = recorded_budgets({}, [a_budget("web", "web", 1, desired_healthy=4)], start=START, steps=STEPS)
    assert set(budgets[0].desired_healthy) == {4}
    assert "those of today" in gaps[0].text


def test_an_alert_that_fires_twice_is_two_alerts() -> None:
    row = np.full(100, np.nan, dtype=np.float32)
    row[3:5], row[50:100] = 1.0, 1.0
    found = recorded_alerts([({"__name__": "ALERTS", "alertstate": "firing", "alertname": "Hot"}, row)], start=START)
    assert [(each.at - START, each.until - START) for each in found] == [(180.0, 300.0), (3000.0, 6000.0)]
    assert found[0].labels == {"alertname": "Hot"}
    (gap,) = alert_gaps(found)
    assert gap.text.startswith("alerts in Prometheus have no annotations")
    assert alert_gaps([]) == []


def test_a_node_that_is_gone_is_like_the_one_with_its_capacity_and_the_most_similar_name() -> None:
    found = nodes_of(
        two_nodes(),
        address={"a-1": "", "b-1": "", "b-0": "10.0.0.1", "a-7": "10.0.0.1"},
        left={"b-0": START + HOUR},
        joined={"b-0": START - HOUR, "a-7": START + HOUR},
        amounts={("b-0", "capacity", "cpu"): 4.0},
        taints={"b-0": [("dedicated", "x", "NoSchedule"), ("node.kubernetes.io/not-ready", "", "NoExecute")]},
    )
    assert found.nodes.names == ("a-1", "b-1", "a-7", "b-0")
    assert [each["pool"] for each in found.nodes.labels] == ["a", "b", "a", "b"]
    assert found.nodes.labels[3]["kubernetes.io/hostname"] == "b-0"
    assert [taint.key for taint in found.nodes.taints[3]] == ["dedicated"]
    assert found.joined.tolist() == [-INF, -INF, START + HOUR, -INF]
    assert found.left.tolist() == [INF, INF, START + STEPS * STEP_SECONDS, START + HOUR]
    assert found.nodes.addresses[2:] == ((), ())
    assert found.gaps[1].text.startswith("2 nodes gone today with an address that another node has too")


def test_a_node_that_comes_back_under_its_name_is_closed_meanwhile() -> None:
    today, away = two_nodes(), np.zeros(STEPS, dtype=np.bool_)
    away[20:40] = True
    today = replace(today, nodes=replace(today.nodes, created=np.array([START + 40 * STEP_SECONDS, 0.0])))
    found = nodes_of(today, returned={"a-1": START + 600.0}, absent={"a-1": away})
    assert found.joined.tolist() == [START + 600.0, -INF]
    assert (~found.ready[0]).tolist() == [True] * 2 + [False] * 18 + [True] * 20 + [False] * (STEPS - 40)
    assert found.unschedulable[0].tolist() == found.absent[0].tolist() == away.tolist()
    assert not found.absent[1].any()
    assert "1 node left and came back under the same name" in found.gaps[0].text


def test_pods_that_kube_state_metrics_does_not_show_are_added_from_today() -> None:
    today = cluster([a_node("a-1")], [a_pod("web-0", "a-1", owner="web-1")])
    today = replace(today, pods=replace(today.pods, created=np.array([START]), started=np.array([START + 5.0])))
    found = pods_of(today, [("other", "a-1", START, INF)])
    at = found.pods.names.index("web-0")
    assert (found.pods.created[at], found.pods.bound[at], found.pods.ended[at]) == (START, START + 5.0, INF)
    assert [gap.pods for gap in found.gaps if "doesn't show" in gap.text] == [1]


def test_a_pod_that_is_there_today_has_not_ended_whatever_prometheus_missed() -> None:
    today = cluster([a_node("a-1")], [a_pod("web-0", "a-1", owner="web-1")])
    today = replace(today, pods=replace(today.pods, uids=["web-0"]))
    assert pods_of(today, [("web-0", "a-1", START, START + HOUR)]).pods.ended.tolist() == [INF]


def test_a_replica_set_that_is_gone_belongs_to_the_deployment_that_its_name_begins_with() -> None:
    deployment = Owner(kind="Deployment", namespace="shop", name="web", uid="d")
    today = two_nodes(owners=[deployment])
    today = replace(today, owners=(deployment,), namespaces=("shop",))
    found = pods_of(today, [("x", "a-1", START, INF)], owner=("ReplicaSet", "web-5d9f8c7b6d"))
    assert found.owners[found.owners[int(found.pods.owner[0])].parent] == deployment


def a_block(day: int, pods: dict[str, float], nodes: dict[str, float]) -> DayBlock:
    slots = np.arange(SLOTS, dtype=np.float32)
    return DayBlock(
        day=day,
        pods=tuple(pods),
        pod_millicores=np.array([value + slots for value in pods.values()], dtype=np.float32),
        nodes=tuple(nodes),
        node_millicores=np.array([value + slots for value in nodes.values()], dtype=np.float32),
    )


def test_usage_is_cut_from_the_days_in_which_a_pod_was_there() -> None:
    days = [
        a_block(20_700, {"s/a": 1000.0}, {"n": 5000.0}),
        a_block(20_701, {"s/a": 2000.0, "s/b": 0.0}, {"n": 6000.0}),
    ]
    start = START + 12 * HOUR
    usage = recorded_usage(
        days,
        resource=CPU,
        start=start,
        steps=SLOTS,
        pods=["s/a", "s/a", "s/b", "s/never"],
        bound=np.array([START - HOUR, START + 25 * HOUR, START + 24 * HOUR, INF]),
        ended=np.array([START + 25 * HOUR, INF, START + 24 * HOUR + 601.0, INF]),
        nodes=["n", "unknown"],
    )
    assert np.diff(usage.pod_start).tolist() == [156, 132, 3, 0]
    first = usage.pod_values[: usage.pod_start[1]]
    assert (first[0], first[143], first[144], first[155]) == (1144.0, 1287.0, 2000.0, 2011.0)
    second = usage.pod_values[usage.pod_start[1] : usage.pod_start[2]]
    assert (second[0], second[-1]) == (2012.0, 2143.0)
    assert usage.pod_values[usage.pod_start[2] :].tolist() == [0.0, 1.0, 2.0]
    assert (usage.node[0, 0], usage.node[0, 144]) == (5144.0, 6000.0)
    assert np.isnan(usage.node[1]).all()


def test_memory_is_in_bytes_again() -> None:
    pod = {"pods": ["s/a"], "bound": np.array([START]), "ended": np.array([INF])}
    days = [a_block(20_700, {"s/a": 2.0}, {})]
    usage = recorded_usage(days, resource=MEMORY, start=START, steps=1, nodes=[], **pod)
    assert usage.pod_values.tolist() == [2 * 2.0**20]


def test_templates_can_be_added_to_a_table() -> None:
    table = two_nodes().pod_templates
    before = len(table)
    more = table.followed_by([PodTemplate(labels={"app": "gone"})])
    assert more[before].labels == more.outline(before).labels == {"app": "gone"}
    assert len(table) == before
