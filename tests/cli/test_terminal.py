"""Every command on a terminal of 80 columns, against the practice cluster of `demo`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.cli.registry import COMMANDS
from rebalancer.lab import Lab
from tests.programs.cli import Result
from tests.programs.in_process import run_here

ROOT = Path(__file__).parents[2]
WIDTH = 80
OF_CLUSTER = ("--kubeconfig", "{kubeconfig}")
OF_LEDGER = ("-f", "{policy}", "--database", "{database}")
OF_BOTH = (*OF_CLUSTER, *OF_LEDGER)
CALLS = {
    "windows": ("windows", "--services", "-f", "{policy}", *OF_CLUSTER),
    "doctor": ("doctor", *OF_BOTH),
    "plan": ("plan", *OF_BOTH),
    "plan, wide": ("plan", "--all-nodes", *OF_BOTH),
    "explain pod": ("explain", "pod", "{pod}", *OF_BOTH),
    "explain node": ("explain", "node", "gen-2", *OF_BOTH),
    "forecast": ("forecast", *OF_BOTH),
    "advise": ("advise", "scheduler", "-o", "table", *OF_BOTH),
    "limits": ("limits", *OF_BOTH),
    "run": ("run", "--once", "--no-wait", *OF_BOTH),
    "status": ("status", *OF_LEDGER),
    "limits, used": ("limits", *OF_BOTH),
    "pause": ("pause", "service/shop/checkout", "--reason", "a sale until the end of the week", *OF_LEDGER),
    "status, paused": ("status", *OF_LEDGER),
    "resume": ("resume", "service/shop/checkout", *OF_LEDGER),
    "report": ("report", *OF_LEDGER),
    "forecast --accuracy": ("forecast", "--accuracy", *OF_BOTH),
    "db status": ("db", "status", "--database", "{database}"),
    "db prune": ("db", "prune", "--database", "{database}"),
    "policy": ("policy", "validate", "{policy}"),
}
"""In this order: the later ones show what the run has done."""
SILENT = {
    "lab": "serves until it is stopped",
    "version": "a line",
    "completion": "a script",
    "trigger": "a line",
    "resolve": "a line",
    "demo": "cycles as `run` shows them",
    "backtest": "its tables are those of tests/forecast",
}
"""Commands that print no table of the cluster's names here."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("terminal")
    with Lab.start("demo") as lab, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REBALANCER_HISTORY_DIR", str(folder / "history"))
        policy = folder / "policy.yaml"
        text = (ROOT / "policies" / "demo.yaml").read_text()
        policy.write_text(re.sub(r"url: .*", f"url: {lab.prometheus_url}", text))
        pods = ["{namespace}/{name}".format(**each["metadata"]) for each in lab.cluster.pods()]
        yield {
            "policy": str(policy),
            "kubeconfig": str(lab.write_kubeconfig(folder / "kubeconfig")),
            "database": f"sqlite:///{folder / 'rebalancer.db'}",
            "pod": next(each for each in pods if each.startswith("shop/checkout-")),
            "pods": " ".join(pods),
        }


def call(names: dict[str, str], *words: str) -> Result:
    done = run_here([word.format(**names) for word in words], columns=WIDTH)
    assert done.code in (0, 2), done.err
    return done


def check(text: str, pods: set[str]) -> None:
    """No line is longer than the terminal, no row goes on in a second line, no name is cut."""
    for line in text.splitlines():
        assert len(line) <= WIDTH, line
        assert len(line) - len(line.lstrip()) <= 4, f"a row that goes on: {line}"
        assert "…" not in line
    namespaces = {pod.partition("/")[0] for pod in pods}
    known = {*pods, *(f"{space}/{name}" for space, name in services(pods))}
    for name in re.findall(r"[\w./-]+/[\w.-]*[\w]", text):
        if name.partition("/")[0] in namespaces:
            assert name in known, f"{name} is cut"
    for name in re.findall(r"\b(?:gen|cmp)-\w*", text):
        assert re.fullmatch(r"gen-[1-8]|cmp-[1-4]", name), f"{name} is cut"


def services(pods: set[str]) -> set[tuple[str, str]]:
    """(namespace, every beginning of a pod's name that may be its service's)."""
    cut = [(pod.partition("/")[0], pod.partition("/")[2].split("-")) for pod in pods]
    return {(space, "-".join(parts[:end])) for space, parts in cut for end in (1, 2, 3) if end < len(parts)}


def test_21_2_every_command_is_tried_at_80_columns() -> None:
    assert {name.split()[0].rstrip(",") for name in (*CALLS, *SILENT)} == {*COMMANDS}


@pytest.mark.parametrize("name", CALLS)
def test_21_2_no_name_is_cut_and_no_row_wrapped_at_80_columns(name: str, names: dict[str, str]) -> None:
    done = call(names, *CALLS[name])
    check(done.out, set(names["pods"].split()))


def test_21_2_a_wide_table_has_all_columns(names: dict[str, str]) -> None:
    node = ("explain", "node", "gen-2", *OF_BOTH)
    assert "REQUEST" not in call(names, *node).out
    assert "REQUEST" in call(names, *node, "-o", "wide").out
