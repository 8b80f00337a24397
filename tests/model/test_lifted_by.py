"""What lifts each refusal, and that those which time lifts say when."""

import ast
from functools import cache
from pathlib import Path

import pytest

import rebalancer
from rebalancer.model.reason import Reason
from rebalancer.model.reason.groups import Row

BY_TIME = [code for code in Reason if code.lifted_by.startswith("time:")]
WITHOUT_START = 1
"""A pod without a start time is too young for a time that isn't known."""


def test_every_code_says_what_lifts_it() -> None:
    assert [code for code in Reason if not code.lifted_by.strip()] == []


def test_a_code_without_what_lifts_it_fails_at_import() -> None:
    with pytest.raises(TypeError, match="lifted_by"):
        Row(None, "New", "a new reason")  # type: ignore[call-arg]


def test_the_setting_is_the_key_in_braces_or_the_row_s_own() -> None:
    assert (Reason.TOO_YOUNG.lifted_by, Reason.TOO_YOUNG.setting) == (
        "time: guards.minAge after its start",
        "guards.minAge",
    )
    assert (Reason.POOL_FULL.lifted_by, Reason.POOL_FULL.setting) == (
        "a node under its low, or a higher low",
        "pools.thresholds.low",
    )
    assert Reason.OURSELVES.setting == ""


@cache
def refusals() -> list[tuple[ast.Call, set[str]]]:
    """Every call that makes a refusal, with its arguments as they are written."""
    return [
        (node, {ast.unparse(each) for each in (*node.args, *(each.value for each in node.keywords))})
        for path in Path(rebalancer.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Refusal.of", "Refusal")
    ]


def refusals_of(code: Reason) -> list[ast.Call]:
    """Calls that make a refusal of the code, wherever it is written out."""
    return [call for call, written in refusals() if f"Reason.{code.name}" in written]


@pytest.mark.parametrize("code", BY_TIME)
def test_what_time_lifts_says_when(code: Reason) -> None:
    timeless = [each for each in refusals_of(code) if "next_at" not in {one.arg for one in each.keywords}]
    assert len(timeless) == (WITHOUT_START if code is Reason.TOO_YOUNG else 0)
