"""`explain` and `advise` by the command line, in the lab: the example of docs/explain.md, and a larger cluster."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.lab.scenarios.scenario import load
from rebalancer.model.cluster.scheduler import DEFAULT_WEIGHTS, SchedulerConfig
from rebalancer.policy.kube_scheduler.config import load_scheduler_config, profile_fields
from tests.planner.test_advice import RICH
from tests.programs.cli import Result, policy_for, rebalancer, write_policy
from tests.real.builders.profiles import PROFILES

DOCS = Path(__file__).parents[2] / "docs"
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explain-cli")


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    """The cluster of docs/explain.md."""
    with Lab.start(load(str(DOCS / "explain" / "lab.yaml"))) as running:
        running.write_kubeconfig(folder / "lab.kubeconfig")
        yield running


@pytest.fixture
def policy(lab: Lab, folder: Path) -> Path:
    given = yaml.safe_load((DOCS / "explain" / "policy.yaml").read_text())
    given["usage"]["prometheus"]["url"] = lab.prometheus_url
    return write_policy(folder, given)


def call(folder: Path, policy: Path, *arguments: str | Path) -> Result:
    return rebalancer(*arguments, "-f", policy, "--kubeconfig", folder / "lab.kubeconfig", cwd=folder)


# ---- explain pod


def check_pod_document(document: dict[str, Any]) -> None:
    """The promised fields are there; others may be added."""
    assert document["schemaVersion"] == "2"
    assert document["pod"].keys() >= {"namespace", "name", "uid", "node", "pool", "service", "owner", "schedulerName"}
    for each in document["nodes"]:
        if each["feasible"]:
            assert each.keys() >= {"name", "total", "probability", "scores", "raw"}
            assert each["total"] == pytest.approx(sum(each["scores"].values()))
        else:
            assert each["filter"]
            assert each["message"]
    assert sum(document["failures"].values()) == sum(not each["feasible"] for each in document["nodes"])
    assert document["noTargetNode"] is not None or sum(each["probability"] for each in document["targetNodes"]) > 0.98
    assert all(each.keys() >= {"name", "ok", "code", "message"} and each["message"] for each in document["checks"])
    assert document.keys() >= {"wouldEvict", "targetNode", "notModelled"}


def test_explain_pod_agrees_with_the_plan(lab: Lab, folder: Path, policy: Path) -> None:
    planned = call(folder, policy, "plan", "-o", "json").document
    eviction = planned["evictions"][0]
    moved = call(folder, policy, "explain", "pod", f"shop/{eviction['pod']}", "-o", "json").document
    check_pod_document(moved)
    assert moved["wouldEvict"] is True
    assert moved["targetNode"] == eviction["targetNode"]
    assert all(each["ok"] for each in moved["checks"])

    stays = call(folder, policy, "explain", "pod", "-n", "shop", "cart-0", "-o", "json").document
    check_pod_document(stays)
    assert stays["wouldEvict"] is False
    refused = {each["pod"]: each["code"] for each in planned["refusals"]}
    assert stays["checks"][-1]["code"] == refused["cart-0"] == "BudgetExhausted"
    assert {each["name"]: each["code"] for each in stays["checks"]}["budget"] == "BudgetExhausted"
    (failed,) = [each for each in stays["nodes"] if not each["feasible"]]
    assert (failed["name"], failed["filter"]) == ("gpu-1", "TaintToleration")


def test_explain_pod_shows_tables(lab: Lab, folder: Path, policy: Path) -> None:
    narrow = call(folder, policy, "explain", "pod", "shop/cart-0")
    assert narrow.code == 0, narrow.err
    for part in (
        "Pod shop/cart-0 on node-1 (pool general)",
        "TOTAL",
        "IMAGE",
        "untolerated taint",
        "Target nodes, without",
    ):
        assert part in narrow.out
    assert re.search(r"budget +no +BudgetExhausted", narrow.out)
    assert "Would a run evict it now: no" in narrow.out
    wide = call(folder, policy, "explain", "pod", "shop/cart-0", "-o", "wide")
    assert "ImageLocality" in wide.out
    assert "(raw " in wide.out


# ---- explain node


def check_node_document(document: dict[str, Any]) -> None:
    """As for pods."""
    assert document["schemaVersion"] == "2"
    assert document["node"].keys() >= {"name", "pool", "hot"}
    for judged in document["evaluations"]:
        assert judged.keys() >= {"strategy", "reason", "skipped", "thresholds"}
        for mark in judged["thresholds"]:
            assert mark.keys() >= {"resource", "measuredShare", "loadShare", "high", "target", "low", "hot"}
    for pod in document["pods"]:
        assert pod.keys() >= {
            "namespace",
            "pod",
            "service",
            "cpuMillicores",
            "cpuShare",
            "targetNode",
            "code",
            "message",
        }
        assert pod["targetNode"] or pod["message"]
    for each in document["attractions"]:
        assert each.keys() >= {"service", "skewed", "podsHere", "pods", "fairShare", "decisivePlugin", "plugins"}


def test_explain_node_says_why_it_is_hot_and_what_heaps_there(lab: Lab, folder: Path, policy: Path) -> None:
    document = call(folder, policy, "explain", "node", "node-1", "-o", "json").document
    check_node_document(document)
    assert document["node"] == {"name": "node-1", "pool": "general", "hot": True}
    (mark,) = document["evaluations"][0]["thresholds"]
    assert mark["measuredShare"] > mark["high"] == 0.75
    assert document["evaluations"][0]["reason"]
    codes = {each["pod"]: each["code"] for each in document["pods"]}
    assert codes["cart-0"] == "BudgetExhausted"
    assert "JobPod" in codes.values()
    planned = call(folder, policy, "plan", "-o", "json").document["evictions"]
    assert {each["pod"] for each in document["pods"] if each["targetNode"]} == {each["pod"] for each in planned}

    heap = document["attractions"][0]
    assert (heap["service"], heap["skewed"], heap["podsHere"], heap["fairShare"]) == ("batch/report", True, 24, 6.0)
    assert heap["decisivePlugin"] == "ImageLocality"
    # 3 GiB on one of five nodes: (614.4 - 23) / (1000 - 23) MiB
    (image,) = [each for each in heap["plugins"] if each["name"] == "ImageLocality"]
    assert (image["here"], image["median"], image["scoreLead"]) == (60, 0, 60)
    assert heap["images"] == [
        {"name": "registry.example/report:2.4", "bytes": 3 * 2**30, "nodesWithIt": 1, "nodesMissingIt": 3, "here": True}
    ]
    assert heap["nextPodProbability"] == 1.0
    assert not any(each["skewed"] for each in document["attractions"][1:])


def test_a_cool_node_is_shown_as_cool(lab: Lab, folder: Path, policy: Path) -> None:
    document = call(folder, policy, "explain", "node", "node-4", "-o", "json").document
    check_node_document(document)
    assert document["node"]["hot"] is False
    assert all(each["targetNode"] is None for each in document["pods"])


def test_explain_node_shows_tables(lab: Lab, folder: Path, policy: Path) -> None:
    shown = call(folder, policy, "explain", "node", "node-1")
    assert shown.code == 0, shown.err
    for part in ("Is it hot?", "75%", "20 of 28", "skewed", "60 points here", "3Gi, is on 1 node"):
        assert part in shown.out
    every = call(folder, policy, "explain", "node", "node-1", "--all", "-o", "wide")
    assert every.out.count("batch/report-") == 24
    assert "50m" in every.out


# ---- advise


def test_the_advice_loads_and_makes_the_heap_go_away(lab: Lab, folder: Path, policy: Path) -> None:
    advised = call(folder, policy, "advise", "scheduler")
    assert advised.code == 0, advised.err
    assert "60 points" in advised.out
    config = load_scheduler_config(advised.out.encode(), source="advice")
    assert "ImageLocality" not in config.profiles["default-scheduler"].weights
    assert "crowd-scheduler" in config.profiles

    (folder / "kube-scheduler.yaml").write_text(advised.out)
    given = yaml.safe_load(policy.read_text())
    given["scheduler"] = {"configFile": "kube-scheduler.yaml"}
    after = write_policy(folder, given, "after.yaml")
    heap = call(folder, after, "explain", "node", "node-1", "-o", "json").document["attractions"][0]
    assert "ImageLocality" not in {each["name"] for each in heap["plugins"]}
    assert heap["nextPodProbability"] == 0.0


def test_the_advice_as_json_and_as_a_table(lab: Lab, folder: Path, policy: Path) -> None:
    document = call(folder, policy, "advise", "scheduler", "-o", "json").document
    assert document["schemaVersion"] == "2"
    assert all(
        each.keys() >= {"topic", "subject", "observation", "recommendation", "figures"} for each in document["advice"]
    )
    topics = {each["topic"]: each["subject"] for each in document["advice"]}
    assert topics == {
        "ScoringStrategy": "default-scheduler",
        "ImageLocality": "batch/report",
        "Crowd": "batch/report",
        "PrePull": "registry.example/report:2.4",
    }
    assert [(each["node"], each["service"]) for each in document["placementSkews"]] == [("node-1", "batch/report")]
    yaml_document = yaml.safe_load(call(folder, policy, "advise", "scheduler").out)
    assert document["configuration"] == yaml_document
    table = call(folder, policy, "advise", "scheduler", "-o", "table")
    for topic in topics:
        assert topic in table.out


def test_nothing_is_written_and_no_pod_is_evicted(lab: Lab, folder: Path, policy: Path) -> None:
    before = sorted(folder.iterdir())
    for command in (("explain", "pod", "shop/cart-0"), ("explain", "node", "node-1"), ("advise", "scheduler")):
        assert call(folder, policy, *command).code == 0
    assert sorted(folder.iterdir()) == before
    assert lab.log.evictions() == ()
    assert not any(taint for each in lab.cluster.store.all("nodes") for taint in each["spec"].get("taints", ())[1:])


# ---- the scheduler's file


def test_what_is_not_modelled_is_shown(lab: Lab, folder: Path, policy: Path) -> None:
    extenders = [{"urlPrefix": "http://127.0.0.1:1/extend", "filterVerb": "filter"}]
    (folder / "extended.yaml").write_text(yaml.safe_dump({**HEAD, "extenders": extenders}))
    given = {**yaml.safe_load(policy.read_text()), "scheduler": {"configFile": "extended.yaml"}}
    extended = write_policy(folder, given, "with-extender.yaml")
    shown = call(folder, extended, "explain", "pod", "shop/cart-0")
    assert "Not modelled: extender http://127.0.0.1:1/extend" in shown.out
    assert "extender http://127.0.0.1:1/extend" in call(folder, extended, "advise", "scheduler").out


def real_scheduler() -> Path:
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent")) / "kube-scheduler"
    if not program.exists():
        pytest.skip("needs KUBEBUILDER_ASSETS to name a folder with kube-scheduler")
    return program


def written_by_the_real_one(folder: Path, text: str) -> bytes:
    """The configuration as the real kube-scheduler understands it, with all its defaults."""
    (folder / "given.yaml").write_text(text)
    written = folder / "written.yaml"
    done = subprocess.run(
        [
            real_scheduler(),
            f"--config={folder / 'given.yaml'}",
            "--master=http://127.0.0.1:1",
            f"--write-config-to={written}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return written.read_bytes()


@pytest.mark.real
def test_the_real_scheduler_takes_the_advice(lab: Lab, folder: Path, policy: Path, tmp_path: Path) -> None:
    real_scheduler()
    advised = call(folder, policy, "advise", "scheduler").out
    understood = load_scheduler_config(written_by_the_real_one(tmp_path, advised), source="written")
    assert understood == load_scheduler_config(advised.encode(), source="advice")


@pytest.mark.real
@pytest.mark.parametrize(
    "profiles",
    [
        PROFILES,
        [profile_fields(RICH)],
        [{"plugins": {"score": {"enabled": [{"name": "TaintToleration"}]}}}],
        [{"plugins": {"multiPoint": {"enabled": [{"name": "TaintToleration"}, {"name": "ImageLocality"}]}}}],
        [
            {
                "plugins": {
                    "multiPoint": {"disabled": [{"name": "NodeAffinity"}]},
                    "filter": {"disabled": [{"name": "*"}]},
                }
            }
        ],
        [{"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 3}]}}}],
    ],
)
def test_a_file_is_read_as_the_real_scheduler_reads_it(tmp_path: Path, profiles: list[dict[str, Any]]) -> None:
    text = yaml.safe_dump({**HEAD, "profiles": profiles, "percentageOfNodesToScore": 30})
    understood = load_scheduler_config(written_by_the_real_one(tmp_path, text), source="written")
    assert understood == load_scheduler_config(text.encode(), source="given")


@pytest.mark.real
def test_our_defaults_are_the_real_schedulers(tmp_path: Path) -> None:
    understood = load_scheduler_config(written_by_the_real_one(tmp_path, yaml.safe_dump(HEAD)), source="written")
    assert understood == SchedulerConfig()
    assert understood.profiles["default-scheduler"].weights == DEFAULT_WEIGHTS


# ---- errors, large clusters, the documentation


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("explain", "pod", "shop/missing"), "namespace shop: pod missing: not found; expected one of cart-0, cart-1"),
        (("explain", "pod", "missing"), "namespace default: pod missing: not found; there are none"),
        (("explain", "pod", "shop/cart-0", "-n", "batch"), "shop/cart-0: expected the namespace once"),
        (("explain", "node", "missing"), "node missing: not found; expected one of gpu-1, node-1"),
    ],
)
def test_a_wrong_name_is_one_line(lab: Lab, folder: Path, policy: Path, arguments: tuple[str, ...], says: str) -> None:
    result = call(folder, policy, *arguments)
    assert result.code == 4
    assert says in result.error


def test_of_many_nodes_the_best_are_shown_and_failures_are_counted(tmp_path: Path) -> None:
    nodes = [node(f"node-{number:02}", cpu=8, unschedulable=number >= 25) for number in range(40)]
    workloads = [workload("web", namespace="shop", place={"node-00": 2}, cpu_request="500m", cpu=1.0)]
    with Lab.start(scenario(nodes=nodes, workloads=workloads)) as lab:
        lab.write_kubeconfig(tmp_path / "lab.kubeconfig")
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url))
        name = next(
            each["metadata"]["name"] for each in lab.cluster.store.all("pods") if each["spec"]["nodeName"] == "node-00"
        )
        short = call(tmp_path, policy, "explain", "pod", f"shop/{name}")
        every = call(tmp_path, policy, "explain", "pod", f"shop/{name}", "--all")
        document = call(tmp_path, policy, "explain", "pod", f"shop/{name}", "-o", "json").document
    assert "20 of 25" in short.out
    assert re.search(r"NodeUnschedulable +15 +node-25", short.out)
    assert "node-39" not in short.out
    assert all(f"node-{number:02} " in every.out for number in range(40))
    assert len(document["nodes"]) == 40
    assert document["failures"] == {"NodeUnschedulable": 15}


def test_the_commands_of_the_documentation_work(lab: Lab, folder: Path, policy: Path) -> None:
    text = (DOCS / "explain.md").read_text()
    shown = [line for line in re.findall(r"^\$ (rebalancer .*)$", text, flags=re.MULTILINE) if " lab " not in line]
    assert len(shown) >= 3
    for line in shown:
        words = shlex.split(line.split(">")[0])[1:]
        given = [str(policy) if word == "docs/explain/policy.yaml" else word for word in words]
        result = rebalancer(*given, cwd=folder, cold=True)
        assert result.code == 0, (line, result.err)
