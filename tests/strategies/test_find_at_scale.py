"""Searches over columns equal the rules applied pod by pod, and read no more of a cluster than they need."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.plan import strategies as bench
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import PENDING, RUNNING, SUCCEEDED
from rebalancer.placement.cluster.board import Board
from rebalancer.strategies import StrategyView, strategy_for
from rebalancer.strategies.interface.selection import by_names, by_node, cheapest_first, one_pod
from tests.builders import ANode, APod, a_node, a_pod, cluster, usage_of, view_of
from tests.strategies import oracles
from tests.strategies.builders.finding import strategy_policy

ZONES, NODES, SERVICES = ("1", "2", "3"), ("a", "b", "c", "d", "e"), ("web", "api", "db", "cron")
BOTH = ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"]


def in_zone(zone: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}


def template(rule: str, zone: str) -> dict[str, Any]:
    if rule == "selector":
        return {"nodeSelector": {"zone": zone}}
    if rule == "required":
        return {"affinity": {"nodeAffinity": {BOTH[0]: {"nodeSelectorTerms": [in_zone(zone)]}}}}
    if rule == "preferred":
        return {"affinity": {"nodeAffinity": {BOTH[1]: [{"weight": 3, "preference": in_zone(zone)}]}}}
    if rule == "spread":
        selector = {"matchLabels": {"app": "web"}}
        return {"topologySpread": [{"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}]}
    return {}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[ANode], list[APod]]:
    """Nodes in zones, some of them closed; pods of a few services with and without rules, in every state."""
    nodes = [
        a_node(
            name,
            labels={
                "pool": draw(st.sampled_from(["general", "general", "other"])),
                "zone": draw(st.sampled_from(ZONES)),
            },
            taints=draw(st.sampled_from([(), (), (Taint(key="only", effect="NoSchedule"),)])),
            unschedulable=draw(st.sampled_from([False, False, False, True])),
        )
        for name in NODES
    ]
    pods = []
    for index in range(draw(st.integers(0, 40))):
        rule, service = (
            draw(st.sampled_from(["", "selector", "required", "preferred", "spread"])),
            draw(st.sampled_from(SERVICES)),
        )
        node = draw(st.sampled_from((*NODES, "")))
        pods.append(
            a_pod(
                f"pod-{index:02d}",
                node,
                owner=draw(st.sampled_from([service, service, service, ""])),
                namespace=draw(st.sampled_from(["shop", "bank"])),
                labels={"app": service, "kind": draw(st.sampled_from(["", "x", "y"]))},
                template=template(rule, draw(st.sampled_from(ZONES))),
                phase=draw(st.sampled_from([RUNNING, RUNNING, SUCCEEDED])) if node else PENDING,
                terminating=draw(st.sampled_from([False, False, False, True])),
                priority=draw(st.integers(0, 1)),
                age=draw(st.sampled_from([100.0, 200.0])),
            )
        )
    return nodes, pods


World = tuple[list[ANode], list[APod]]


def looking(world: World, name: str, args: dict[str, Any]) -> StrategyView:
    nodes, pods = world
    made = cluster(nodes, pods)
    return view_of(made, usage_of(made, nodes, pods), strategy_policy(name, args))


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_node_affinity_by_templates_equals_pod_by_pod(world: World) -> None:
    view = looking(world, "RemovePodsViolatingNodeAffinity", {"nodeAffinityType": BOTH})
    made = strategy_for(view.strategy)(view)
    assert oracles.found(view.snapshot, made.findings) == oracles.node_affinity(view)


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_service_spread_by_columns_equals_pod_by_pod(world: World) -> None:
    view = looking(world, "ServiceSpread", {"feature": "kind"})
    made = strategy_for(view.strategy)(view)
    assert oracles.found(view.snapshot, made.findings) == oracles.service_spread(view, "kind")


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_duplicates_by_owner_equal_pod_by_pod(world: World) -> None:
    view = looking(world, "RemoveDuplicates", {})
    made = strategy_for(view.strategy)(view)
    assert oracles.found(view.snapshot, made.findings) == oracles.remove_duplicates(view)


@settings(deadline=None, max_examples=60)
@given(clusters())
def test_pods_by_kind_equal_the_tallies_of_the_board(world: World) -> None:
    made = cluster(*world)
    board, pods = Board(made), made.pods
    there, starts = board.kinds.active(~pods.terminating)
    for number, kind in enumerate(board.kinds):
        mine = [
            pod
            for pod in range(len(pods))
            if board.kinds.of(pod) == kind and made.active[pod] and not pods.terminating[pod]
        ]
        assert there[starts[number] : starts[number + 1]].tolist() == mine
        tally = board.tally(board.kinds.grouped(number, lambda each, _, kind=kind: float(each == kind)))
        assert np.bincount(pods.node[mine], minlength=len(NODES)).tolist() == tally.staying.tolist()
    carriers = [number for number, kind in enumerate(board.kinds) if board.kinds.template_of(kind).topology_spread]
    assert board.kinds.spreading == carriers


@settings(deadline=None, max_examples=60)
@given(clusters(), st.data())
def test_findings_sorted_at_once_equal_those_sorted_by_key(world: World, data: st.DataObject) -> None:
    view = looking(world, "RemovePodsViolatingNodeAffinity", {})
    snapshot = view.snapshot
    findings = [one_pod(view, int(pod), "") for pod in np.flatnonzero(snapshot.pods.node >= 0)]
    over = [float(data.draw(st.integers(0, 3))) for _ in findings]
    assert by_names(snapshot, findings) == sorted(findings, key=lambda each: by_node(snapshot, each))
    keyed = sorted(zip(over, findings, strict=True), key=lambda each: (-each[0], by_node(snapshot, each[1])))
    assert by_names(snapshot, findings, most_first=over) == [finding for _, finding in keyed]


def test_topology_spread_decodes_only_templates_with_constraints() -> None:
    nodes = [a_node(name, labels={"pool": "general", "zone": "1"}) for name in NODES]
    pods = [a_pod("web-0", "a", owner="web", labels={"app": "web"}, template=template("spread", "1"))]
    pods += [a_pod(f"api-{index}", "a", owner="api", labels={"app": f"api-{index}"}) for index in range(5)]
    view = looking((nodes, pods), "RemovePodsViolatingTopologySpreadConstraint", {})
    templates = [view.snapshot.pod_templates[at] for at in range(len(view.snapshot.pod_templates))]
    decoded: list[int] = []

    def decode(blob: bytes) -> Any:
        decoded.append(int(blob))
        return templates[int(blob)]

    full = view.snapshot.pod_templates
    blobs = [str(at).encode() for at in range(len(templates))]
    object.__setattr__(
        view.snapshot, "pod_templates", PodTemplateTable(blobs, decode, lambda blob: full.outline(int(blob)))
    )
    strategy_for(view.strategy)(view)
    assert [bool(templates[at].topology_spread) for at in decoded] == [True]


def test_the_order_of_one_pod_is_that_pod() -> None:
    made = cluster([a_node("a")], [a_pod("web-0", "a")])
    assert cheapest_first(made, np.array([0])).tolist() == [0]


def test_every_strategy_has_an_aim_of_a_quarter_of_a_second() -> None:
    assert bench.AIM == 0.25
