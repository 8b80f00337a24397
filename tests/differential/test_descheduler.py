"""Recorded cases of the descheduler: as many evictions as there, or a reason.

Each case goes from the import of its DeschedulerPolicy through the reader of the API and the strategies to a plan.
"""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.differential.builders.plan import Verdict, verdict_on

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "cases" / "descheduler"
RECORDED: list[dict[str, Any]] = json.loads(gzip.decompress((FOLDER / "plans.json.gz").read_bytes()))
CASES = [case for case in RECORDED if case["objects"] is not None]
RULES: dict[str, list[dict[str, str]]] = yaml.safe_load((FOLDER / "differences.yaml").read_text())
PAGE = ROOT / "docs" / "operations" / "comparison.md"
RELATIONS = ("same", "fewer", "more")
BY_RULE = (
    *("PodLifeTime", "RemoveFailedPods", "RemovePodsHavingTooManyRestarts"),
    *("RemovePodsViolatingNodeAffinity", "RemovePodsViolatingNodeTaints"),
)
"""Plugins that evict every pod with a property. The others choose among pods."""


@cache
def verdict(number: int) -> Verdict:
    return verdict_on(CASES[number])


def name_of(case: dict[str, Any]) -> str:
    return str(case["plugin"]) if "plugin" in case else f"DefaultEvictor, {case['kind']}"


def original(case: dict[str, Any]) -> set[str]:
    """`namespace/name` of the pods that the descheduler evicts."""
    if "plugin" in case:
        return set(case["evicted"])
    return judged(case) if case["result"] else set()


def judged(case: dict[str, Any]) -> set[str]:
    """The pod of a filter's verdict."""
    pods = [each["metadata"] for each in case["objects"]["pods"]]
    return {f"{each['namespace']}/{each['name']}" for each in pods if each["name"] == case["pod"]}


def evicted(number: int) -> set[str]:
    case, ours = CASES[number], set(verdict(number).evicted)
    return ours if "plugin" in case else ours & judged(case)


def relation(number: int) -> str:
    theirs, ours = len(original(CASES[number])), len(evicted(number))
    return "same" if ours == theirs else "fewer" if ours < theirs else "more"


def rule_for(pod: str, number: int) -> dict[str, str] | None:
    """The rule that says why a pod stays."""
    case, result = CASES[number], verdict(number)
    nodes = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["spec"]["nodeName"]
        for each in case["objects"]["pods"]
    }
    code = result.reasons.get(pod) or result.reasons.get(nodes[pod])
    if code is not None:
        return next((rule for rule in RULES["fewer"] if rule.get("code") == code), None)
    texts = [result.refused, *result.differences]
    by_import = (rule for rule in RULES["fewer"] if any(rule.get("import", "\n") in text for text in texts))
    by_plugin = (rule for rule in RULES["fewer"] if rule.get("plugin") == case.get("plugin", ""))
    return next(by_import, None) or next(by_plugin, None)


def rules_for(number: int) -> list[dict[str, str] | None]:
    """Of each pod of which there is something to say."""
    how = relation(number)
    if how == "fewer":
        return [rule_for(pod, number) for pod in sorted(original(CASES[number]) - evicted(number))]
    if how == "more":
        return [next((rule for rule in RULES["more"] if rule["id"] in CASES[number]["id"]), None)]
    return []


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number]["id"])
def test_a_case_evicts_as_many_as_the_descheduler_or_has_a_reason(number: int) -> None:
    assert None not in rules_for(number), (relation(number), original(CASES[number]), verdict(number))


@pytest.mark.parametrize(
    "number",
    [
        at
        for at, case in enumerate(CASES)
        if case.get("plugin") in BY_RULE and not any((case["options"] or {}).values())
    ],
    ids=lambda number: CASES[number]["id"],
)
def test_plugins_that_choose_no_pods_evict_none_that_the_descheduler_keeps(number: int) -> None:
    assert evicted(number) <= original(CASES[number])


def test_every_rule_is_the_reason_of_a_case() -> None:
    used = [rule for number in range(len(CASES)) for rule in rules_for(number)]
    assert [rule for rules in RULES.values() for rule in rules if rule not in used] == []


def test_cases_without_objects_are_three() -> None:
    assert len(RECORDED) - len(CASES) == 3


def table() -> str:
    """The counts, as the page shows them."""
    counts: dict[str, Counter[str]] = {}
    for number, case in enumerate(CASES):
        counts.setdefault(name_of(case), Counter())[relation(number)] += 1
    rows = [(name, count.total(), *(count[how] for how in RELATIONS)) for name, count in sorted(counts.items())]
    total = ("all", *(sum(int(row[at]) for row in rows) for at in range(1, 5)))
    lines = ["| plugin | cases | as many evictions | fewer | more |", "|---|---:|---:|---:|---:|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in [*rows, total])])


def test_the_page_has_the_counts() -> None:
    assert table() in PAGE.read_text(), f"{PAGE.relative_to(ROOT)}: expected\n{table()}"
