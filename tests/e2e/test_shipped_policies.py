"""Every shipped policy plans on the practice cluster, with a real Prometheus behind it for PromQL."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.bootstrap.process.paths import shipped
from rebalancer.lab import Lab
from rebalancer.lab.prometheus.real import installed
from tests.lab.conftest import Client
from tests.programs.cli import rebalancer

pytestmark = [pytest.mark.real, pytest.mark.skipif(not installed(), reason="no prometheus and promtool on PATH")]

POLICIES = sorted(shipped("policies").glob("*.yaml"))
BUSY = 'sum by (instance) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal"}[5m])) > 0'


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    with Lab.start("demo") as running, running.full_promql(folder):
        running.write_kubeconfig(folder / "kubeconfig")
        yield running


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.stem)
def test_every_shipped_policy_plans_on_the_lab(lab: Lab, policy: Path, tmp_path: Path) -> None:
    here, config = tmp_path / "policy.yaml", lab.write_kubeconfig(tmp_path / "config")
    here.write_text(re.sub(r"(?m)^( +url:) .*$", rf"\1 {lab.prometheus_url}", policy.read_text()))
    plan = rebalancer("plan", "--no-wait", "-o", "json", "-f", here, "--kubeconfig", config, cwd=tmp_path)
    assert plan.code == 0, plan.err
    document = plan.document
    assert all(line["cpuShareBefore"] is not None for line in document["nodes"])
    if policy.stem in ("balanced", "demo"):
        assert document["evictions"]


def test_promql_beyond_the_labs_own_is_answered(lab: Lab) -> None:
    prometheus = Client(lab.prometheus_url)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    rows = prometheus(f"/api/v1/query?query={BUSY.replace(' ', '%20')}", headers=form).body["data"]["result"]
    truth = lab.truth.node_cpu_share()
    cores = sorted(float(row["value"][1]) / 16 for row in rows)
    # before its first scrape of its own a rate is extrapolated over less than the window
    assert cores == pytest.approx(sorted(truth.values()), rel=0.08)
    refused = prometheus("/api/v1/query?query=sum(", headers=form)
    assert (refused.code, refused.body["errorType"]) == (400, "bad_data")
