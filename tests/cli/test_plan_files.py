"""A plan that was written to a file is carried out exactly, or not at all.

The commands run in this process against the practice cluster of `demo`, over HTTP, with time that passes when the
program waits.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rebalancer.cli.output.plan_file import digest_of
from rebalancer.lab import Lab
from tests.cli.test_plan_and_run import ROOT, lab
from tests.programs.cli import Result
from tests.programs.in_process import run_here

__all__ = ["lab"]


@dataclass(slots=True, kw_only=True)
class Desk:
    """One cluster, one policy, and the file of a plan."""

    lab: Lab
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "plan.json"

    def call(self, *words: str, change: tuple[str, str] = ("", ""), database: str = "rebalancer.db") -> Result:
        """A command; `change` (pattern, replacement) is made to the policy of `demo`."""
        text = (ROOT / "policies" / "demo.yaml").read_text()
        text = re.sub(r"url: .*", f"url: {self.lab.prometheus_url}", text)
        policy = self.folder / "policy.yaml"
        policy.write_text(re.sub(*change, text, count=1) if change[0] else text)
        kubeconfig = self.lab.write_kubeconfig(self.folder / "config")
        connected = ("-f", str(policy), "--kubeconfig", str(kubeconfig))
        return run_here([*words, *connected, "--database", f"sqlite:///{self.folder / database}"])

    def plan(self, *words: str, **changes: Any) -> Any:
        """Write the file; its document."""
        done = self.call("plan", "--out", str(self.file), *words, **changes)
        assert done.code == 0, done.err
        return json.loads(self.file.read_text())

    def run(self, *words: str, **changes: Any) -> Result:
        return self.call("run", "--plan", str(self.file), "-o", "json", *words, **changes)

    def refuses(self, *words: str, code: int = 3, **changes: Any) -> str:
        """Run it, see that nothing is evicted, and return the line that says why."""
        before = len(self.evicted)
        done = self.run(*words, **changes)
        assert done.code == code, done.err
        assert len(self.evicted) == before
        (line,) = done.err.splitlines()
        return line

    @property
    def evicted(self) -> list[str]:
        """UIDs, in their order."""
        return [each.uid for each in self.lab.log.evictions(code=201)]


@pytest.fixture
def desk(lab: Lab, tmp_path: Path) -> Desk:
    return Desk(lab=lab, folder=tmp_path)


def uids(document: Any) -> list[str]:
    return [each["uid"] for each in document["evictions"]]


def test_the_file_has_what_plan_shows_and_run_makes_exactly_that_once(desk: Desk) -> None:
    plan = desk.plan()
    assert (plan["schemaVersion"], plan["cluster"], len(uids(plan)) > 3) == ("1", "demo", True)
    first = plan["evictions"][0]
    assert first["targetNodes"][0].keys() == {"node", "probability", "cpuSharePlanned", "cpuSharePlannedP99"}
    done = desk.run()
    assert done.code == 0, done.err
    assert desk.evicted == uids(plan)
    assert done.document["cycle"]["id"] == plan["id"]
    assert "it was carried out before, at " in desk.refuses()
    # a database that doesn't know of it changes nothing
    desk.refuses(database="other.db")


def test_its_evictions_are_listed_with_those_of_all_components(desk: Desk) -> None:
    planned = {each["pod"] for each in desk.plan()["evictions"]}
    assert desk.run().code == 0
    listed = run_here(["evictions", "--kubeconfig", str(desk.folder / "config"), "--since", "2020-01-01", "-o", "json"])
    assert {each["pod"] for each in listed.document["evictions"] if each["evictor"] == "rebalancer"} == planned


def test_the_pods_of_pools_in_dry_run_are_evicted_too(desk: Desk) -> None:
    in_dry_run = (r"(?m)^( *)- name: general$", r"\1- name: general\n\1  mode: DryRun")
    plan = desk.plan(change=in_dry_run)
    assert {each["detail"] for each in plan["evictions"]} == {"", "dry run of pool general"}
    done = desk.run(change=in_dry_run)
    assert done.code == 0, done.err
    assert sorted(desk.evicted) == sorted(uids(plan))


def test_it_is_bound_to_its_policy_its_cluster_and_its_time(desk: Desk) -> None:
    desk.plan("--expire-after", "10m")
    assert desk.refuses(change=(r"target: \d+", "target: 64")).endswith("the policy has changed since it was made")
    assert "it is of another cluster: demo" in desk.refuses(change=("cluster: demo", "cluster: other"))
    desk.lab.clock.sleep(601.0)
    assert "it expired at " in desk.refuses()


def test_comments_and_written_defaults_are_no_change_of_the_policy(desk: Desk) -> None:
    plan = desk.plan()
    done = desk.run(change=(r"(?m)^cluster: ", "# a comment\nsoftTaint: {mode: Taint}\ncluster: "))
    assert done.code == 0, done.err
    assert desk.evicted == uids(plan)


def removed(desk: Desk, plan: Any) -> str:
    desk.lab.cluster.store.remove("pods", plan["evictions"][-1]["namespace"], plan["evictions"][-1]["pod"])
    return " is gone"


def vetoed(desk: Desk, plan: Any) -> str:
    store, move = desk.lab.cluster.store, plan["evictions"][-1]
    pod = store.get("pods", move["namespace"], move["pod"])
    store.change("pods", pod, lambda each: each["metadata"]["labels"].update({"rebalancer.dev/evict": "false"}))
    return "label"


def budgeted(desk: Desk, plan: Any) -> str:
    store, move = desk.lab.cluster.store, plan["evictions"][0]
    selector = {"matchLabels": dict(store.get("pods", move["namespace"], move["pod"])["metadata"]["labels"])}
    spec = {"maxUnavailable": 0, "selector": selector}
    store.create("poddisruptionbudgets", {"metadata": {"name": "none", "namespace": move["namespace"]}, "spec": spec})
    return "PodDisruptionBudget"


def paused(desk: Desk, _: Any) -> str:
    connected = ("-f", str(desk.folder / "policy.yaml"), "--database", f"sqlite:///{desk.folder / 'rebalancer.db'}")
    run_here(["run", "--once", "--dry-run", *connected, "--kubeconfig", str(desk.folder / "config")])
    assert run_here(["pause", "cluster", "--reason", "a release", *connected]).code == 0
    return "a release"


def closed(desk: Desk, plan: Any) -> str:
    """No node takes a replacement any more."""
    store, hot = desk.lab.cluster.store, {each["node"] for each in plan["evictions"]}
    for node in list(store.all("nodes")):
        if node["metadata"]["name"] not in hot:
            store.change("nodes", node, lambda each: each["spec"].update(unschedulable=True))
    return ": "


@pytest.mark.parametrize("change", [removed, vetoed, budgeted, paused, closed])
def test_a_changed_world_stops_all_and_is_named(change: Callable[[Desk, Any], str], desk: Desk) -> None:
    plan = desk.plan()
    named = change(desk, plan)
    line = desk.refuses()
    assert line.startswith("the plan is not carried out: ")
    assert any(each["pod"] in line for each in plan["evictions"])
    assert named in line
    # a refusal doesn't use the file up
    assert "carried out before" not in desk.refuses()


def test_evictions_of_another_run_stop_all(desk: Desk) -> None:
    desk.plan()
    desk.call("run", "--once")
    assert len(desk.evicted) > 3
    assert " is gone" in desk.refuses()


def test_a_forged_digest_moves_no_pod_that_no_strategy_would(desk: Desk) -> None:
    """The digest is no signature: then the strategies, guards and limits are what protects."""
    plan, random = desk.plan(), Random(1)
    pods = [each for each in desk.lab.cluster.store.all("pods") if each["spec"].get("nodeName")]
    hot = {each["node"] for each in plan["evictions"]}
    cool = [each for each in pods if each["spec"]["nodeName"] not in hot]
    for pod in random.sample(cool, 8):
        forged, meta = json.loads(json.dumps(plan)), pod["metadata"]
        move = random.choice(forged["evictions"])
        move.update(namespace=meta["namespace"], pod=meta["name"], uid=meta["uid"], node=pod["spec"]["nodeName"])
        del forged["digest"]
        desk.file.write_text(json.dumps({**forged, "digest": digest_of(forged)}))
        assert "doesn't find" in desk.refuses()


@pytest.mark.parametrize("words", [("-n", "shop"), ("-l", "a=b")])
def test_a_file_of_a_part_is_not_written(words: tuple[str, ...], desk: Desk) -> None:
    done = desk.call("plan", "--out", str(desk.file), *words)
    assert (done.code, desk.file.exists()) == (4, False)
    assert done.err.startswith("--out: ")


@pytest.mark.parametrize(("text", "said"), [("25h", "expected at most 24h"), ("0s", "at most"), ("soon", "duration")])
def test_how_long_it_is_valid_is_checked(text: str, said: str, desk: Desk) -> None:
    done = desk.call("plan", "--out", str(desk.file), "--expire-after", text)
    assert done.code == 4
    assert said in done.err


def test_run_with_a_plan_is_no_dry_run(desk: Desk) -> None:
    desk.plan()
    assert desk.refuses("--dry-run", code=4) == "--plan: expected without --dry-run"
