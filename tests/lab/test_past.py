"""Days before the lab's start in its real Prometheus."""

from collections.abc import Iterator

import numpy as np
import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.cycle.context import NullProgress
from rebalancer.lab import Lab
from rebalancer.lab.prometheus.real import installed
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from tests.builders import a_policy
from tests.programs.in_process import run_here

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HOURS = 26
POOLS = [{"name": "general", "selector": {}, "thresholds": {"high": 75, "target": 65}}]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Recording]]:
    if not installed():
        pytest.skip("needs prometheus and promtool: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("lab")
    with Lab.start("demo") as lab, lab.full_promql(folder / "prometheus", past_seconds=HOURS * 3600.0):
        kubeconfig = lab.write_kubeconfig(folder / "kubeconfig")
        yield (
            lab,
            read_recording(
                a_policy(usage={"prometheus": {"url": lab.prometheus_url}}),
                Settings(history_dir=str(folder), kubeconfig=str(kubeconfig)),
                since_seconds=HOURS * 3600.0,
                progress=NullProgress(),
                earlier_days=0,
            ),
        )


def test_a_recording_begins_where_the_past_does_and_has_every_pod(scene: tuple[Lab, Recording]) -> None:
    lab, recording = scene
    assert recording.steps >= HOURS * 12 - 2
    there = {each.name for each in lab.cluster.objects.pods()}
    assert set(recording.pods.names) == there
    assert (recording.pods.bound < recording.start).all()


def test_its_cpu_is_that_of_the_lab(scene: tuple[Lab, Recording]) -> None:
    lab, recording = scene
    ends = recording.start + 300.0 * (np.arange(recording.steps) + 1)
    figures = lab.usage.window_means(ends, window_seconds=300.0)
    names = [machine.name for machine in figures.columns.machines]
    got = recording.usage[CPU].node[[recording.nodes.names.index(name) for name in names]]
    known = np.isfinite(got)
    assert known.mean() > 0.97
    assert np.quantile(np.abs(got - figures.nodes * 1000.0)[known], 0.95) < 100.0


@pytest.mark.parametrize(
    ("past", "error"),
    [
        ("soon", "--past: expected a duration such as"),
        ("9d", "--past: expected at most 2d, the age of the scenario's pods, got 9d"),
    ],
)
def test_a_past_that_cannot_be_is_one_line(past: str, error: str) -> None:
    if not installed():
        pytest.skip("needs prometheus and promtool: apt-get install prometheus")
    done = run_here(["lab", "--past", past])
    assert done.code == 4
    assert done.err.startswith(error)
