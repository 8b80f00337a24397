"""What `plan` prints is what `run --once` does with the same options: the same pods in the same order.

The commands run in this process against the practice cluster of `demo`, over HTTP, with time that passes when the
program waits.
"""

import functools
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands import contexts
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.lab import Lab
from tests.programs.in_process import run_here

ROOT = Path(__file__).parents[2]
START = 1_790_000_000.0


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The practice cluster; the commands use its clock, as `demo` does."""
    with Lab.start("demo", stepped=True, start_time=START) as lab:
        for name in ("planning_context", "evaluated_context"):
            opened = functools.partial(getattr(contexts, name), clock=lab.clock)
            monkeypatch.setattr(contexts, name, opened)
        yield lab


def command(lab: Lab, folder: Path, *words: str) -> Any:
    """The document that a command prints."""
    policy = folder / "policy.yaml"
    text = (ROOT / "policies" / "demo.yaml").read_text()
    policy.write_text(re.sub(r"url: .*", f"url: {lab.prometheus_url}", text))
    kubeconfig, database = lab.write_kubeconfig(folder / "config"), f"sqlite:///{folder / 'rebalancer.db'}"
    connected = ("-f", str(policy), "--kubeconfig", str(kubeconfig), "--database", database)
    done = run_here([*words, "-o", "json", *connected])
    assert done.code == 0, done.err
    return done.document


def pods(moves: Any) -> list[tuple[str, str, str]]:
    return [(each["pod"], each["node"], each["targetNode"]) for each in moves]


@pytest.mark.parametrize("options", [[], ["--no-wait"]], ids=["wait", "no-wait"])
def test_run_evicts_the_pods_that_plan_prints_in_its_order(lab: Lab, tmp_path: Path, options: list[str]) -> None:
    planned = command(lab, tmp_path, "plan", *options)
    ran = command(lab, tmp_path, "run", "--once", *options)
    assert {each["outcome"] for each in ran["evictions"]} == {"evicted"}
    assert pods(ran["evictions"]) == pods(planned["evictions"])
    assert [each.name for each in lab.log.evictions(code=201)] == [each["pod"] for each in planned["evictions"]]
    assert ran["softTaints"] == planned["softTaints"]


def test_without_waiting_nothing_is_planned_that_needs_a_soft_taint(lab: Lab, tmp_path: Path) -> None:
    waits, leaves = command(lab, tmp_path, "plan"), command(lab, tmp_path, "plan", "--no-wait")
    assert waits["softTaints"]
    assert leaves["softTaints"] == []
    assert pods(waits["evictions"]) != pods(leaves["evictions"])


def test_each_eviction_and_each_replacement_shows_while_it_happens(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(TerminalProgress, "event", lambda _, text: shown.append(text))
    made = command(lab, tmp_path, "run", "--once")["evictions"]
    names = [f"{each['namespace']}/{each['pod']}" for each in made if each["outcome"] == "evicted"]
    nodes = [each["node"] for each in made if each["outcome"] == "evicted"]
    assert len(names) > 3
    evicted = [f"evicted: {name} from {node}" for name, node in zip(names, nodes, strict=True)]
    assert [each for each in shown if each.startswith("evicted")] == evicted
    assert {each for each in shown if each.startswith("Ready")} <= {
        f"Ready: the replacement of {name}" for name in names
    }
    assert any(each.startswith("Ready") for each in shown)


def test_an_event_is_a_line_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (True, False):
        out = io.StringIO()
        monkeypatch.setattr(out, "isatty", lambda answer=is_terminal: answer, raising=False)
        monkeypatch.setattr(sys, "stderr", out)
        with TerminalProgress() as progress:
            progress.event("evicted: shop/web-1 from n1")
        assert ("evicted: shop/web-1 from n1\n" in out.getvalue()) is is_terminal
