"""A wrong answer of a plugin is not used, and its note says what is wrong."""

# ruff: noqa: E501 (a table of wrong answers is read row by row)
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.cycle.observe import plugin_limit
from rebalancer.cycle.observe.observation import find
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Evenness, Finding, Goal, LandingRule, Loads
from rebalancer.model.errors import ConfigError
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.strategies.base import Need
from rebalancer.strategies import Findings, StrategyView, may_cordon, needs, strategy_for
from rebalancer.strategies.external.plugins import plugin
from rebalancer.strategies.utilization import low_node_utilization
from tests.builders import (
    NOW,
    a_node,
    a_pod,
    a_policy,
    carry_out,
    cluster,
    planner_for,
    replicas,
    usage_of,
    view_of,
)
from tests.planner.builders.plans import ANY_REPLICAS, heavy, single
from tests.strategies.builders.finding import observation_of
from tests.strategies.test_plugins import Install, install

__all__ = ["install"]

NAME = "a.example/Mine"


PODS = [*replicas("web", {"n0": 2, "n1": 1}, used=100.0), *replicas("far", {"n2": 1}, used=100.0), a_pod("waits")]


FOUR = [a_node("n0"), a_node("n1"), a_node("n2", labels={"pool": "other"}), a_node("n3", labels={})]


def a_view(**fields: Any) -> StrategyView:
    pools = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": {"high": 75, "target": 65, "low": 50}}
        for name in ("general", "other")
    ]
    policy = a_policy(pools=pools, strategies=[{"name": NAME, "pools": ["general"]}])
    snapshot = cluster(FOUR, PODS)
    return view_of(snapshot, usage_of(snapshot, FOUR, PODS), policy, **fields)


def a_finding(**fields: Any) -> Finding:
    return Finding(
        **{
            "strategy": NAME, "node": 0, "pool": "general", "reason": "because",
            "candidates": np.array([0, 1], dtype=np.int32), "goal": Goal.REMOVE, **fields,
        }
    )  # fmt: skip


def loads(**fields: Any) -> Loads:
    column = np.ones((4, 1))
    return Loads(
        **{
            "resources": ("memory",), "node": column, "room": column, "high": column, "target": column, "low": column,
            "pod": np.ones((5, 1)), **fields,
        }
    )  # fmt: skip


ANSWERS: dict[str, Any] = {}
"""What the plugin of these tests answers, by name; it looks here."""


def answered(install: Install, answer: Any, **fields: Any) -> Findings:
    """What is made of an answer."""
    install(f"from {__name__} import ANSWERS\n\ndef find(view):\n    return ANSWERS['now'](view)\n", {NAME: "their_strategy"})  # fmt: skip
    ANSWERS["now"] = answer if callable(answer) else lambda _: answer
    view = a_view(**fields)
    return strategy_for(view.strategy)(view)


def even(**fields: Any) -> LandingRule:
    return LandingRule(even=Evenness(**{"domain": np.array([0, 1, 1, -1], dtype=np.int32), "count": np.array([2.0, 2.0]), **fields}))  # fmt: skip


def test_a_right_answer_is_used_as_it_is(install: Install) -> None:
    only = np.array([False, True, True, True])
    given = Findings(
        findings=(
            a_finding(landing=replace(even(), only=only), wanted=1),
            a_finding(goal=Goal.COOL, cpu_share=0.9, high=0.8, target=0.7, candidates=[1], in_order=True),
            a_finding(goal=Goal.EMPTY, node=1, candidates=np.array([2], dtype=np.int64)),
        ),
        loads=loads(relief=np.ones((5, 1))),
        skipped={3: Refusal.of(Reason.NODE_NOT_READY)},
        cordons={1: "draining"},
        empty_at_most=1,
        notes=("looked",),
    )
    found = answered(install, given)
    assert [each.candidates.tolist() for each in found.findings] == [[0, 1], [1], [2]]
    assert all(each.candidates.dtype == np.int32 for each in found.findings)
    assert (found.loads, found.cordons, found.skipped) == (given.loads, given.cordons, given.skipped)
    assert (found.empty_at_most, found.notes) == (1, ("looked",))


