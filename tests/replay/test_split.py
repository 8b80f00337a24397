"""Recordings in parts, and the runs of parts as one."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from bench.replays.cluster import START, make
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate, SpreadConstraint, Taint, Toleration
from rebalancer.model.cluster.owners import Service
from rebalancer.model.cluster.quota import ResourceQuota
from rebalancer.model.decisions.eviction import Eviction, eviction_of
from rebalancer.model.measured.history import DayBlock
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import RecordedBudget, Recording
from rebalancer.model.recordings.replay import ReplayedCycle, ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.runner.merge import exceeded, merge
from rebalancer.replay.runner.split import Part, split

NODES, PODS = 10, 120


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Two pools of 8 and 2 nodes; the pods of each service name their pool."""
    return make(NODES, PODS, 0.25, 1)


def policy_of(*pools: str, **sections: Any) -> RebalancerPolicy:
    marks = {"high": 75, "target": 65, "low": 50}
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "bench",
            "pools": [
                {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": marks} for name in pools
            ],
            "usage": {"prometheus": {"url": "http://127.0.0.1:9090"}},
            "strategies": [{"name": "LowNodeUtilization"}],
            **sections,
        }
    )


BOTH = policy_of("general", "compute")
ONE = {
    "pools": [{"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 65, "low": 50}}],
}


def with_template(recording: Recording, index: int, **changes: Any) -> Recording:
    """The recording with another template of that index."""
    table = recording.pod_templates
    blobs = [msgspec.json.encode(table[at]) for at in range(len(table))]
    blobs[index] = msgspec.json.encode(msgspec.structs.replace(table[index], **changes))
    return replace(recording, pod_templates=type(table)(blobs, msgspec.json.Decoder(PodTemplate).decode))


def a_template(recording: Recording) -> int:
    """The template of a Deployment's pod."""
    kinds = [recording.owners[owner].kind for owner in recording.pods.owner.tolist()]
    return int(recording.pods.template[kinds.index("ReplicaSet")])


def run_of(
    part: Part, *evictions: Eviction, cycles: tuple[ReplayedCycle, ...] = (), until: float | None = None
) -> ReplayRun:
    shape = len(part.nodes), part.recording.steps
    return ReplayRun(
        label="a policy",
        until=part.recording.end if until is None else until,
        share=np.repeat(part.nodes[:, None], shape[1], axis=1).astype(np.float32) / 100,
        hot_minutes=np.ones(shape, dtype=np.float32),
        evictions=evictions,
        cycles=cycles,
        most_in_flight=len(evictions),
        notes=("a note",),
    )


def eviction_at(at: float, *, ready: float = 60.0, namespace: str = "n0", late: bool = False) -> Eviction:
    return eviction_of(
        namespace=namespace,
        pod=f"web-{at}",
        uid="u",
        node="node-00000",
        pool="general",
        service=Service(kind="Deployment", namespace=namespace, name="web"),
        strategy="LowNodeUtilization",
        reason="",
        planned_at=at,
        answered_at=at,
        replaced_at=at + ready,
        late=late,
    )


def test_pools_whose_pods_name_them_are_two_parts(recording: Recording) -> None:
    parts = split(recording, [BOTH]).parts
    assert [part.nodes.tolist() for part in parts] == [list(range(8)), [8, 9]]
    assert sum(len(part.recording.pods) for part in parts) == len(recording.pods)


def test_a_part_has_its_own_pods_with_their_owners_templates_and_usage(recording: Recording) -> None:
    names = recording.pods.names
    row_of = {name: row for row, name in enumerate(names)}
    whole = recording.usage[CPU]
    for part in split(recording, [BOTH]).parts:
        own = part.recording
        usage = own.usage[CPU]
        np.testing.assert_array_equal(usage.node, whole.node[part.nodes])
        for row, name in enumerate(own.pods.names):
            before = row_of[name]
            assert own.nodes.names[own.pods.node[row]] == recording.nodes.names[recording.pods.node[before]]
            owner, old = own.owners[own.pods.owner[row]], recording.owners[recording.pods.owner[before]]
            assert owner.uid == old.uid
            assert (owner.parent < 0) == (old.parent < 0)
            assert owner.parent < 0 or own.owners[owner.parent].uid == recording.owners[old.parent].uid
            assert (
                own.pod_templates[int(own.pods.template[row])]
                == recording.pod_templates[int(recording.pods.template[before])]
            )
            np.testing.assert_array_equal(
                usage.pod_values[usage.pod_start[row] : usage.pod_start[row + 1]],
                whole.pod_values[whole.pod_start[before] : whole.pod_start[before + 1]],
            )
            assert usage.pod_first[row] == whole.pod_first[before]
        assert len(own.nodes) == len(own.node_ready) == len(own.node_joined) == len(part.nodes)


def test_days_before_the_recording_are_of_the_parts_nodes_and_pods(recording: Recording) -> None:
    full_names = tuple(
        f"{recording.namespaces[namespace]}/{name}"
        for namespace, name in zip(recording.pods.namespace.tolist(), recording.pods.names, strict=True)
    )
    rows = np.arange(len(full_names), dtype=np.float32)
    block = DayBlock(
        day=1,
        pods=full_names,
        pod_millicores=np.repeat(rows[:, None], 288, axis=1),
        nodes=recording.nodes.names,
        node_millicores=np.repeat(np.arange(NODES, dtype=np.float32)[:, None], 288, axis=1),
    )
    part = split(replace(recording, before={CPU: (block,)}), [BOTH]).parts[1]
    own = part.recording.before[CPU][0]
    assert own.nodes == recording.nodes.names[8:]
    assert own.node_millicores[:, 0].tolist() == [8, 9]
    assert [full_names[int(row)] for row in own.pod_millicores[:, 0]] == list(own.pods)
    assert len(own.pods) == len(part.recording.pods)


def _without_selector(recording: Recording) -> Recording:
    return with_template(recording, a_template(recording), node_selector={})


def _spread_over_all(recording: Recording) -> Recording:
    spread = SpreadConstraint(topology_key="topology.kubernetes.io/zone", node_affinity_policy="Ignore")
    return with_template(recording, a_template(recording), topology_spread=(spread,))


def _a_budget_over_both(recording: Recording) -> Recording:
    # the pods of the first namespace that has some in both pools
    pools = {
        name: {
            recording.nodes.labels[node]["pool"]
            for node, namespace, owner in zip(
                recording.pods.node, recording.pods.namespace, recording.pods.owner, strict=True
            )
            if recording.namespaces[namespace] == name and recording.owners[owner].kind != "DaemonSet"
        }
        for name in recording.namespaces
    }
    namespace = next(name for name, found in pools.items() if len(found) == 2)
    desired = np.ones(recording.steps, dtype=np.int32)
    budget = RecordedBudget(namespace=namespace, name="all", selector=LabelSelector(), desired_healthy=desired)
    return replace(recording, budgets=(budget,))


def _a_quota_over_both(recording: Recording) -> Recording:
    namespace = _a_budget_over_both(recording).budgets[0].namespace
    quota = ResourceQuota(namespace=namespace, name="all", free={})
    return replace(recording, today=replace(recording.today, quotas=(quota,)))


def _a_pod_was_in_the_other_pool(recording: Recording) -> Recording:
    node = recording.pods.node.copy()
    row = int(np.flatnonzero(recording.pods.template == a_template(recording))[0])
    node[row] = 9 if node[row] < 8 else 0
    return replace(recording, pods=replace(recording.pods, node=node))


@pytest.mark.parametrize(
    "joined",
    [_without_selector, _spread_over_all, _a_budget_over_both, _a_quota_over_both, _a_pod_was_in_the_other_pool],
)
def test_pools_that_pods_budgets_or_quotas_join_are_one_part(recording: Recording, joined: Any) -> None:
    made = split(joined(recording), [BOTH])
    assert len(made.parts) == 1
    assert made.whole_because == "its pools share nodes, pods or budgets"


def test_a_taint_keeps_pools_apart_and_one_that_passes_does_not(recording: Recording) -> None:
    # no selectors: pods of the general pool don't tolerate the other pool's taint
    general = [index for index in range(len(recording.pod_templates)) if recording.pod_templates[index].node_selector]
    made = recording
    for index in general:
        compute = made.pod_templates[index].node_selector["pool"] == "compute"
        made = with_template(
            made,
            index,
            topology_spread=(),  # by default a spread sees nodes with taints too
            **({"tolerations": (Toleration(key="pool", operator="Exists"),)} if compute else {"node_selector": {}}),
        )
    for key, parts in (("pool", 2), ("node.kubernetes.io/unreachable", 1)):
        taints = tuple((Taint(key=key, effect="NoSchedule"),) if node >= 8 else () for node in range(NODES))
        tainted = replace(made, nodes=replace(made.nodes, taints=taints))
        assert len(split(tainted, [BOTH]).parts) == parts


def test_one_pool_of_any_policy_is_one_part(recording: Recording) -> None:
    assert len(split(recording, [BOTH, RebalancerPolicy.model_validate({**_document(BOTH), **ONE})]).parts) == 1


def _document(policy: RebalancerPolicy) -> Mapping[str, Any]:
    return policy.model_dump(mode="json", by_alias=True, exclude_unset=True)


def test_nodes_of_no_pool_are_with_the_smallest_part(recording: Recording) -> None:
    labels = tuple({**each, "pool": "none"} if node == 0 else each for node, each in enumerate(recording.nodes.labels))
    outside = replace(recording, nodes=replace(recording.nodes, labels=labels))
    pods = replace(recording.pods, node=np.where(recording.pods.node == 0, 1, recording.pods.node).astype(np.int32))
    parts = split(replace(outside, pods=pods), [BOTH]).parts
    assert [part.nodes.tolist() for part in parts] == [[0, 8, 9], list(range(1, 8))]


@pytest.mark.parametrize(
    ("sections", "because"),
    [
        ({"limits": {"cluster": {"inFlight": "10%"}}}, "limits.cluster has a percentage of what all parts have"),
        (
            {"limits": {"namespace": {"evictions": [{"max": "25%", "per": "1h"}]}}},
            "limits.namespace has a percentage of what all parts have",
        ),
        (
            {"strategies": [{"name": "HighNodeUtilization"}]},
            "maxConcurrentNodes of HighNodeUtilization counts nodes of all parts",
        ),
    ],
)
def test_what_counts_over_all_parts_makes_no_parts_and_is_named(
    recording: Recording, sections: Any, because: str
) -> None:
    made = split(recording, [policy_of("general", "compute", **sections)])
    assert (len(made.parts), made.whole_because) == (1, because)


def test_a_part_is_the_same_after_it_was_pickled(recording: Recording) -> None:
    part = split(recording, [BOTH]).parts[1].recording
    again = pickle.loads(pickle.dumps(part, protocol=5))
    assert again.pods.names == part.pods.names
    assert [again.pod_templates[at] for at in range(len(again.pod_templates))] == [
        part.pod_templates[at] for at in range(len(part.pod_templates))
    ]
    np.testing.assert_array_equal(again.usage[CPU].pod_values, part.usage[CPU].pod_values)


def test_runs_of_parts_are_one_run(recording: Recording) -> None:
    parts = split(recording, [BOTH]).parts
    first, second = eviction_at(START + 600), eviction_at(START + 630)
    cycles = (
        (ReplayedCycle(at=START + 600, trigger="periodic", hot=2, evicted=1),),
        (
            ReplayedCycle(at=START + 600, trigger="periodic", hot=1, evicted=0, stopped="data is stale"),
            ReplayedCycle(at=START + 660, trigger="periodic", hot=0, evicted=1),
        ),
    )
    run = merge(
        [run_of(parts[0], second, cycles=cycles[0]), run_of(parts[1], first, cycles=cycles[1])], parts, recording
    )
    assert run.share.shape == (NODES, recording.steps)
    assert run.share[:, 0].tolist() == pytest.approx([node / 100 for node in range(NODES)])
    assert run.hot_node_minutes == NODES * recording.steps
    assert run.evictions == (first, second)
    assert run.most_in_flight == 2
    assert [(each.at, each.hot, each.evicted, each.stopped) for each in run.cycles] == [
        (START + 600, 3, 1, ""),
        (START + 660, 0, 1, ""),
    ]
    assert run.notes == ("a note",)


def test_a_merged_run_ends_where_the_first_part_stopped(recording: Recording) -> None:
    parts = split(recording, [BOTH]).parts
    late = eviction_at(START + 1200)
    run = merge([run_of(parts[0], late), run_of(parts[1], until=START + 900)], parts, recording)
    assert run.until == START + 900
    assert run.evictions == ()
    assert np.isfinite(run.share[:, :3]).all()
    assert np.isnan(run.share[:, 3:]).all()
    assert run.hot_node_minutes == 3 * NODES


@pytest.mark.parametrize(
    ("limits", "gap", "what"),
    [
        ({"cluster": {"inFlight": 2}}, 10.0, ""),
        ({"cluster": {"inFlight": 1}}, 10.0, "inFlight of cluster"),
        ({"cluster": {"inFlight": 1}}, 100.0, ""),
        ({"cluster": {"spacing": "1m"}}, 10.0, "spacing of cluster"),
        ({"cluster": {"spacing": "1m"}}, 100.0, ""),
        ({"cluster": {"evictions": [{"max": 1, "per": "5m"}]}}, 100.0, "evictions of cluster"),
        ({"cluster": {"evictions": [{"max": 1, "per": "5m"}]}}, 300.0, ""),
        ({"namespace": {"spacing": "1m"}}, 10.0, "spacing of namespace n0"),
    ],
)
def test_a_limit_that_only_all_parts_together_went_over_is_named(
    recording: Recording, limits: Any, gap: float, what: str
) -> None:
    parts = split(recording, [BOTH]).parts
    runs = [run_of(parts[0], eviction_at(START)), run_of(parts[1], eviction_at(START + gap))]
    assert exceeded(runs, policy_of("general", "compute", limits=limits)) == what


def test_one_part_alone_goes_over_no_limit_together(recording: Recording) -> None:
    parts = split(recording, [BOTH]).parts
    runs = [run_of(parts[0], *(eviction_at(START + at) for at in range(9))), run_of(parts[1])]
    assert exceeded(runs, policy_of("general", "compute", limits={"cluster": {"inFlight": 1}})) == ""


def test_evictions_of_a_cycle_and_late_replacements_count_together(recording: Recording) -> None:
    parts = split(recording, [BOTH]).parts
    cycles = tuple(ReplayedCycle(at=START, trigger="periodic", hot=1, evicted=count) for count in (6, 5))
    runs = [
        run_of(part, eviction_at(START + 1000 * at, late=True), cycles=(cycles[at],)) for at, part in enumerate(parts)
    ]
    assert exceeded(runs, BOTH) == "limits.perCycle"
    runs = [replace(run, cycles=(), evictions=(*run.evictions, *run.evictions)) for run in runs]
    assert exceeded(runs, BOTH) == "safety.circuitBreaker.lateInCluster"
