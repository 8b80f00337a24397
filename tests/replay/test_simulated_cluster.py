"""The simulated cluster: what runs where, what it uses, and what an eviction does to it."""

import numpy as np
import pytest

from rebalancer.model.cluster.owners import Service
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.replay.cycles.ports import ReplayedCluster, ReplayedEvictor, ReplayedTaints
from rebalancer.replay.cycles.usage import ReplayedUsage
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import loads_of
from rebalancer.replay.simulation.pods import NEVER
from tests.replay.builders import START, Recorded, RecordedPod, policy, recording

MINUTE = 60.0


def simulated(found: Recording, *, joined: bool = True, as_recorded: bool = False) -> SimulatedCluster:
    return SimulatedCluster(
        found,
        loads_of(found, joined=joined),
        seed=0,
        scheduler=SchedulerConfig(),
        as_recorded=as_recorded,
    )


def usage_source() -> UsageSource:
    return policy().usage


def eviction_of(cluster: SimulatedCluster, name: str) -> Eviction:
    row = cluster.state.pods.names.index(name)
    return Eviction(
        namespace="shop",
        pod=name,
        uid=cluster.state.pods.uids[row],
        node=cluster.recording.nodes.names[int(cluster.state.pods.node[row])],
        pool="general",
        service=Service(kind="Deployment", namespace="shop", name="web"),
        strategy="LowNodeUtilization",
        reason="hot",
    )


def web(count: int, node: int = 0, **fields: object) -> list[RecordedPod]:
    return [RecordedPod(name=f"web-1-{node}{at}", node=node, **fields) for at in range(count)]  # type: ignore[arg-type]


def test_without_evictions_every_node_uses_what_was_recorded() -> None:
    random = np.random.default_rng(1)
    pods = [
        RecordedPod(name=f"web-1-{at}", node=at % 2, cpu=random.uniform(100, 900, 24).tolist(), begins=-5, ends=NEVER)
        for at in range(9)
    ]
    found = recording(Recorded(pods=pods, elsewhere=300.0))
    cluster = simulated(found)
    cluster.run_to(found.end)
    recorded = found.usage["cpu"].node / found.nodes.cpu_capacity_millicores[:, None]
    np.testing.assert_allclose(cluster.share, recorded, rtol=1e-4)


def test_a_pod_uses_what_was_recorded_of_the_steps_in_which_it_came_and_ended() -> None:
    means = [0.0, 0.0, 600.0, 1000.0, 1000.0, 1000.0, 700.0, 0.0]
    pods = [RecordedPod(name="web-1-0", cpu=means, begins=2.4, ends=6.7), RecordedPod(name="web-1-1", cpu=500.0)]
    found = recording(Recorded(nodes=1, steps=8, pods=pods))
    cluster = simulated(found)
    cluster.run_to(START + 3 * STEP_SECONDS - 60.0)
    before = cluster.counters.value.copy()
    cluster.run_to(START + 3 * STEP_SECONDS - 1.0)
    np.testing.assert_allclose((cluster.counters.value - before) / 59.0, [1500.0])
    cluster.run_to(found.end)
    np.testing.assert_allclose(cluster.share, found.usage["cpu"].node / 10_000.0, rtol=1e-4)


def test_an_evicted_pods_load_goes_along_and_its_siblings_carry_it_meanwhile() -> None:
    found = recording(Recorded(nodes=3, pods=[*web(2, node=0), *web(1, node=1)]))
    cluster = simulated(found)
    cluster.run_to(START + 600.0)
    ReplayedTaints(cluster).put("node-0", value="hot")
    assert ReplayedEvictor(cluster).evict(eviction_of(cluster, "web-1-00")).outcome is Outcome.EVICTED
    replacement = int(cluster.state.current[0])
    cluster.run_to(START + 600.0 + 20.0)  # the evicted pod is gone, its replacement isn't Ready
    assert cluster.state.pods.node[replacement] == 2
    before = cluster.counters.value.copy()
    cluster.run_to(cluster.now + 5.0)
    np.testing.assert_allclose((cluster.counters.value - before) / 5.0, [1500.0, 1500.0, 0.0])
    cluster.run_to(START + 900.0)
    before = cluster.counters.value.copy()
    cluster.run_to(START + 960.0)
    np.testing.assert_allclose((cluster.counters.value - before) / 60.0, [1000.0, 1000.0, 1000.0])