# (findings' fields or an answer as a whole, what the note says)
WRONG: list[tuple[Any, str]] = [
    (None, "find: expected Findings, got NoneType"),
    ([], "find: expected Findings, got list"),
    ({"strategy": "PodLifeTime"}, "findings[0].strategy: expected 'a.example/Mine', got 'PodLifeTime'"),
    ({"node": 4}, "findings[0].node: expected the index of a node, got 4"),
    ({"node": -1}, "findings[0].node: expected the index of a node, got -1"),
    ({"node": "n0"}, "findings[0].node: expected the index of a node, got 'n0'"),
    ({"node": 2, "pool": "other", "candidates": np.array([3])}, "findings[0].node: expected a node of its pools that it was asked to look at, got 'n2'"),
    ({"node": 3, "pool": "", "candidates": np.array([3])}, "findings[0].node: expected a node of its pools that it was asked to look at, got 'n3'"),
    ({"pool": "other"}, "findings[0].pool: expected 'general', got 'other'"),
    ({"reason": " "}, "findings[0].reason: expected a sentence, got ' '"),
    ({"goal": "remove"}, "findings[0].goal: expected a Goal, got 'remove'"),
    ({"goal": Goal.ROOM}, "findings[0].goal: expected COOL, REMOVE or EMPTY: room is made by MakeRoom"),
    ({"room_for": 0}, "findings[0].room_for: expected None"),
    ({"broken": True}, "findings[0].broken: expected False: only our own strategies lift guards, got True"),
    ({"recurs": True}, "findings[0].recurs: expected False"),
    ({"makes_room": 1}, "findings[0].makes_room: expected True or False, got 1"),
    ({"in_order": 1}, "findings[0].in_order: expected True or False, got 1"),
    ({"wanted": -1}, "findings[0].wanted: expected None or a count, got -1"),
    ({"wanted": 1.5}, "findings[0].wanted: expected None or a count, got 1.5"),
    ({"among": np.array([99])}, "findings[0].among: expected indices of pods"),
    ({"candidates": np.array([2])}, "findings[0].candidates: expected pods on n0, got shop/web-2 on n1"),
    ({"candidates": np.array([0, 4])}, "findings[0].candidates: expected pods on n0, got shop/waits on no node"),
    ({"candidates": np.array([0, 5])}, "findings[0].candidates: expected indices of pods, 0 to 4, got [5]"),
    ({"candidates": np.array([-1])}, "findings[0].candidates: expected indices of pods, 0 to 4, got [-1]"),
    ({"candidates": np.array([0, 0])}, "findings[0].candidates: expected each pod once, got [0, 0]"),
    ({"candidates": np.array([])}, "findings[0].candidates: expected a column of indices of pods"),
    ({"candidates": np.array([True, False])}, "findings[0].candidates: expected a column of indices of pods"),
    ({"candidates": np.array([[0]])}, "findings[0].candidates: expected a column of indices of pods"),
    ({"candidates": 5}, "findings[0].candidates: expected a column of indices of pods"),
    ({"landing": None}, "findings[0].landing: expected a LandingRule, got None"),
    ({"landing": LandingRule(only=np.ones(3, dtype=bool))}, "findings[0].landing.only: expected booleans of shape (4,), got bool of shape (3,)"),
    ({"landing": LandingRule(only=np.ones(4))}, "findings[0].landing.only: expected booleans of shape (4,), got float64 of shape (4,)"),
    ({"landing": even(domain=np.array([0, 1, 2, -1], dtype=np.int32))}, "findings[0].landing.even.domain: expected -1 to 1"),
    ({"landing": even(count=np.array([np.nan, 1.0]))}, "findings[0].landing.even.count: expected finite numbers"),
    ({"landing": even(skew=0)}, "findings[0].landing.even.skew: expected a number of 1 or more, got 0"),
    ({"goal": Goal.COOL, "cpu_share": 0.9, "high": 0.8, "target": 0.7}, "loads: expected Loads with a finding of goal COOL"),
    ({"goal": Goal.COOL}, "findings[0]: expected cpu_share, high and target with the goal COOL"),
    (Findings(findings=("x",)), "findings[0]: expected a Finding, got str"),  # type: ignore[arg-type]
    (Findings(findings=(), loads=loads(node=np.ones((3, 1)))), "loads.node: expected floats of shape (4, 1), got float64 of shape (3, 1)"),
    (Findings(findings=(), loads=loads(pod=np.ones((4, 1)))), "loads.pod: expected floats of shape (5, 1)"),
    (Findings(findings=(), loads=loads(relief=np.ones((5, 2)))), "loads.relief: expected floats of shape (5, 1)"),
    (Findings(findings=(), loads=loads(resources=())), "loads.resources: expected a tuple of names"),
    (Findings(findings=(), skipped={9: Refusal.of(Reason.NODE_NOT_READY)}), "skipped: expected indices of nodes, 0 to 3, got 9"),
    (Findings(findings=(), skipped={0: "no"}), "skipped[0]: expected a Refusal, got 'no'"),  # type: ignore[dict-item]
    (Findings(findings=(), cordons={2: "draining"}), "cordons: expected indices of its pools' nodes, got 2"),
    (Findings(findings=(), cordons={0: "maintenance"}), "cordons[0]: expected 'draining', got 'maintenance'"),
    (Findings(findings=(), cordons={0: "draining"}), "cordons[0]: expected a node that is being drained, or of a finding with the goal EMPTY"),
    (Findings(findings=(), empty_at_most=0), "empty_at_most: expected None or a number of 1 or more, got 0"),
    (Findings(findings=(), skipped=None), "its findings can't be read: AttributeError"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(index) for index in range(len(WRONG))])
