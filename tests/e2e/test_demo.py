"""`rebalancer demo`: cools every hot node, as tables and as JSON, and leaves a database that can be read."""

from pathlib import Path
from typing import Any

from tests.programs.cli import rebalancer

MOST_EVICTIONS = 7

DOCUMENT_KEYS = {"schemaVersion", "cycle", "nodes", "findings", "evictions", "refusals"}
NODE_KEYS = {"name", "pool", "cpuShareBefore", "cpuSharePlanned", "cpuShareAfter", "hot", "resources"}
FINDING_KEYS = {"strategy", "node", "pool", "cpuShare", "high", "target", "reason"}
EVICTION_KEYS = {
    "namespace", "pod", "uid", "node", "service", "cpuMillicores", "targetNode", "targetNodes", "outcome",
}  # fmt: skip
REFUSAL_KEYS = {"node", "namespace", "pod", "code", "message"}


def check_document(document: dict[str, Any]) -> None:
    """The promised fields are there; others may be added."""
    assert document.keys() >= DOCUMENT_KEYS
    assert document["cycle"].keys() >= {"id", "cluster", "trigger", "dryRun", "startedAt"}
    assert all(line.keys() >= NODE_KEYS for line in document["nodes"])
    assert all(finding.keys() >= FINDING_KEYS for finding in document["findings"])
    assert all(refusal.keys() >= REFUSAL_KEYS and refusal["message"] for refusal in document["refusals"])
    for eviction in document["evictions"]:
        assert eviction.keys() >= EVICTION_KEYS
        assert eviction["targetNode"] == eviction["targetNodes"][0]["node"]
        assert eviction["reason"]


def test_the_demo_cools_every_hot_node_and_says_so_as_json(tmp_path: Path) -> None:
    result = rebalancer("demo", "-o", "json", cwd=tmp_path, cold=True)
    assert result.code == 0, result.err
    document = result.document
    check_document(document)
    assert document["cycle"]["dryRun"] is False
    hot = {line["name"] for line in document["nodes"] if line["hot"]}
    assert hot
    assert {finding["node"] for finding in document["findings"]} >= hot
    assert document["evictions"]
    assert all(line["cpuShareAfter"] <= 0.75 for line in document["nodes"])
    moved = [each for each in document["evictions"] if each["outcome"] == "evicted"]
    assert len(moved) <= MOST_EVICTIONS
    assert document["remainingHotNodes"] == []
    assert {each["node"] for each in moved} <= hot
    assert all(each["targetNode"] != each["node"] for each in moved)


def test_the_demo_keeps_its_database_in_the_state_folder_where_status_reads_it(tmp_path: Path) -> None:
    here, home = tmp_path / "here", {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": ""}
    here.mkdir()
    result = rebalancer("demo", cwd=here, env=home)
    assert result.code == 0, result.err
    for heading in (
        "Hot nodes",
        "Evictions",
        "Not evicted",
        "BEFORE",
        "PLANNED",
        "MEASURED",
        "no node is hot any more",
    ):
        assert heading in result.out
    status = rebalancer("db", "status", "-o", "json", cwd=here, env=home).document
    assert status["current"] is True
    assert status["unreconciled"] == 0
    assert status["rows"]["evictions"] > 0
    assert status["rows"]["cycles"] >= 1
    assert "evictions" in rebalancer("db", "status", cwd=here, env=home).out
    assert list(here.iterdir()) == []


def test_the_demo_writes_nothing_into_the_database_of_the_environment(tmp_path: Path) -> None:
    home, named = {"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path / "production.db"
    production = home | {"REBALANCER_DATABASE": f"sqlite:///{named}"}
    result = rebalancer("demo", "--speed", "120", cwd=tmp_path, env=production)
    assert result.code == 0, result.err
    assert not named.exists()
    own = f"sqlite:///{tmp_path / 'state' / 'rebalancer' / 'demo.db'}"
    assert f"rebalancer db status --database {own}" in " ".join(result.out.split())