def test_the_rate_window_still_shows_a_pod_that_has_left() -> None:
    found = recording(Recorded(nodes=2, pods=web(2, node=0, request=4000.0)))
    cluster = simulated(found)
    cluster.run_to(START + 900.0)
    ReplayedEvictor(cluster).evict(eviction_of(cluster, "web-1-00"))
    cluster.run_to(START + 900.0 + 100.0)
    reader = ReplayedCluster(cluster)
    usage = ReplayedUsage(cluster, usage_source()).read(reader.snapshot())
    # it ran for 10 s longer; since then its sibling carries its load until the replacement is Ready
    assert usage.node_cpu_millicores[0] > 1600.0
    names = reader.snapshot().pods.names
    assert usage.pod_cpu_millicores[names.index("web-1-01")] == pytest.approx(1000.0)
    replacement = next(name for name in names if name.startswith("web-1-r"))
    assert usage.pod_cpu_millicores[names.index(replacement)] == pytest.approx(1000.0 * 69.0 / 300.0, rel=0.02)


def test_a_disruption_budget_refuses_what_the_api_server_would_refuse() -> None:
    found = recording(Recorded(pods=web(3, node=0), budgets={"web": 2}))
    cluster = simulated(found)
    cluster.run_to(START + 600.0)
    evictor = ReplayedEvictor(cluster)
    assert ReplayedCluster(cluster).snapshot().budgets[0].disruptions_allowed == 1
    assert evictor.evict(eviction_of(cluster, "web-1-00")).outcome is Outcome.EVICTED
    refused = evictor.evict(eviction_of(cluster, "web-1-01"))
    assert refused.outcome is Outcome.REFUSED
    assert ReplayedCluster(cluster).snapshot().budgets[0].disruptions_allowed == 0
    cluster.run_to(cluster.now + 120.0)
    assert evictor.evict(eviction_of(cluster, "web-1-01")).outcome is Outcome.EVICTED


def test_replicas_are_those_that_the_recording_wants() -> None:
    pods = [*web(3, node=0), RecordedPod(name="web-1-late", begins=10.5), RecordedPod(name="web-1-ends", ends=12.2)]
    cluster = simulated(recording(Recorded(pods=pods)))

    def replicas() -> tuple[int | None, int | None]:
        snapshot = ReplayedCluster(cluster).snapshot()
        owner = next(each for each in snapshot.owners if each.kind == "Deployment")
        return owner.desired, owner.ready

    cluster.run_to(START + 600.0)
    assert replicas() == (4, 4)
    ReplayedEvictor(cluster).evict(eviction_of(cluster, "web-1-00"))
    assert replicas() == (4, 3)
    cluster.run_to(START + 11 * STEP_SECONDS)
    assert replicas() == (5, 5)
    cluster.run_to(START + 13 * STEP_SECONDS)
    assert replicas() == (4, 4)


def test_pods_of_a_node_that_leaves_run_elsewhere_unless_they_ended_with_it() -> None:
    pods = [RecordedPod(name="web-1-stays", node=1), RecordedPod(name="web-1-ends", node=0, ends=10.0)]
    found = recording(Recorded(nodes=2, pods=pods, leaves={0: 10.0}))
    cluster = simulated(found)
    cluster.run_to(START + 600.0)
    # moved to the node that will leave
    ReplayedTaints(cluster).put("node-1", value="hot")
    ReplayedEvictor(cluster).evict(eviction_of(cluster, "web-1-stays"))
    cluster.run_to(START + 9 * STEP_SECONDS)
    assert ReplayedTaints(cluster).take("node-1")
    assert cluster.state.pods.node[cluster.state.current[0]] == 0
    cluster.run_to(START + 12 * STEP_SECONDS)
    snapshot = ReplayedCluster(cluster).snapshot()
    assert snapshot.nodes.names == ("node-1",)
    assert len(snapshot.pods) == 1
    assert snapshot.pods.node.tolist() == [0]
    assert snapshot.pods.ready.tolist() == [True]