def test_a_wrong_answer_is_not_used_and_the_note_says_what_is_wrong(
    install: Install, caplog: pytest.LogCaptureFixture, wrong: Any, message: str
) -> None:
    answer = Findings(findings=(a_finding(**wrong),)) if isinstance(wrong, dict) else wrong
    with caplog.at_level(logging.WARNING, logger="rebalancer"):
        found = answered(install, answer)
    assert (found.findings, found.loads, found.cordons, found.skipped) == ((), None, {}, {})
    (note,) = found.notes
    assert note.startswith(f"{NAME} finds nothing, its findings can't be ")
    assert message in note
    assert caplog.messages == [note]


def test_one_wrong_finding_spoils_the_others_too(install: Install) -> None:
    found = answered(install, Findings(findings=(a_finding(), a_finding(broken=True))))
    assert found.findings == ()
    assert "findings[1].broken" in found.notes[0]


def test_a_node_that_it_was_not_asked_to_look_at_is_none_of_its_business(install: Install) -> None:
    found = answered(install, Findings(findings=(a_finding(),), cordons={0: "draining"}), only=frozenset({1}))
    assert "findings[0].node: expected a node of its pools that it was asked to look at, got 'n0'" in found.notes[0]


def test_its_cordons_hold_also_when_it_is_not_asked_to_look(install: Install) -> None:
    begun = {0: ("draining", NOW)}
    found = answered(install, Findings(findings=(), cordons={0: "draining"}), only=frozenset({1}), cordons=begun)
    assert found.cordons == {0: "draining"}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (SystemExit(2), "SystemExit: 2"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (KeyError("a\nb"), "KeyError: 'a\\nb'"),
        (ValueError("x" * 5000), "ValueError: xxx"),
    ],
)
def test_an_exception_is_one_line_with_its_place(install: Install, error: BaseException, message: str) -> None:
    def fails(_: StrategyView) -> Findings:
        raise error

    found = answered(install, fails)
    assert found.findings == ()
    (note,) = found.notes
    assert note.startswith(f"{NAME} failed and finds nothing: {message}")
    assert note.endswith(")")
    assert re.search(r" \(test_plugin_answers\.py:\d+\)$", note)
    assert len(note) < 500


