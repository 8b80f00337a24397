"""A day of the lab in a real Prometheus: the recording is what the lab's own log says."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.cycle.context import NullProgress
from rebalancer.lab import Lab, PdbSpec, node, scenario, workload
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from tests.builders import a_policy
from tests.lab.conftest import Client
from tests.prometheus.fakes import Clock
from tests.real.builders.lab_history import lab_history
from tests.real.builders.prometheus_days import fill_days
from tests.real.servers.prometheus import prometheus_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODES = dict.fromkeys(("a", "b", "c", "d"), "general")
HOURS = 20
SPACING = 60.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    curve = {"base": 0.5, "amplitude": 0.5, "peak_hour": 15, "noise": 0.1}
    spec = scenario(
        nodes=[node(name, cpu=8, memory="32Gi", pool=pool, overhead_cores=0.2) for name, pool in NODES.items()],
        workloads=[
            workload("web", place={"a": 4, "b": 2}, cpu_request="500m", memory_request="512Mi", cpu=curve,
                     pdb=PdbSpec(min_available=4)),
            workload("api", place={"b": 2, "c": 2}, cpu_request="250m", memory_request="256Mi", cpu=curve),
        ],
        start_seconds=20.0,
        stop_seconds=10.0,
    )  # fmt: skip
    with Lab.start(spec, stepped=True, start_time=float(int(time.time() - HOURS * 3600.0))) as lab:
        for hour in range(HOURS):
            if hour in (3, 9, 15):
                agent = "rebalancer/1" if hour != 9 else "kubectl/1"
                pod = lab.cluster.pods(workload="web")[hour % 3]
                assert Client(lab.url, agent=agent).evict(pod).code == 201
            lab.clock.sleep(3600.0)
        yield lab


@pytest.fixture(scope="module")
def recording(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    since, until = lab.clock.started_at, lab.clock.now()
    folder = tmp_path_factory.mktemp("lab")

    def fill(data: Path) -> None:
        days = range(int(since // DAY_SECONDS), int(until // DAY_SECONDS) + 1)
        series = lab_history(lab, since=since, until=until, pools=NODES)
        fill_days(data, series, days=days, since=since, until=until, spacing=SPACING)

    with prometheus_server([], fill=fill) as server:
        policy = a_policy(usage={"prometheus": {"url": server.url}})
        kubeconfig = lab.write_kubeconfig(folder / "kubeconfig")
        yield read_recording(
            policy,
            Settings(history_dir=str(folder), kubeconfig=str(kubeconfig)),
            since_seconds=HOURS * 3600.0,
            progress=NullProgress(),
            clock=Clock(until),
        )


def test_every_pod_of_the_lab_is_recorded_with_its_node_and_times(lab: Lab, recording: Recording) -> None:
    pods = recording.pods
    truth = {each.uid: each for each in lab.cluster.objects.pods()}
    assert set(pods.uids) == set(truth)
    assert not any(gap.pods for gap in recording.gaps)
    for at, uid in enumerate(pods.uids):
        each = truth[uid]
        assert recording.nodes.names[pods.node[at]] == each.node
        assert pods.bound[at] == pytest.approx(each.bound, abs=1.0)
        assert pods.ready[at] == pytest.approx(each.ready, abs=1.0)
        assert pods.ended[at] == each.gone or pods.ended[at] == pytest.approx(each.gone, abs=SPACING + 61.0)
        template = recording.pod_templates[int(pods.template[at])]
        assert template.cpu_request_millicores == 1000.0 * sum(each.requests[0][2:])


def test_only_the_evictions_of_rebalancer_are_chained(lab: Lab, recording: Recording) -> None:
    pods = recording.pods
    chained = {pods.uids[old] for old in pods.replaced.tolist() if old >= 0}
    assert chained == {each.uid for each in lab.log.evictions(code=201) if each.user_agent.startswith("rebalancer")}
    assert len(chained) == 2


def test_node_cpu_is_what_the_lab_used(lab: Lab, recording: Recording) -> None:
    ends = recording.start + (np.arange(recording.steps) + 1) * STEP_SECONDS
    truth = lab.usage.window_means(ends, window_seconds=float(STEP_SECONDS)).nodes * 1000.0
    names = [machine.name for machine in lab.usage.history.columns().machines]
    order = [recording.nodes.names.index(name) for name in names]
    got = recording.usage[CPU].node[order]
    known = np.isfinite(got)
    assert known.mean() > 0.98
    assert np.quantile(np.abs(got - truth)[known], 0.95) < 60.0
    assert np.nansum(np.where(known, got, 0.0)) == pytest.approx(np.sum(truth[known]), rel=0.005)
