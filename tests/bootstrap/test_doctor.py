"""What `doctor` says of our rights: those of a cycle, of the daemon's watches and of its Events."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.bootstrap.commands.doctor import Check, diagnose
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cli.main import app
from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.policy import load_policy
from tests.programs.cli import policy_for, write_policy

RIGHTS = ("permissions", "watches", "optional kinds", "events")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    web = workload("web", namespace="shop", place={"a": 1}, cpu=0.5)
    with Lab.start(scenario(nodes=[node("a", cpu=4, pool="general")], workloads=[web]), stepped=True) as running:
        yield running


@pytest.fixture
def policy(lab: Lab, tmp_path: Path) -> Path:
    lab.write_kubeconfig(tmp_path / "kubeconfig")
    return write_policy(tmp_path, policy_for(lab.prometheus_url))


def rights(lab: Lab, policy: Path, *denied: tuple[str, str]) -> dict[str, Check]:
    lab.faults.set(denied=denied)
    settings = Settings(kubeconfig=str(policy.parent / "kubeconfig"), database=f"sqlite:///{policy.parent / 'none.db'}")
    found = diagnose(load_policy(policy.read_bytes(), source=policy.name), settings)
    return {each.name: each for each in found if each.name in RIGHTS}


def test_nothing_is_missing(lab: Lab, policy: Path) -> None:
    found = rights(lab, policy)
    assert tuple(found) == RIGHTS
    assert {name: (each.ok, each.warning, each.fix, each.exit_code) for name, each in found.items()} == dict.fromkeys(
        RIGHTS, (True, False, "", 0)
    )


def test_a_watch_that_is_missing_is_a_failure_with_the_rules_that_grant_it(lab: Lab, policy: Path) -> None:
    found = rights(lab, policy, ("watch", "deployments"), ("watch", "pods"), ("watch", "statefulsets"))
    watches = found["watches"]
    assert (watches.ok, watches.warning, watches.exit_code) == (False, False, 5)
    assert watches.detail.startswith("not allowed: watch pods, watch deployments.apps, watch statefulsets.apps (")
    assert "run --once" in watches.detail
    role, _, text = watches.fix.partition("ClusterRole: ")
    assert role == "add to the account's "
    assert yaml.safe_load(text) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["watch"]},
    ]
    assert found["permissions"].ok
    assert found["events"].ok


def test_events_that_may_not_be_written_are_a_warning(lab: Lab, policy: Path) -> None:
    events = rights(lab, policy, ("create", "events"))["events"]
    assert (events.ok, events.warning, events.exit_code) == (True, True, 0)
    assert events.detail.startswith("not allowed: create events.events.k8s.io (")
    rule = '{apiGroups: ["events.k8s.io"], resources: [events], verbs: [create]}'
    assert events.fix == f"add to the account's ClusterRole: [{rule}]"


def test_kinds_that_only_some_pods_concern_are_a_warning(lab: Lab, policy: Path) -> None:
    found = rights(lab, policy, ("list", "resourcequotas"), ("watch", "horizontalpodautoscalers"), ("list", "csinodes"))
    optional = found["optional kinds"]
    assert (optional.ok, optional.warning, optional.exit_code) == (True, True, 0)
    assert "list resourcequotas" in optional.detail
    assert "watch horizontalpodautoscalers.autoscaling" in optional.detail
    assert optional.fix
    assert found["permissions"].ok
    assert found["watches"].ok


def test_what_a_cycle_lacks_is_told_apart(lab: Lab, policy: Path) -> None:
    found = rights(lab, policy, ("create", "pods/eviction"), ("update", "leases"))
    assert found["permissions"].exit_code == 5
    assert found["permissions"].detail == (
        "not allowed: create pods/eviction, update leases.coordination.k8s.io rebalancer in kube-system"
    )
    assert "Role in kube-system: [" in found["permissions"].fix
    assert found["watches"].ok
    assert not found["events"].warning


def test_replacement_first_needs_rights_of_its_own(lab: Lab, policy: Path) -> None:
    denied = (("update", "deployments/scale"), ("patch", "pods"))
    assert rights(lab, policy, *denied)["permissions"].ok
    document = yaml.safe_load(policy.read_text())
    document["guards"] = {"replacementFirst": [{"namespaces": ["shop"]}]}
    found = rights(lab, write_policy(policy.parent, document, "first.yaml"), *denied)["permissions"]
    assert found.detail == "not allowed: update deployments/scale.apps, patch pods"
    assert found.exit_code == 5


def asked(policy: Path) -> tuple[int, str]:
    """The command's exit code and what it prints."""
    database = f"sqlite:///{policy.parent / 'none.db'}"
    words = ("doctor", "-f", policy, "--kubeconfig", policy.parent / "kubeconfig", "--database", database)
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.output


def test_the_command_warns_of_events_and_ends_with_5_where_the_daemon_cant_watch(lab: Lab, policy: Path) -> None:
    lab.faults.set(denied=(("create", "events"),))
    code, told = asked(policy)
    assert "warn events: not allowed" in told
    assert code == 0, told
    lab.faults.set(denied=(("watch", "nodes"),))
    code, told = asked(policy)
    assert "FAIL watches: not allowed: watch nodes" in told
    assert code == 5


@pytest.mark.parametrize(
    ("pools", "state", "detail"),
    [
        ({"web": "general"}, (True, False, 0), "nodes: web 1, in none 0"),
        ({"web": "general", "batch": "spot"}, (True, True, 0), "nodes: web 1, batch 0, in none 0"),
        ({"batch": "spot"}, (False, False, 4), "nodes: batch 0, in none 1"),
        ({"web": "general", "all": "general"}, (False, False, 4), "nodes: web 0, all 0, in none 1"),
    ],
    ids=["all match", "one is empty", "no pool has nodes", "two match"],
)
def test_doctor_counts_the_nodes_of_each_pool(
    lab: Lab, tmp_path: Path, pools: dict[str, str], state: tuple[bool, bool, int], detail: str
) -> None:
    lab.faults.clear()
    lab.write_kubeconfig(tmp_path / "kubeconfig")
    thresholds = {"high": 75, "target": 65, "low": 50}
    wanted = [
        {"name": name, "selector": {"matchLabels": {"pool": label}}, "thresholds": thresholds}
        for name, label in pools.items()
    ]
    path = write_policy(tmp_path, {**policy_for(lab.prometheus_url), "pools": wanted})
    settings = Settings(kubeconfig=str(tmp_path / "kubeconfig"), database=f"sqlite:///{tmp_path / 'none.db'}")
    checks = {each.name: each for each in diagnose(load_policy(path.read_bytes(), source=path.name), settings)}
    found = checks["pools"]
    assert ((found.ok, found.warning, found.exit_code), found.detail) == (state, detail)
    assert ("batch: no node matches the selector" in found.fix) == ("batch" in pools)
    assert ("match the node: it is in neither: web and all" in found.fix) == ("all" in pools)
    assert (checks["objects"].ok, checks["objects"].warning) == (True, False)
