"""`run --once`, `plan` and `explain` with a pool in dry run."""

from tests.cli.test_plan_and_run import lab
from tests.cli.test_plan_files import Desk, desk

__all__ = ["desk", "lab"]

IN_DRY_RUN = (r"(?m)^( *)- name: general$", r"\1- name: general\n\1  mode: DryRun")
PART = "dry run of pool general"


def test_run_once_evicts_nothing_from_a_pool_in_dry_run(desk: Desk) -> None:
    planned = desk.call("plan", "-o", "json", change=IN_DRY_RUN).document["evictions"]
    made = desk.call("run", "--once", "-o", "json", change=IN_DRY_RUN).document["evictions"]
    assert {(each["pool"], each["outcome"], each["detail"]) for each in made} == {
        ("compute", "evicted", ""),
        ("general", "planned", PART),
    }
    assert desk.evicted == [each["uid"] for each in planned if not each["detail"]]
    assert [each["uid"] for each in made] == [each["uid"] for each in planned]


def test_explain_says_that_a_pod_stays_for_the_dry_run(desk: Desk) -> None:
    planned = desk.call("plan", "-o", "json", change=IN_DRY_RUN).document["evictions"]
    for part in (PART, ""):
        pod = next(each for each in planned if each["detail"] == part)
        shown = desk.call("explain", "pod", f"{pod['namespace']}/{pod['pod']}", change=IN_DRY_RUN).out
        assert (PART in shown) is bool(part)
