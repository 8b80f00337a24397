"""Resources besides CPU in lives of clusters: memory, and one of the user's own."""

import ast
from pathlib import Path

import numpy as np
import pytest

import rebalancer
from rebalancer.cli.output.cycle_document import cycle_document
from rebalancer.lab import Lab, Scenario
from rebalancer.lab.loads.amounts import memory, named
from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, burner, codes, messages, service


def short_of_memory(**web: object) -> Scenario:
    """By CPU and by requests only `cold` takes what leaves `hot`; of its 16 GiB 15 are in use."""
    return a_scenario(
        [a_machine("hot", memory="16Gi"), a_machine("cold", memory="16Gi")],
        burner("burner", "hot", 11.0, memory="1Gi"),
        burner("cache", "cold", 1.0, memory="13Gi"),
        service("web", {"hot": 2, "cold": 1}, memory="1Gi", **web),
    )


def test_a_landing_that_cpu_allows_and_memory_forbids_is_refused_with_both_figures(tmp_path: Path) -> None:
    with a_stage(short_of_memory(), tmp_path) as stage:
        report = stage.turn()
        assert stage.log.evicted == []
        assert codes(report, "web-") == {"NoNodeWithMemory"}
        (message,) = messages(report, "web-")
    assert "cold would keep 6.2% of its memory (1Gi of 16Gi), at least 10% must stay available" in message


def test_what_a_policy_allows_may_fill_the_memory(tmp_path: Path) -> None:
    guards = {"minAge": "1m", "minMemoryAvailable": 5}
    with a_stage(short_of_memory(), tmp_path, guards=guards) as stage:
        stage.turn()
        stage.lab.clock.sleep(60)
        log = stage.log
    assert [(each.service, each.target) for each in log.moves] == [("web", "cold")]


# ---- thresholds by resource

DISK = {
    "name": "disk-busy",
    "node": 'lab_node_usage{resource="disk-busy"}',
    "pod": 'lab_pod_usage{resource="disk-busy"}',
}


def pools(**resources: object) -> list[dict[str, object]]:
    """CPU as in the other stories, and these resources."""
    marks = {"high": 75, "target": 65, "low": 50, "resources": resources}
    return [{"name": "all", "selector": {}, "thresholds": marks}]


def shares_of(lab: Lab) -> tuple[dict[str, float], dict[str, float]]:
    """Node -> share of CPU and of memory in fact."""
    columns, now = lab.usage.history.columns(), np.array([lab.clock.now()])
    used = memory(columns, now).nodes[:, 0]
    names = [machine.name for machine in columns.machines]
    of_memory = [float(each / machine.memory_bytes) for each, machine in zip(used, columns.machines, strict=True)]
    return lab.truth.node_cpu_share(lab.clock.now()), dict(zip(names, of_memory, strict=True))


def settled(stage: Stage) -> set[tuple[str, str]]:
    """Service and target of all moves of six cycles."""
    stage.turns(6)
    stage.lab.clock.sleep(120)
    return {(each.service, each.target) for each in stage.log.moves}


def test_a_node_hot_by_memory_alone_is_cooled_and_no_node_gets_hot_by_cpu(tmp_path: Path) -> None:
    """`busy` has the memory and not the CPU that the large pods need."""
    names = ("hot", "busy", "free")
    cluster = a_scenario(
        [a_machine(name, memory="16Gi") for name in names],
        burner("burner", "busy", 10.0),
        service("large", {"hot": 4, "free": 1}, cpu=1.0, memory="3Gi"),
        service("small", {"hot": 4}, cpu=1.0, memory="128Mi"),
    )
    with a_stage(cluster, tmp_path, pools=pools(memory={"high": 75, "target": 65, "low": 50})) as stage:
        before, full = shares_of(stage.lab)
        assert full["hot"] > 0.75 > before["hot"]
        assert settled(stage) == {("large", "free")}
        (finding, node) = stage.reports[0].findings[0]
        cpu, of_memory = shares_of(stage.lab)
        line = next(each for each in stage.reports[0].nodes if each.name == "hot")
        document = cycle_document(stage.reports[0])
    assert (finding.resource, node) == ("memory", "hot")
    assert [(each.resource, each.before) for each in line.resources] == [("memory", full["hot"])]
    assert line.resources[0].planned == pytest.approx(full["hot"] - 3 / 16 * len(stage.reports[0].evictions))
    assert document["findings"][0]["resource"] == "memory"
    assert {each["name"]: each["resources"][0]["resource"] for each in document["nodes"]}["hot"] == "memory"
    assert max(of_memory.values()) <= 0.65
    assert max(cpu.values()) <= 0.65


