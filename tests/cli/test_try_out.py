"""`rebalancer try`: from a cluster and its Prometheus alone, without a policy and without anything left behind."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from rebalancer.lab import Lab, PdbSpec, node, scenario, workload
from rebalancer.model.measured.history import DAY_SECONDS
from tests.programs.cli import Result
from tests.programs.in_process import run_here
from tests.prometheus.builders import fake_prometheus
from tests.real.builders.lab_history import lab_history
from tests.real.builders.prometheus_days import LongSeries, fill_days
from tests.real.servers.prometheus import prometheus_server

HOURS = 40
SPACING = 60.0
NODES = dict.fromkeys(("a", "b", "c", "d"), "general")
Keeps = Callable[[LongSeries], bool]
Changes = Callable[[list[LongSeries]], list[LongSeries]]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A folder with a kubeconfig for a lab that has run for HOURS."""

    folder: Path
    lab: Lab

    def try_(self, url: str, *words: str) -> Result:
        kubeconfig = str(self.folder / "kubeconfig")
        page = str(self.folder / "page.html")
        return run_here(
            ["try", "--prometheus", url, "--kubeconfig", kubeconfig, "--file", page, "--workers", "1", *words],
            columns=80,
        )

    def fill(
        self, *, hours: float = HOURS, keep: Keeps = lambda _: True, change: Changes = lambda series: series
    ) -> Callable[[Path], None]:
        """Writes the lab's last hours into the data folder of a Prometheus."""
        until = self.lab.clock.now()
        since = until - hours * 3600.0

        def fill(data: Path) -> None:
            series = lab_history(self.lab, since=self.lab.clock.started_at, until=until, pools=NODES)
            days = range(int(since // DAY_SECONDS), int(until // DAY_SECONDS) + 1)
            kept = change([each for each in series if keep(each)])
            fill_days(data, kept, days=days, since=since, until=until, spacing=SPACING)

        return fill


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    curve = {"base": 1.2, "amplitude": 0.5, "peak_hour": 15, "noise": 0.1}
    spec = scenario(
        nodes=[node(name, cpu=8, memory="32Gi", pool=pool, overhead_cores=0.2) for name, pool in NODES.items()],
        workloads=[
            workload("web", place={"a": 5, "b": 2}, cpu_request="500m", memory_request="512Mi", cpu=curve,
                     pdb=PdbSpec(max_unavailable=1)),
            workload("api", place={"b": 2, "c": 2}, cpu_request="250m", memory_request="256Mi", cpu=curve),
        ],
    )  # fmt: skip
    with Lab.start(spec, stepped=True, start_time=float(int(time.time() - HOURS * 3600.0))) as lab:
        for _ in range(HOURS):
            lab.clock.sleep(3600.0)
        yield lab


@pytest.fixture
def scene(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.chdir(tmp_path)
    lab.write_kubeconfig(tmp_path / "kubeconfig")
    return Scene(folder=tmp_path, lab=lab)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_the_last_day_comes_first_and_then_all_days(scene: Scene) -> None:
    writes = len(scene.lab.log.evictions())
    with prometheus_server([], fill=scene.fill()) as server:
        done = scene.try_(server.url, "--since", "38h", "--cluster", "shop-1", "-o", "json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["schemaVersion"]
    assert [each["label"] for each in document["runs"]] == ["as recorded", "balanced"]
    before, after = (each["hotNodeHours"] for each in document["runs"])
    assert after < before
    assert not document["notes"]
    first, last = done.err.splitlines()
    assert first.startswith("the last 24h: hot node-hours ")
    assert "evictions" in first
    assert f"rebalancer policy init --prometheus {server.url} --cluster shop-1 -f policy.yaml" in last
    page = (scene.folder / "page.html").read_text()
    assert "hot node-hours" in page
    # the policy to paste, and the line that installs it
    assert f"url: {server.url}" in page
    assert "helm install rebalancer" in page
    # nothing else is left, and nothing was evicted
    assert {each.name for each in scene.folder.iterdir()} == {"kubeconfig", "page.html"}
    assert len(scene.lab.log.evictions()) == writes


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_prometheus_of_three_hours_gives_one_answer_that_says_what_it_covers(scene: Scene) -> None:
    with prometheus_server([], fill=scene.fill(hours=3)) as server:
        done = scene.try_(server.url)
    assert done.code == 0, done.err
    assert "the last 24h" not in done.err
    assert "of the 7d asked for" in done.out
    assert "is its retention shorter?" in " ".join(done.out.split())


@pytest.mark.real
@pytest.mark.timeout(300)
def test_of_two_clusters_in_one_prometheus_it_is_this_one_and_a_line_says_what_to_do(scene: Scene) -> None:
    def blue(series: list[LongSeries]) -> list[LongSeries]:
        ours = [replace(each, labels={**each.labels, "cluster": "blue"}) for each in series]
        other = {"node": "z", "internal_ip": "10.9.9.9", "cluster": "green", "job": "kube-state-metrics"}
        return [*ours, LongSeries(metric="kube_node_info", labels=other, values=np.ones_like)]

    with prometheus_server([], fill=scene.fill(hours=3, change=blue)) as server:
        done = scene.try_(server.url, "-o", "json")
    assert done.code == 0, done.err
    [said] = [each["text"] for each in json.loads(done.out)["gaps"] if "clusters" in each["text"]]
    assert "(label cluster: green); this is blue" in said
    assert "restrict the queries of the policy to it (docs/operations/metrics-at-scale.md)" in said


@pytest.mark.real
@pytest.mark.timeout(300)
def test_without_kube_state_metrics_one_line_says_what_is_missing(scene: Scene) -> None:
    exported = scene.fill(hours=3, keep=lambda each: not each.metric.startswith("kube_"))
    with prometheus_server([], fill=exported) as server:
        done = scene.try_(server.url)
    assert done.code == 4
    assert "expected that it scrapes kube-state-metrics" in done.err
    assert len(done.err.splitlines()) == 1
    assert not (scene.folder / "page.html").exists()


def test_without_any_usage_one_line_says_what_is_missing(scene: Scene) -> None:
    with fake_prometheus({}) as fake:
        done = scene.try_(fake.url)
    assert done.code == 4
    assert "no CPU of nodes and pods found: expected a Prometheus that scrapes node_exporter and cAdvisor" in done.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--file", "nowhere/page.html"), "--file nowhere/page.html: expected a file in a folder that can be written"),
        (("--since", "yesterday"), "--since: expected an age such as 7d"),
    ],
)
def test_mistakes_are_reported_before_the_work(scene: Scene, words: tuple[str, ...], error: str) -> None:
    done = scene.try_("http://127.0.0.1:1", *words)
    assert done.code == 4
    assert done.err.startswith(error)
