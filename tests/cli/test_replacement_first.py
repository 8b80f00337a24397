"""Replacement first on the command line: `plan`, `explain pod` and `run --once` show it, and a run ends its surges."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands import contexts
from rebalancer.lab import Lab
from tests.programs.cli import write_policy
from tests.programs.in_process import run_here
from tests.stories.scenarios.stage import START, a_scenario, burner, service, stories_policy
from tests.stories.scenarios.surges import Readiness, as_before, living


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Only the service `single`, of one replica, can cool its node."""
    cluster = a_scenario(("hot", "cool"), burner("burner", "hot", 9.0), service("single", {"hot": 1}, cpu=4.0))
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        for name in ("planning_context", "evaluated_context"):
            monkeypatch.setattr(contexts, name, functools.partial(getattr(contexts, name), clock=lab.clock))
        lab.clock.sleep(120.0)
        yield lab


def said(lab: Lab, folder: Path, *words: str, rules: Any = ({"services": ["shop/single"]},)) -> Any:
    """The document that a command prints."""
    guards = {"minAge": "1m", "replacementFirst": list(rules)}
    policy = write_policy(folder, stories_policy(lab, guards=guards))
    connected = ("--kubeconfig", str(lab.write_kubeconfig(folder / "config")))
    stored = ("--database", f"sqlite:///{folder / 'rebalancer.db'}")
    done = run_here([*words, "-o", "json", "-f", str(policy), *connected, *stored])
    assert done.code == 0, done.err
    return done.document


@pytest.mark.parametrize("options", [(), ("--no-wait",)])
def test_a_run_ends_when_its_surges_are_over(lab: Lab, tmp_path: Path, options: tuple[str, ...]) -> None:
    watch = Readiness(lab).begin("single")
    planned = said(lab, tmp_path, "plan", *options)
    ran = said(lab, tmp_path, "run", "--once", *options)
    for document in (planned, ran):
        (move,) = document["evictions"]
        assert move["reason"].endswith("; replacement first")
    assert ran["evictions"][0]["outcome"] == "evicted"
    assert as_before(lab, "single")
    assert [each["spec"]["nodeName"] for each in living(lab, "single")] == ["cool"]
    assert watch.least == {"single": 1}


def test_explain_says_whether_a_pod_can_be_moved_so(lab: Lab, tmp_path: Path) -> None:
    (pod,) = living(lab, "single")
    name = f"shop/{pod['metadata']['name']}"

    def checks(**options: Any) -> dict[str, Any]:
        found = said(lab, tmp_path, "explain", "pod", name, **options)
        return {each["name"]: each for each in found["checks"]}

    chosen = checks()
    assert chosen["replacement first"]["ok"]
    assert chosen["plan"]["ok"]
    others = checks(rules=[{"services": ["shop/other"]}])
    assert "replacement first" not in others
    assert others["plan"]["code"] == "MinReplicas"
