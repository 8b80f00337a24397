"""500 replacements in a row on 300 nodes: the counts per node of a real kube-scheduler against the draws of a plan.

KUBEBUILDER_ASSETS=/path/to/bin python -m pytest tests/e2e/test_scheduler_sequence.py -s
"""

import time

import pytest

from tests.real.oracles.counts import counts_of
from tests.real.readers.sequence import replaced_in_a_row
from tests.real.servers.scheduler import assets_with_scheduler

REPLACED, NODES = 500, 300
LEAST_P = 0.01
MOST_DEVIATIONS = 4.0
"""Standard deviations of a group of nodes; ten groups in each of two runs."""


@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_replacements_in_a_row_land_as_the_draws_say(seed: int) -> None:
    assets_with_scheduler()
    sequence = replaced_in_a_row(seed=seed, nodes=NODES, services=400, replicas=2, replaced=REPLACED)
    began = time.monotonic()
    counts = counts_of(sequence)
    print(
        f"\nseed {seed}: {REPLACED} replacements on {NODES} nodes in {sequence.seconds:.0f} s, drawn in "
        f"{time.monotonic() - began:.0f} s; chi-square {counts.distance:.0f} of {NODES} nodes, p {counts.p_value:.3f}; "
        f"without the landings before {counts.distance_alone:.0f}"
    )
    print("groups: " + ", ".join(f"{real:.0f} of {mean:.1f} ± {spread:.1f}" for real, mean, spread in counts.groups))
    print(f"most on a node: {counts.real.max():.0f}, in the draws {counts.drawn.max(axis=1).mean():.1f}")
    assert counts.real.sum() == REPLACED
    assert counts.p_value >= LEAST_P
    for real, mean, spread in counts.groups:
        assert abs(real - mean) <= MOST_DEVIATIONS * max(spread, 1.0)
    # the test tells apart what is not the same: landings that know nothing of each other are far away
    assert counts.distance_alone > 3 * counts.distance
