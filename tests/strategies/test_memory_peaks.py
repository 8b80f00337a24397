"""Expected peaks of memory beside measured memory: landings, the memory that stays available, and relief ahead."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import MIB
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.strategies import Findings
from rebalancer.strategies.interface.resources import expected_by_resource, memory_reserve
from rebalancer.strategies.utilization.low_node_utilization import find
from tests.builders import (
    GIB,
    NOW,
    APod,
    Outcome,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    planner_for,
    usage_of,
    view_of,
)

WHOLE = 20.0
"""GiB of each node."""


def peaks_in(made: ClusterSnapshot, nodes: Mapping[str, float], pods: float = 1.0) -> Peaks:
    """GiB, in MiB as forecasts have them; CPU's peaks aren't known."""
    node = np.array([nodes.get(name, np.nan) for name in made.nodes.names]) * GIB / MIB
    pod = np.full(len(made.pods), pods * GIB / MIB)
    unknown = Peaks(
        made_at=NOW,
        starts_at=NOW,
        expected=np.full((len(node), 2), np.nan, dtype=np.float32),
        node_millicores=np.full(len(node), np.nan),
        node_at=np.full(len(node), 36_000.0),
        relief_millicores=np.full(len(pod), np.nan),
        pod_millicores=np.full(len(pod), np.nan),
    )
    memory = replace(
        unknown,
        expected=np.repeat(node[:, None], 2, axis=1).astype(np.float32),
        node_millicores=node,
        relief_millicores=pod,
        pod_millicores=pod,
    )
    return replace(unknown, resources={MEMORY: memory})


class Scene:
    """Nodes `hot` (by CPU), and cool ones; memory in GiB."""

    def __init__(
        self,
        memory: Mapping[str, float],
        peaks: Mapping[str, float],
        *,
        due: Sequence[str] = (),
        hot: float = 13_000.0,
        marks: Mapping[str, float] | None = None,
    ) -> None:
        names = list(memory)
        nodes = [a_node(name, used=hot if name == "hot" else 2_000.0) for name in names]
        pods: list[APod] = [a_pod(f"p{at}", "hot", owner=f"own{at}", used=1_500.0) for at in range(2)]
        resources = {} if marks is None else {MEMORY: marks}
        self.policy = a_policy(
            pools=[
                {
                    "name": "general",
                    "selector": {"matchLabels": {"pool": "general"}},
                    "thresholds": {"high": 75, "target": 65, "low": 50, "resources": resources},
                }
            ],
            guards={"minReplicas": 1},
        )
        self.made = cluster(nodes, pods)
        used = ResourceUsage(
            node=np.array(list(memory.values())) * GIB,
            capacity=np.full(len(names), WHOLE * GIB),
            pod=np.full(len(pods), 1.0 * GIB),
            samples=np.repeat(np.array([list(memory.values())]) * GIB, 5, axis=0),
        )
        self.usage = usage_of(self.made, nodes, pods, resources={MEMORY: used})
        self.peaks = peaks_in(self.made, peaks)
        index = self.made.node_index
        self.view = view_of(
            self.made, self.usage, self.policy, peaks=self.peaks, due=frozenset((index[name], MEMORY) for name in due)
        )

    def find(self) -> Findings:
        return find(self.view)

    def plan(self) -> Outcome:
        expected = expected_by_resource(self.made, self.view.node_pools, self.usage)
        least = self.policy.guards.min_memory_available / 100
        options: dict[str, Any] = {
            "base": self.view.base,
            "found": [self.find()],
            "reserve": memory_reserve(self.made, self.usage, expected, least=least, now=NOW, peaks=self.peaks),
        }
        return carry_out(planner_for(self.made, self.usage, self.policy, **options), self.made)


MARKS = {"high": 85.0, "target": 75.0, "low": 60.0}


def test_no_landing_takes_a_node_over_its_target_of_memory_at_its_peak() -> None:
    """Now the node is at 25%, and with the pod at 30%."""
    assert Scene({"hot": 5, "cold": 5}, {"hot": 5, "cold": 13.9}, marks=MARKS).plan().pods
    outcome = Scene({"hot": 5, "cold": 5}, {"hot": 5, "cold": 14.5}, marks=MARKS).plan()
    assert outcome.pods == []
    (refusal, *_) = outcome.planner.outcome.refusals()
    assert refusal.code == "NoNodeWithHeadroom"
    assert "cold would be at 77.5% of its memory at its peak, its target is 75%" in refusal.message


def test_without_a_forecast_of_memory_landings_are_judged_by_what_is_measured() -> None:
    assert Scene({"hot": 5, "cold": 5}, {}, marks=MARKS).plan().pods


def test_the_memory_that_must_stay_available_does_at_the_expected_peak() -> None:
    """Without thresholds of memory: 18 of 20 GiB may be in use."""
    assert Scene({"hot": 5, "cold": 5}, {"hot": 5, "cold": 16.9}).plan().pods
    outcome = Scene({"hot": 5, "cold": 5}, {"hot": 5, "cold": 17.5}).plan()
    assert set(outcome.refusals.values()) == {"NoNodeWithMemory"}
    (refusal, *_) = outcome.planner.outcome.refusals()
    assert "cold would keep 7.5% of its memory (1.5Gi of 20Gi), at least 10%" in refusal.message


def test_a_node_is_relieved_ahead_of_its_peak_of_memory() -> None:
    quiet: dict[str, Any] = {"hot": 2_000.0, "marks": MARKS}
    scene = Scene({"hot": 15, "cold": 5}, {"hot": 18, "cold": 6}, due=["hot"], **quiet)
    (finding,) = scene.find().findings
    assert finding.resource == MEMORY
    assert finding.reason == ("memory peak of 90% expected at 1970-01-01 10:00 UTC, over high 85%, to be cooled to 75%")
    assert scene.plan().pods
    assert Scene({"hot": 15, "cold": 5}, {"hot": 18, "cold": 6}, **quiet).find().findings == ()


def test_a_node_that_is_hot_by_memory_is_relieved_of_its_peak_too_when_it_is_due() -> None:
    scene = Scene({"hot": 17.5, "cold": 5}, {"hot": 19, "cold": 6}, due=["hot"], hot=2_000.0, marks=MARKS)
    (finding,) = scene.find().findings
    assert finding.reason == (
        "real memory 87.5% is over high 85%, to be cooled to 75%; "
        "a memory peak of 95% is expected at 1970-01-01 10:00 UTC"
    )


def test_one_hot_reading_of_cpu_is_no_finding_where_the_node_is_due_by_memory() -> None:
    scene = Scene({"hot": 15, "cold": 5}, {"hot": 18, "cold": 6}, due=["hot"], marks=MARKS)
    samples = scene.usage.samples.copy()
    samples[:-1, scene.made.node_index["hot"]] = 2_000.0
    (finding,) = find(replace(scene.view, usage=replace(scene.usage, samples=samples))).findings
    assert (finding.resource, finding.others) == (MEMORY, ())
    assert "CPU" not in finding.reason
    (steady,) = scene.find().findings
    assert steady.resource == "cpu"


def test_a_node_that_is_due_by_memory_is_not_relieved_of_a_peak_of_cpu_far_ahead() -> None:
    scene = Scene({"hot": 15, "cold": 5}, {"hot": 18, "cold": 6}, due=["hot"], hot=2_000.0, marks=MARKS)
    node, of_pod = np.array([13_000.0, 2_000.0]), np.full(len(scene.made.pods), 1_500.0)
    peaks = replace(
        scene.peaks,
        expected=np.repeat(node[:, None], 2, axis=1).astype(np.float32),
        node_millicores=node,
        relief_millicores=of_pod,
        pod_millicores=of_pod,
    )
    view = replace(scene.view, peaks=peaks)
    (finding,) = find(view).findings
    assert finding.resource == MEMORY
    assert "; a peak of" not in finding.reason
    (both,) = find(replace(view, due=view.due | {(0, "cpu")})).findings
    assert "peak of 81.2% expected" in both.reason


def test_a_pod_relieves_the_peak_of_memory_by_what_its_node_is_free_of_afterwards() -> None:
    """Of 6 GiB of the working sets 0.5 and 3 are anonymous memory; the rest is cache."""
    scene = Scene({"hot": 15, "cold": 5}, {"hot": 18, "cold": 6}, due=["hot"], hot=2_000.0, marks=MARKS)
    sizes, memory = np.full(2, 6.0 * GIB), scene.usage.resources[MEMORY]

    def relieved(anonymous: Sequence[float]) -> list[float]:
        used = replace(memory, pod=sizes, relief=np.array(anonymous) * GIB)
        loads = find(replace(scene.view, usage=replace(scene.usage, resources={MEMORY: used}))).loads
        assert loads is not None
        return (loads.relieved[:, loads.resources.index("memory at its peak")] / GIB).tolist()

    # at its peak each uses 1 GiB
    assert relieved([0.5, 3.0]) == pytest.approx([1 / 12, 0.5])
    assert relieved([np.nan, 9.0]) == [1.0, 1.0]