def test_a_chain_of_recorded_evictions_is_one_load_and_happens_again_only_as_recorded() -> None:
    pods = [
        RecordedPod(name="web-1-old", node=0, ends=6.0, cpu=2000.0),
        RecordedPod(name="web-1-new", node=1, begins=6.0, cpu=2000.0, replaced="web-1-old"),
    ]
    found = recording(Recorded(pods=pods))
    joined = simulated(found)
    joined.run_to(found.end)
    np.testing.assert_allclose(joined.share[:, 12], [0.2, 0.0])
    again = simulated(found, joined=False, as_recorded=True)
    again.run_to(found.end)
    np.testing.assert_allclose(again.share[:, 12], [0.0, 0.2])
    np.testing.assert_allclose(again.share[:, 2], [0.2, 0.0])


def test_pods_of_a_foreign_scheduler_come_back_to_their_node_and_a_note_says_what_that_means() -> None:
    pods = [
        RecordedPod(name="web-1-0", service="web", node=0, scheduler="volcano"),
        *(RecordedPod(name=f"api-1-{at}", service="api", node=1, begins=1.0) for at in range(3)),
    ]
    found = recording(Recorded(pods=pods))
    cluster = simulated(found)
    cluster.run_to(START + 600.0)
    assert cluster.scheduling.notes() == ()
    assert ReplayedEvictor(cluster).evict(eviction_of(cluster, "web-1-0")).outcome is Outcome.EVICTED
    cluster.run_to(START + 900.0)
    assert cluster.state.pods.node[cluster.state.current[0]] == 0
    (note,) = cluster.scheduling.notes()
    assert note == (
        "1 of 4 placed pods (25%) went where they had been: their scheduler or volumes are not modelled. Also after an "
        "eviction they come back to the recorded node, and the room there is as recorded, so the result is nearer to "
        "the recorded run than it would have been"
    )


def test_a_pod_waits_until_there_is_room() -> None:
    pods = [
        RecordedPod(name="web-1-big", node=0, request=9000.0, ends=8.0),
        RecordedPod(name="api-1-wide", node=0, service="api", request=5000.0, begins=8.2),
        RecordedPod(name="web-1-one", node=1, request=9000.0),
    ]
    found = recording(Recorded(pods=pods))
    cluster = simulated(found)
    cluster.run_to(START + 600.0)
    ReplayedEvictor(cluster).evict(eviction_of(cluster, "web-1-one"))
    cluster.run_to(START + 620.0)
    # its own node was the only one with room
    assert cluster.state.pods.node[cluster.state.current[2]] == 1
    cluster.run_to(START + 10 * STEP_SECONDS)
    assert cluster.state.pods.node[cluster.state.current[1]] == 0
    assert not cluster.state.waiting


def test_cordons_and_conditions_are_those_of_the_step() -> None:
    found = recording(Recorded(pods=web(1), cordoned={1: (6, 12)}))
    cluster = simulated(found)

    def cordoned() -> list[bool]:
        flags: list[bool] = ReplayedCluster(cluster).snapshot().nodes.unschedulable.tolist()
        return flags

    cluster.run_to(START + 5 * STEP_SECONDS)
    assert cordoned() == [False, False]
    cluster.run_to(START + 8 * STEP_SECONDS)
    assert cordoned() == [False, True]
    cluster.run_to(START + 13 * STEP_SECONDS)
    assert cordoned() == [False, False]
