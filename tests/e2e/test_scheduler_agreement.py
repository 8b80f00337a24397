"""Our model of kube-scheduler against the real one, live: random clusters that mix everything it looks at.

KUBEBUILDER_ASSETS=/path/to/bin python -m pytest tests/e2e/test_scheduler_agreement.py -s
"""

import pytest

from tests.real.builders.profiles import PROFILES
from tests.real.oracles.agreement import compare
from tests.real.readers.decisions import Json, record
from tests.real.servers.scheduler import assets_with_scheduler

RUNS: dict[str, tuple[int, int, int, list[Json]]] = {
    "30 nodes": (2, 30, 280, []),
    "30 nodes, three profiles": (4, 30, 150, PROFILES),
    "150 nodes, of which a sample is scored": (3, 150, 120, []),
}
"""Seed, nodes, pods, profiles."""


@pytest.mark.real
@pytest.mark.parametrize(("seed", "nodes", "pods", "profiles"), RUNS.values(), ids=RUNS)
def test_the_model_filters_scores_and_chooses_as_kube_scheduler_does(
    seed: int, nodes: int, pods: int, profiles: list[Json]
) -> None:
    assets_with_scheduler()
    recording = record(seed=seed, nodes=nodes, pods=pods, profiles=profiles)
    agreement = compare(recording)
    print(f"\nkube-scheduler {recording.kubernetes}, {nodes} nodes: {agreement}")
    print(f"scores by plugin: {dict(agreement.plugins)}; nodes refused by filter: {dict(agreement.refusals)}")
    assert not agreement.disagreements, "\n".join(agreement.disagreements)
    assert agreement.placed > pods / 2
    assert (agreement.sampled > 0) == (nodes > 100)
