"""`proposals`, `approve` and `reject`: what people type, and what they read."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.wiring import database
from rebalancer.lab import Lab
from tests.cli.test_plan_and_run import lab
from tests.cli.test_plan_files import Desk, desk
from tests.programs.cli import Result
from tests.programs.in_process import run_here

__all__ = ["desk", "lab"]

ROOT = Path(__file__).parents[2]
TO_APPROVE = (r"(?m)^( *)- name: general$", r"\1- name: general\n\1  mode: Approve")


@pytest.fixture(autouse=True)
def clock_of_the_lab(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "open_proposals", partial(database.open_proposals, clock=lab.clock))


def ledger(desk: Desk, *words: str) -> Result:
    """A command that reads the database alone."""
    connected = ("-f", str(desk.folder / "policy.yaml"), "--database", f"sqlite:///{desk.folder / 'rebalancer.db'}")
    return run_here([*words, *connected])


def listed(desk: Desk, *words: str) -> list[Any]:
    found: list[Any] = ledger(desk, "proposals", "-o", "json", *words).document["proposals"]
    return found


def proposed(desk: Desk) -> Any:
    done = desk.call("run", "--once", "-o", "json", change=TO_APPROVE)
    assert done.code == 0, done.err
    [entry] = done.document["proposals"]
    made = {each["pool"]: each["outcome"] for each in done.document["evictions"]}
    assert made == {"compute": "evicted", "general": "planned"}
    return entry


def test_a_run_proposes_and_the_proposal_is_listed_with_its_evictions(desk: Desk) -> None:
    entry = proposed(desk)
    assert (entry["pool"], entry["strategy"]) == ("general", "LowNodeUtilization")
    document = ledger(desk, "proposals", "-o", "json").document
    assert document["schemaVersion"] == "1"
    [found] = document["proposals"]
    assert found["id"] == entry["id"]
    assert (found["state"], found["decidedBy"], found["reason"]) == ("Proposed", None, None)
    assert len(found["evictions"]) == entry["evictions"]
    assert found.keys() >= {"cycle", "run", "expiresAt", "policyHash"}
    assert "thresholds" not in found
    one = ledger(desk, "proposals", entry["id"])
    assert all(each["pod"] in one.out for each in found["evictions"])
    landings = {target["node"] for each in found["evictions"] for target in each["targetNodes"]}
    assert landings <= set(re.findall(r"[\w-]+", one.out))
    assert ledger(desk, "proposals", entry["id"], "-o", "json").document["evictions"] == found["evictions"]


def test_approve_and_reject_write_who_and_when(desk: Desk) -> None:
    name = proposed(desk)["id"]
    done = ledger(desk, "approve", name)
    assert done.code == 0
    assert re.match(rf"approved: \d evictions from pool general by LowNodeUtilization; .* {name}$", done.err.strip())
    [found] = listed(desk)
    assert found["state"] == "Approved"
    assert found["decidedBy"]
    assert found["decidedAt"]
    assert ledger(desk, "reject", name, "--reason", "a release").code == 0
    assert listed(desk) == []
    [over] = listed(desk, "--all")
    assert (over["state"], over["reason"]) == ("Rejected", "a release")
    assert ledger(desk, "proposals").out.strip() == "No proposal."
    # the run's own evictions are all
    assert {each["spec"]["nodeName"] for each in desk.lab.cluster.pods()} >= {
        each["node"] for each in over["evictions"]
    }


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_what_can_not_be_decided_is_one_line(command: str, desk: Desk) -> None:
    name = proposed(desk)["id"]
    done = ledger(desk, command, "nope")
    assert done.code == 4
    [line] = done.err.splitlines()
    assert line.endswith(f"proposal nope: not found; expected one of {name}")
    assert ledger(desk, "reject", name).code == 0
    done = ledger(desk, command, name)
    assert done.code == 3
    assert re.fullmatch(rf"proposal {name}: it was rejected by \S+ at .*", done.err.strip().removeprefix("Error: "))
    unknown = ledger(desk, "proposals", "nope")
    assert (unknown.code, name in unknown.err) == (4, True)


@pytest.mark.parametrize("words", [("proposals",), ("approve", "abc123"), ("reject", "abc123")])
def test_without_a_database_there_is_one_line_and_no_file(words: tuple[str, ...], desk: Desk) -> None:
    (desk.folder / "policy.yaml").write_bytes((ROOT / "policies" / "demo.yaml").read_bytes())
    done = ledger(desk, *words)
    assert done.code == 4
    assert "no such database; expected that of the daemon" in done.err
    assert not (desk.folder / "rebalancer.db").exists()
