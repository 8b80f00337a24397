"""Spreading and inter-pod affinity on random small clusters, against a slow reading of the same plugins."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import PENDING, RUNNING
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Departure, Engine
from tests.builders import ANode, APod, a_node, a_pod, cluster
from tests.placement.oracles import Oracle, OracleNode, OraclePod

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NAMESPACES = {"shop": {"team": "a"}, "bank": {"team": "b"}, "void": {}}
TAINT = Taint(key="k", effect="NoSchedule")

keys = st.sampled_from([HOSTNAME, ZONE, "rack"])
labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from(["x", "y"]), "tier": st.sampled_from(["1", "2"])})
requirements = st.one_of(
    st.builds(
        lambda operator, values: {"key": "app", "operator": operator, "values": values},
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2, unique=True),
    ),
    st.sampled_from([{"key": "tier", "operator": "Exists"}, {"key": "tier", "operator": "DoesNotExist"}]),
)
selectors = st.one_of(
    st.none(),
    st.builds(
        lambda pairs, expressions: {"matchLabels": pairs, "matchExpressions": expressions},
        labels,
        st.lists(requirements, max_size=1),
    ),
)
terms = st.builds(
    lambda selector, key, names, spaces: {
        "labelSelector": selector,
        "topologyKey": key,
        **({"namespaces": names} if names else {}),
        **({"namespaceSelector": spaces} if spaces is not None else {}),
    },
    selectors,
    keys,
    st.sampled_from([[], [], ["bank"], ["shop", "void"]]),
    st.sampled_from([None, None, {}, {"matchLabels": {"team": "a"}}]),
)
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
affinities = st.builds(
    lambda required, preferred: {
        REQUIRED: required,
        PREFERRED: [{"weight": weight, "podAffinityTerm": term} for weight, term in preferred],
    },
    st.one_of(st.just([]), st.lists(terms, max_size=2)),
    st.lists(st.tuples(st.integers(1, 100), terms), max_size=2),
)
constraints = st.builds(
    lambda skew, key, hard, selector, least, affinity, taints, match: {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": selector,
        **({"minDomains": least} if least and hard else {}),
        "nodeAffinityPolicy": affinity,
        "nodeTaintsPolicy": taints,
        "matchLabelKeys": match,
    },
    st.integers(1, 3),
    keys,
    st.booleans(),
    selectors,
    st.sampled_from([None, None, 1, 3]),
    st.sampled_from(["Honor", "Ignore"]),
    st.sampled_from(["Honor", "Ignore"]),
    st.sampled_from([[], [], ["tier"]]),
)
templates = st.builds(
    lambda near, away, spread, selector, tolerates: {
        "affinity": {"podAffinity": near, "podAntiAffinity": away},
        "topologySpread": spread,
        "nodeSelector": selector,
        "tolerations": [{"operator": "Exists"}] if tolerates else [],
    },
    affinities,
    affinities,
    st.lists(constraints, max_size=2),
    st.sampled_from([{}, {}, {ZONE: "a"}]),
    st.booleans(),
)
nodes = st.lists(
    st.tuples(
        st.fixed_dictionaries({}, optional={ZONE: st.sampled_from(["a", "b"]), "rack": st.sampled_from(["1", "2"])}),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
pods = st.lists(
    st.tuples(
        st.sampled_from(sorted(NAMESPACES)), labels, templates, st.integers(0, 4), st.booleans(), st.integers(0, 2)
    ),
    min_size=1,
    max_size=7,
)


def built(drawn_nodes: Any, drawn_pods: Any) -> tuple[list[ANode], list[APod]]:
    """The first pod is the one to be placed."""
    made = [
        a_node(f"n{index}", labels=labels, taints=(TAINT,) if tainted else ())
        for index, (labels, tainted) in enumerate(drawn_nodes)
    ]
    there = [
        a_pod(
            f"p{index}",
            "" if index == 0 else f"n{node % len(made)}",
            phase=RUNNING if index else PENDING,
            namespace=namespace,
            # the builder's own label would tell owners apart
            owner=f"o{owner}" if owner else "",
            labels={"app": "z", **labels},
            cpu=0,
            memory=0,
            template=template,
            terminating=terminating and index > 0,
        )
        for index, (namespace, labels, template, node, terminating, owner) in enumerate(drawn_pods)
    ]
    return made, there


def compare(made: list[ANode], there: list[APod]) -> None:
    snapshot = cluster(made, there, namespace_labels=NAMESPACES)
    board = Board(snapshot)
    verdict = Engine(board).verdict(board.kinds.of(0))
    oracle = Oracle(
        nodes=[OracleNode(node.name, {HOSTNAME: node.name, **node.labels}, node.taints) for node in made],
        pods=[
            OraclePod(
                namespace=pod.namespace,
                template=snapshot.pod(index).template,
                node=pod.node,
                terminating=pod.terminating,
                owner=pod.owner,
            )
            for index, pod in enumerate(there)
        ],
        namespace_labels=NAMESPACES,
    )
    incoming = oracle.pods[0]
    feasible = oracle.feasible(incoming)
    names = snapshot.nodes.names
    assert [name for name, ok in zip(names, verdict.feasible, strict=True) if ok] == feasible
    spread = oracle.spread_scores(incoming, feasible)
    assert ("PodTopologySpread" in verdict.weighted) == (spread is not None)
    if spread is not None:
        got = verdict.weighted["PodTopologySpread"] / 2
        assert {names[row]: got[row] for row in np.flatnonzero(verdict.feasible)} == spread
    attraction = oracle.affinity_scores(incoming, feasible)
    if "InterPodAffinity" in verdict.weighted:
        got = verdict.weighted["InterPodAffinity"] / 2
        assert {names[row]: got[row] for row in np.flatnonzero(verdict.feasible)} == attraction
    else:
        assert not any(attraction.values())


@settings(max_examples=150, deadline=None)
@given(nodes, pods)
def test_the_columns_say_what_a_slow_reading_of_the_plugins_says(drawn_nodes: Any, drawn_pods: Any) -> None:
    compare(*built(drawn_nodes, drawn_pods))


@settings(max_examples=80, deadline=None)
@given(nodes, pods, st.data())
def test_a_board_that_saw_changes_says_what_a_new_one_says(drawn_nodes: Any, drawn_pods: Any, data: Any) -> None:
    made, there = built(drawn_nodes, drawn_pods)
    snapshot = cluster(made, there, namespace_labels=NAMESPACES)
    board = Board(snapshot)
    engine, kind = Engine(board), board.kinds.of(0)
    engine.scores(kind)
    staying = [index for index, pod in enumerate(there) if index and not pod.terminating]
    for index in data.draw(st.lists(st.sampled_from(staying), unique=True) if staying else st.just([])):
        target = data.draw(st.integers(0, len(made) - 1))
        moved = board.kinds.of(index)
        board.take_out(moved, int(snapshot.pods.node[index]))
        if data.draw(st.booleans()):
            engine.scores(kind)
        board.put(moved, np.array([target]), np.ones(1))
        engine.feasible(moved)
        there[index].node = made[target].name
    fresh = Board(cluster(made, there, namespace_labels=NAMESPACES))
    assert engine.scores(kind).tolist() == Engine(fresh).scores(fresh.kinds.of(0)).tolist()


@settings(max_examples=80, deadline=None)
@given(nodes, pods)
def test_seen_without_a_pod_is_as_if_it_were_not_there(drawn_nodes: Any, drawn_pods: Any) -> None:
    made, there = built(drawn_nodes, drawn_pods)
    there[0].node, there[0].phase = made[0].name, RUNNING
    board = Board(cluster(made, there, namespace_labels=NAMESPACES))
    engine, kind = Engine(board), board.kinds.of(0)
    before = engine.scores(kind).tolist()
    without = engine.scores(kind, Departure(0)).tolist()
    terminating = engine.scores(kind, Departure(0, terminating=True)).tolist()
    assert engine.scores(kind).tolist() == before
    assert engine.fits(kind, 0, freed=kind) == (without[0] > -np.inf)
    for changes, expected in (({"node": "", "phase": PENDING}, without), ({"terminating": True}, terminating)):
        changed = [a_pod(**{**vars(there[0]), **changes}), *there[1:]]
        other = Board(cluster(made, changed, namespace_labels=NAMESPACES))
        assert Engine(other).scores(other.kinds.of(0)).tolist() == expected