def test_a_node_hot_by_cpu_alone_is_cooled_and_no_node_gets_hot_by_memory(tmp_path: Path) -> None:
    """`full` has the CPU and not the memory that the pods need."""
    cluster = a_scenario(
        [a_machine(name, memory="16Gi") for name in ("hot", "full", "free")],
        burner("burner", "hot", 9.0),
        burner("cache", "full", 0.0, memory="10Gi"),
        service("web", {"hot": 4}, cpu=1.0, memory="1Gi"),
    )
    with a_stage(cluster, tmp_path, pools=pools(memory={"high": 75, "target": 65, "low": 64})) as stage:
        found = settled(stage)
        cpu, of_memory = shares_of(stage.lab)
    assert found == {("web", "free")}
    assert max(cpu.values()) <= 0.65
    assert max(of_memory.values()) <= 0.65


def test_a_disk_busy_resource_of_the_user_balances_with_lines_of_the_policy_only(tmp_path: Path) -> None:
    cluster = a_scenario(
        ("hot", "b", "c"),
        service("writer", {"hot": 3}, cpu=0.2, resources={"disk-busy": 0.3}),
        service("web", {"hot": 3, "b": 1}, cpu=0.2, resources={"disk-busy": 0.0}),
    )
    marks = {"disk-busy": {"high": 75, "target": 65, "low": 50}}
    with a_stage(cluster, tmp_path, pools=pools(**marks), own_resources=[DISK]) as stage:
        found = settled(stage)
        columns = stage.lab.usage.history.columns()
        busy = named(columns, np.array([stage.lab.clock.now()]), "disk-busy").nodes[:, 0]
    assert {name for name, _ in found} == {"writer"}
    assert busy.max() <= 0.65
    assert busy.sum() == pytest.approx(0.9)


def test_a_policy_without_memory_thresholds_plans_the_same_moves_as_before(tmp_path: Path) -> None:
    """The same cluster, with memory that no threshold forbids and with hardly any."""

    def moved(folder: Path, amount: str) -> list[tuple[str, str, str]]:
        folder.mkdir()
        cluster = a_scenario(
            [a_machine(name, memory="64Gi") for name in ("hot", "b", "c")],
            burner("burner", "hot", 9.0, memory=amount),
            service("web", {"hot": 3, "b": 2}, memory=amount),
            service("api", {"hot": 2, "c": 1}, memory=amount),
        )
        with a_stage(cluster, folder) as stage:
            stage.turns(3)
            stage.lab.clock.sleep(60)
            log = stage.log
        return [(each.service, each.source, each.target) for each in log.moves]

    assert moved(tmp_path / "much", "5Gi") == moved(tmp_path / "little", "1Mi") != []


LICENCES = {
    "name": "licences",
    "node": 'lab_node_usage{resource="licences"}',
    "capacity": 'lab_node_usage{resource="licences-installed"}',
    "pod": 'lab_pod_usage{resource="licences"}',
}


def test_a_fourth_resource_needs_lines_of_the_policy_only(tmp_path: Path) -> None:
    """`hot` exceeds by licences alone. `b` has no licences left, `c` no disk, `d` no memory: only `e` has all four."""
    names = ("hot", "b", "c", "d", "e")
    installed = [burner(f"server-{name}", name, 0.0, resources={"licences-installed": 40.0}) for name in names]
    cluster = a_scenario(
        [a_machine(name, memory="16Gi") for name in names],
        *installed,
        burner("editor", "b", 0.0, resources={"licences": 24.0}),
        burner("log", "c", 0.0, resources={"disk-busy": 0.64}),
        burner("cache", "d", 0.0, memory="10Gi"),
        service("cad", {"hot": 4}, cpu=0.5, memory="1Gi", resources={"licences": 8.0, "disk-busy": 0.02}),
        service("web", {"hot": 2}, cpu=0.5, memory="1Gi", resources={"licences": 0.0, "disk-busy": 0.0}),
    )
    marks = {name: {"high": 75, "target": 65, "low": 64} for name in ("memory", "disk-busy", "licences")}
    with a_stage(cluster, tmp_path, pools=pools(**marks), own_resources=[DISK, LICENCES]) as stage:
        found = settled(stage)
        columns, now = stage.lab.usage.history.columns(), np.array([stage.lab.clock.now()])
        licences = named(columns, now, "licences").nodes[:, 0] / 40.0
        (finding, _) = stage.reports[0].findings[0]
    assert (finding.resource, finding.cpu_share) == ("licences", pytest.approx(0.8))
    assert found == {("cad", "e")}
    assert licences.max() <= 0.65


def test_no_file_of_the_product_names_a_resource_of_the_users() -> None:
    """Docstrings may, as examples."""
    named_here = {DISK["name"], LICENCES["name"], "disk_busy", "network"}
    for path in Path(rebalancer.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        examples = {
            id(each.value)
            for each in ast.walk(tree)
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        }
        words = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and id(each) not in examples}
        words |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
        assert not words & named_here, path
