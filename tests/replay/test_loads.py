"""The loads of a recording: what each uses in the steps in which its pod came, ended or was replaced."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.replay.simulation.loads import loads_of
from tests.replay.builders import Recorded, RecordedPod, recording

STEPS = 10


def an_eviction(*, ended: float, last: float, first: float) -> Recording:
    """A pod of 1000 millicores that was evicted at step 5, and its replacement. `last` and `first` are what was
    recorded of each for that step."""
    pods = [
        RecordedPod(name="web-1-0", cpu=[1000.0] * 5 + [float(np.nan_to_num(last))] * 5, ends=ended),
        RecordedPod(name="web-1-1", cpu=[0.0] * 5 + [first] + [1000.0] * 4, begins=5.0, node=1, replaced="web-1-0"),
    ]
    found = recording(Recorded(nodes=2, steps=STEPS, pods=pods))
    cpu = found.usage[CPU]
    values = cpu.pod_values.copy()
    values[5] = last
    return replace(found, usage={CPU: replace(cpu, pod_values=values)})


def course(found: Recording, *, joined: bool) -> Floats:
    """(loads, steps)"""
    loads = loads_of(found, joined=joined)
    rows = np.arange(len(loads))
    return np.array([loads.usage[CPU].at(rows, step) for step in range(STEPS)]).T


def test_a_pod_that_was_gone_before_it_was_measured_is_no_peak_of_its_load() -> None:
    found = an_eviction(ended=5.1, last=np.nan, first=900.0)
    np.testing.assert_allclose(course(found, joined=True), [[1000.0] * 5 + [900.0] + [1000.0] * 4])
    np.testing.assert_allclose(course(found, joined=False)[0], [1000.0] * 5 + [0.0] * 5)


@pytest.mark.parametrize("last", [300.0, 1000.0])
def test_an_end_that_is_not_known_to_the_second_is_no_peak(last: float) -> None:
    """Recorded as 30 seconds of the step, but it used CPU for longer."""
    found = an_eviction(ended=5.1, last=last, first=700.0)
    assert course(found, joined=True).max() <= 1500.0
    loads = loads_of(found, joined=False)
    # what the pod doesn't account for is its node's own, so that the node uses what was recorded
    assert loads.elsewhere[CPU][0, 5] == pytest.approx(last - 0.1 * 1500.0)
