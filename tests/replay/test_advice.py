"""Advice by replays of changed recordings: Jobs that may be evicted, and requests that pods lack."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench.replays.cluster import make
from rebalancer.bootstrap.recordings.replay import replay
from rebalancer.model.cluster.annotations import EVICT_JOB
from rebalancer.model.cluster.owners import Owner, Service
from rebalancer.model.recordings.jobs import with_failure_policies
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import Replay
from rebalancer.replay.advice.changes import CpuRequests, EvictableJobs, services_of
from rebalancer.replay.advice.jobs import JobAdvice, advise_jobs
from rebalancer.replay.advice.requests import advise_requests, proposals
from rebalancer.replay.comparison.variants import Variant
from rebalancer.replay.runner.split import split
from tests.replay.builders import Recorded, RecordedPod, policy, recording
from tests.replay.test_split import policy_of

POLICY = policy()
STILL = policy(guards={"minReplicas": 100})
"""Evicts nothing."""
BATCH, WEB = (
    Service(kind="Job", namespace="shop", name="batch"),
    Service(kind="Job", namespace="shop", name="web"),
)


def a_job(name: str, **fields: Any) -> RecordedPod:
    return RecordedPod(**{"name": name, "service": "batch", "kind": "Job", "cpu": 4_500.0, **fields})


def advised_jobs(made: Recording, *, most: int = 5) -> JobAdvice:
    found = advise_jobs(made, POLICY, run=partial(replay, made, POLICY), most=most)
    assert found is not None
    return found


def with_cron_jobs(made: Recording) -> Recording:
    """Each Job made by the CronJob of its name."""
    count = len(made.owners)
    owners = [replace(each, name=f"{each.name}-1", parent=count + at) for at, each in enumerate(made.owners)]
    return replace(
        made, owners=(*owners, *(replace(each, kind="CronJob", uid=f"c-{each.uid}") for each in made.owners))
    )


def test_a_job_whose_pods_keep_a_node_hot_frees_it_once_they_may_be_evicted() -> None:
    found = advised_jobs(recording(Recorded(nodes=3, pods=[a_job("batch-a"), a_job("batch-b")])))
    (line,) = found.jobs
    assert (line.kind, line.namespace, line.name, line.nodes) == ("Job", "shop", "batch", 1)
    assert found.unchanged.evictions == 0
    assert 1.5 < line.held_node_hours <= found.unchanged.hot_node_hours
    assert found.all_evictable is not None
    assert line.evictable == found.all_evictable
    assert found.all_evictable.evictions == 1
    assert found.all_evictable.hot_node_hours < found.unchanged.hot_node_hours - 1
    (rule,) = line.patch["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert line.patch["spec"]["template"]["metadata"]["annotations"] == {EVICT_JOB: "true"}


def test_cron_jobs_that_hold_most_come_first_and_are_replayed_alone() -> None:
    pods = [
        *(a_job(f"batch-{at}", node=0) for at in range(2)),
        *(a_job(f"night-{at}", service="night", node=1, begins=12.0) for at in range(2)),
    ]
    made = with_cron_jobs(recording(Recorded(nodes=5, pods=pods)))
    found = advised_jobs(made, most=1)
    assert [(each.kind, each.name) for each in found.jobs] == [("CronJob", "batch"), ("CronJob", "night")]
    first, second = found.jobs
    assert first.held_node_hours > second.held_node_hours > 0
    assert "podFailurePolicy" in first.patch["spec"]["jobTemplate"]["spec"]
    assert second.evictable is None
    assert first.evictable is not None
    assert found.all_evictable is not None
    assert (first.evictable.evictions, found.all_evictable.evictions) == (1, 2)
    assert found.all_evictable.hot_node_hours < first.evictable.hot_node_hours < found.unchanged.hot_node_hours


def test_what_keeps_nodes_hot_once_jobs_may_be_evicted_is_named() -> None:
    made = recording(Recorded(nodes=5, pods=[a_job(f"batch-{at}", node=at // 2) for at in range(4)]))
    strict = policy(limits={"service": {"evictions": [{"max": 1, "per": "1d"}]}})
    found = advise_jobs(made, strict, run=partial(replay, made, strict), most=5)
    assert found is not None
    assert found.all_evictable is not None
    assert found.all_evictable.evictions == 1
    assert [each.code for each in found.blocked][:1] == ["LimitService"]
    assert found.blocked[0].hot_node_hours > 1.5


def test_without_a_job_that_keeps_a_node_hot_there_is_one_replay() -> None:
    made = recording(Recorded(nodes=2, pods=[a_job("batch-a")]))
    asked = list[Sequence[Variant]]()

    def run(variants: Sequence[Variant]) -> Replay | None:
        asked.append(variants)
        return replay(made, POLICY, variants)

    found = advise_jobs(made, POLICY, run=run, most=5)
    assert found is not None
    assert (found.jobs, found.all_evictable, len(asked)) == ((), None, 1)
    assert advise_jobs(made, POLICY, run=lambda _: None, most=5) is None
    assert advise_requests(made, POLICY, run=lambda _: None, most=5) is None


def test_only_the_pods_of_these_jobs_are_changed() -> None:
    made = recording(Recorded(pods=[a_job("a"), a_job("b", service="other"), RecordedPod(name="c")]))
    changed = EvictableJobs(frozenset({BATCH}))(made)
    noted = [changed.pod_templates[index].annotations for index in changed.pods.template.tolist()]
    assert noted == [{EVICT_JOB: "true"}, {}, {}]
    assert {each.name for each in changed.owners if each.spares_disruptions} == {"batch"}
    assert EvictableJobs(frozenset())(made).pods.template.tolist() == made.pods.template.tolist()


def test_a_recorded_job_has_the_failure_policy_of_todays() -> None:
    def owner(kind: str, name: str, parent: int = -1, **fields: Any) -> Owner:
        return Owner(kind=kind, namespace="shop", name=name, uid=f"{kind}-{name}", parent=parent, **fields)

    made = recording(Recorded(pods=[RecordedPod(name="p")]))
    today = replace(
        made.today,
        owners=(
            owner("CronJob", "night"),
            owner("Job", "night-2", 0, spares_disruptions=True),
            owner("Job", "once", spares_disruptions=True),
        ),
    )
    owners = (owner("CronJob", "night"), owner("Job", "night-1", 0), owner("Job", "once"), owner("Job", "gone"))
    assert [each.spares_disruptions for each in with_failure_policies(owners, today)] == [False, True, True, False]


# ---- requests


def heaped(**fields: Any) -> Recording:
    """Five pods arrive; by requests the node without others is the emptiest for all of them. Default spreading, which
    would place them apart, leaves out pods of Jobs."""
    web = [
        RecordedPod(
            **{"name": f"web-{at}", "kind": "Job", "cpu": 1_900.0, "request": 100.0, "begins": 2.0 + at, **fields}
        )
        for at in range(5)
    ]
    others = [RecordedPod(name=f"idle-{at}", service="idle", node=at, cpu=500.0, request=5_000.0) for at in (1, 2)]
    return recording(Recorded(nodes=3, pods=[*web, *others]))


def test_pods_that_request_what_they_use_are_placed_apart() -> None:
    made = heaped()
    found = advise_requests(made, STILL, run=partial(replay, made, STILL), most=5)
    assert found is not None
    (line,) = found.services
    assert (line.kind, line.name, line.pods) == ("Job", "web", 5)
    assert (line.request_millicores, line.proposed_millicores) == (100, 1_900)
    assert line.patch["spec"]["template"]["spec"]["resources"] == {"requests": {"cpu": "1900m"}}
    assert line.proposed == found.all_proposed is not None
    assert line.proposed is not None
    assert line.proposed.hot_node_hours == 0 < found.unchanged.hot_node_hours
    assert line.proposed.waiting_pod_hours == 0


def test_pods_that_find_no_node_with_the_proposed_requests_are_counted() -> None:
    made = heaped()
    made = replace(made, nodes=replace(made.nodes, cpu_allocatable_millicores=np.full(3, 5_500.0)))
    found = advise_requests(made, STILL, run=partial(replay, made, STILL), most=5)
    assert found is not None
    assert found.all_proposed is not None
    # two of the five have room beside each other, and three wait for more than an hour
    assert found.unchanged.waiting_pod_hours == 0
    assert found.all_proposed.waiting_pod_hours == pytest.approx(4.5, abs=0.5)


@pytest.mark.parametrize(
    ("fields", "proposed"),
    [
        ({}, [1_900]),
        # 1.5 times as much is far more
        ({"request": 1_267.0}, []),
        ({"request": 1_266.0}, [1_900]),
        # no node was hot
        ({"cpu": 1_000.0}, []),
        ({"kind": "DaemonSet"}, []),
        # the percentile of all of them
        ({"cpu": [0.0] * 10 + [1_900.0] * 10 + [2_000.0] * 4}, [2_000]),
    ],
)
def test_a_proposal_is_the_95th_percentile_of_what_pods_use(fields: dict[str, Any], proposed: list[float]) -> None:
    made = heaped(**fields)
    assert [each.proposed for each in proposals(made, POLICY).values()] == proposed


def test_only_the_pods_of_these_services_have_other_requests() -> None:
    changed = CpuRequests({WEB: 1_500.0})(heaped())
    cpu = [changed.pod_templates[index].cpu_request_millicores for index in changed.pods.template.tolist()]
    assert cpu == [1_500.0] * 5 + [5_000.0] * 2
    assert {str(each): len(rows) for each, rows in services_of(changed).items()} == {"shop/web": 5, "shop/idle": 2}


def test_a_change_of_parts_in_other_processes_is_that_of_the_whole() -> None:
    made = make(10, 120, 0.25, 1)
    services = list(services_of(made))
    jobs = frozenset(each for each in services if each.kind in ("Job", "CronJob"))
    parts = split(made, [policy_of("general", "compute")]).parts
    assert len(parts) == 2
    for change in (CpuRequests(dict.fromkeys(services[:9], 1_500.0)), EvictableJobs(jobs)):
        whole = described(change(made))
        assert whole != described(made)
        sent = pickle.loads(pickle.dumps(change))
        assert {uid: row for part in parts for uid, row in described(sent(part.recording)).items()} == whole


def described(found: Recording) -> dict[str, tuple[float, bool, bool]]:
    """UID of each pod -> what changes of it."""
    pods, out = found.pods, dict[str, tuple[float, bool, bool]]()
    for row, uid in enumerate(pods.uids):
        template = found.pod_templates[int(pods.template[row])]
        spares = bool(pods.owner[row] >= 0) and found.owners[int(pods.owner[row])].spares_disruptions
        out[uid] = (template.cpu_request_millicores, EVICT_JOB in template.annotations, spares)
    return out
