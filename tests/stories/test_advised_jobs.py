"""The advice on Jobs, from the days of a cluster in a real Prometheus, and the same cluster with its patch."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.bootstrap.recordings.replay import replay
from rebalancer.cycle.context import NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.lab import Lab, Scenario, workload
from rebalancer.model.measured.history import DAY_SECONDS, STEP_SECONDS
from rebalancer.policy import RebalancerPolicy, load_policy
from rebalancer.replay.advice.jobs import JobAdvice, advise_jobs
from tests.builders import a_policy
from tests.programs.cli import policy_for
from tests.prometheus.fakes import Clock
from tests.real.builders.lab_history import lab_history
from tests.real.builders.prometheus_days import fill_days
from tests.real.servers.prometheus import prometheus_server
from tests.stories.readers import Log
from tests.stories.scenarios.stage import a_scenario, service

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HOURS, PERIOD, WARM_UP = 2, 300.0, 600.0
NODES = dict.fromkeys(("a", "b", "c", "d"), "general")
START = float(int(time.time() // STEP_SECONDS * STEP_SECONDS) - (HOURS + 1) * 3600)


def four_nodes(annotations: Mapping[str, str]) -> Scenario:
    """`a` is at 81 % by three pods of a CronJob, the others are at 6 %."""
    batch = workload(
        "report",
        namespace="batch",
        kind="CronJob",
        place={"a": 3},
        cpu=4.3,
        cpu_request="1",
        annotations=dict(annotations),
    )
    return a_scenario(NODES, batch, service("web", {"b": 1, "c": 1, "d": 1}))


def policy_of(prometheus_url: str) -> RebalancerPolicy:
    document = policy_for(
        prometheus_url,
        pools=[{"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 60, "low": 50}}],
        strategies=[{"name": "LowNodeUtilization", "interval": f"{PERIOD:g}s"}],
    )
    return load_policy(yaml.safe_dump(document).encode(), source="policy.yaml")


def settings_of(lab: Lab, folder: Path) -> Settings:
    return Settings(
        database=f"sqlite:///{folder / 'rebalancer.db'}",
        kubeconfig=str(lab.write_kubeconfig(folder / "config")),
        history_dir=str(folder / "days"),
    )


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> JobAdvice:
    """Of hours without rebalancer."""
    folder, until = tmp_path_factory.mktemp("lab"), START + WARM_UP + HOURS * 3600 + 60.0
    with Lab.start(four_nodes({}), stepped=True, start_time=START) as lab:
        lab.clock.sleep(until - START)

        def fill(data: Path) -> None:
            days = range(int(START // DAY_SECONDS), int(until // DAY_SECONDS) + 1)
            series = lab_history(lab, since=START, until=until, pools=dict.fromkeys(NODES, "all"))
            fill_days(data, series, days=days, since=START, until=until, spacing=30.0)

        with prometheus_server([], fill=fill) as server:
            recording = read_recording(
                a_policy(usage={"prometheus": {"url": server.url}}),
                settings_of(lab, folder),
                since_seconds=HOURS * 3600.0,
                progress=NullProgress(),
                clock=Clock(until),
            )
    policy = policy_of("http://127.0.0.1:9090")
    found = advise_jobs(recording, policy, run=partial(replay, recording, policy), most=5)
    assert found is not None
    return found


def evictions_in_the_lab(spec: Mapping[str, Any], folder: Path) -> list[str]:
    """Pods that are evicted in the same hours where Jobs have these fields, too."""
    annotations = spec.get("template", {}).get("metadata", {}).get("annotations", {})
    with Lab.start(four_nodes(annotations), stepped=True, start_time=START) as lab:
        with lab.cluster.lock:
            (job,) = lab.cluster.store.sorted("jobs")
            if "podFailurePolicy" in spec:
                lab.cluster.store.change(
                    "jobs", job, lambda new: new["spec"].update(podFailurePolicy=spec["podFailurePolicy"])
                )
        policy = policy_of(lab.prometheus_url)
        with acting_context(policy, settings_of(lab, folder), progress=NullProgress(), clock=lab.clock) as context:
            lab.clock.sleep(WARM_UP)
            while lab.clock.now() < START + WARM_UP + HOURS * 3600:
                lab.clock.sleep(PERIOD)
                run_cycle(context, policy, dry_run=False)
        return [str(each) for each in Log.of(lab).evicted]


def test_the_patch_of_the_advice_moves_in_the_cluster_what_it_moved_in_the_replay(
    advice: JobAdvice, tmp_path: Path
) -> None:
    (line,) = advice.jobs
    assert (line.kind, line.namespace, line.name) == ("CronJob", "batch", "report")
    assert advice.unchanged.evictions == 0
    assert advice.unchanged.hot_node_hours == pytest.approx(HOURS, rel=0.1)
    assert line.held_node_hours > HOURS / 2
    assert advice.all_evictable is not None
    assert advice.all_evictable.hot_node_hours < HOURS / 4
    spec = line.patch["spec"]["jobTemplate"]["spec"]
    for name, given, evicted in (("as it is", {}, 0), ("patched", spec, advice.all_evictable.evictions)):
        folder = tmp_path / name
        folder.mkdir()
        assert len(evictions_in_the_lab(given, folder)) == evicted, name
    without_policy = {"template": spec["template"]}
    (tmp_path / "without").mkdir()
    assert evictions_in_the_lab(without_policy, tmp_path / "without") == []