@pytest.mark.parametrize(
    "spoil",
    [
        lambda view: view.snapshot.pods.node.fill(0),
        lambda view: view.snapshot.nodes.unschedulable.fill(True),
        lambda view: view.usage.node_cpu_millicores.fill(0.0),
        lambda view: view.node_pools.of_node.fill(0),
        lambda view: view.snapshot.pods_on(0).fill(0),
    ],
)
def test_what_all_strategies_decide_on_cannot_be_written_to(install: Install, spoil: Callable[[Any], None]) -> None:
    def writes(view: StrategyView) -> Findings:
        spoil(view)
        return Findings(findings=())

    view = a_view()
    view.snapshot.pods_on(0)  # what was derived before is shared
    install(f"from {__name__} import ANSWERS\n\ndef find(view):\n    return ANSWERS['now'](view)\n", {NAME: "their_strategy"})  # fmt: skip
    ANSWERS["now"] = writes
    assert "read-only" in strategy_for(view.strategy)(view).notes[0]
    assert same(view.snapshot, a_view().snapshot)


def same(one: ClusterSnapshot, other: ClusterSnapshot) -> bool:
    return one.pods.node.tolist() == other.pods.node.tolist() and one.pods_on(0).tolist() == other.pods_on(0).tolist()


def test_a_plugin_that_fails_leaves_the_other_strategies_alone(install: Install) -> None:
    install("def find(view):\n    return 1 / 0\n", {NAME: "their_strategy"})
    nodes = [a_node("hot", used=13_400.0), a_node("cold", used=1_000.0)]
    pods = [heavy("hot"), single("web", used=3_000.0)]
    snapshot = cluster(nodes, pods)
    policy = a_policy(strategies=[{"name": NAME}, {"name": "LowNodeUtilization"}], **ANY_REPLICAS)
    outcome = carry_out(planner_for(snapshot, usage_of(snapshot, nodes, pods), policy), snapshot)
    assert outcome.pods == ["web"]


def test_ours_are_called_as_they_are() -> None:
    (strategy,) = a_policy().strategies
    assert strategy_for(strategy) is low_node_utilization.find


def test_a_plugin_gets_the_data_that_it_declares_and_says_whether_it_cordons(install: Install) -> None:
    find = "def find(view):\n    return None\n"
    install(find, {"a.example/Plain": "plain"}, module="plain")
    install(f"NEEDS = ['days', 'contention']\nCORDONS = False\n{find}", {NAME: "declaring"}, module="declaring")
    (plain,) = a_policy(strategies=[{"name": "a.example/Plain"}]).strategies
    (declaring,) = a_policy(strategies=[{"name": NAME}]).strategies
    assert (needs([plain]), may_cordon([plain])) == (frozenset(), True)
    assert (needs([declaring]), may_cordon([declaring])) == ({Need.DAYS, Need.CONTENTION}, False)
    assert needs([plain, declaring]) == set(Need)


@pytest.mark.parametrize("wrong", ["['hours']", "5"])
def test_a_need_that_is_not_known_is_an_error_with_those_that_are(install: Install, wrong: str) -> None:
    install(f"NEEDS = {wrong}\ndef find(view):\n    return None\n", {NAME: "their_strategy"})
    with pytest.raises(ConfigError, match="expected NEEDS to be a list of: days, contention"):
        plugin(NAME)


def test_a_plugin_that_hangs_is_skipped_and_the_others_find(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_limit, "LIMIT_SECONDS", 0.3)
    install("def find(view):\n    while True:\n        pass\n", {NAME: "their_strategy"})
    policy = a_policy(strategies=[{"name": NAME}, {"name": "LowNodeUtilization"}])
    nodes, pods = [a_node("hot", used=14_000.0), a_node("a", used=0.0)], replicas("web", {"hot": 2}, used=3_000.0)
    snapshot = cluster(nodes, pods)
    view = view_of(snapshot, usage_of(snapshot, nodes, pods), policy)
    hung, found = find(observation_of(view), policy)
    (note,) = hung.notes
    assert note.startswith(f"part failed: strategy {NAME}, since ")
    assert note.endswith(f"once: {NAME} was stopped after 0.3 seconds and finds nothing")
    assert [each.node for each in found.findings] == [0]
