"""What a start of the program imports, and what its help says of each command."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from rebalancer.cli.main import app
from rebalancer.cli.registry import COMMANDS
from tests.programs.cli import rebalancer

POLICY = str(Path(__file__).parents[2] / "policies" / "demo.yaml")
ALWAYS = ("rebalancer.cli", "rebalancer.model")
"""All that a command's help needs of the program."""
LIBRARIES = {
    *("alembic", "apscheduler", "cronsim", "jinja2", "kubernetes", "markupsafe", "msgspec", "numpy", "pandas"),
    *("prometheus_api_client", "prometheus_client", "pydantic_settings", "requests", "rich", "scipy", "sqlalchemy"),
    *("starlette", "statsmodels", "structlog", "tenacity", "urllib3", "uvicorn", "yaml"),
}
ONLY_DAEMON = {
    *("apscheduler", "jinja2", "prometheus_client", "starlette", "uvicorn"),
    *("rebalancer.daemon", "rebalancer.dashboard", "rebalancer.lab", "rebalancer.web"),
}
ONLY_BACKTEST = {"pandas", "scipy", "statsmodels", "rebalancer.forecast.backtest"}
ONLY_DATABASE = {"alembic", "psycopg"}
"""For the upgrade of a database, and for PostgreSQL."""
ADAPTERS = {"kubernetes", "prometheus_api_client", "requests", "rebalancer.kube", "rebalancer.prometheus"}
PLANNING = {"rebalancer.forecast", "rebalancer.placement", "rebalancer.strategies"}
SCHEDULER = {"rebalancer.cycle.run", "rebalancer.planner", "rebalancer.placement.scheduler.engine"}
NEVER = {
    "plan": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, "rebalancer.evaluation"},
    "run": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST},
    "forecast": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, "rebalancer.evaluation"},
    "limits": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, "rebalancer.evaluation"},
    "explain": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, "rebalancer.evaluation"},
    "advise": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, "rebalancer.evaluation"},
    "doctor": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, "rebalancer.evaluation", *SCHEDULER},
    "windows": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, "sqlalchemy", "rebalancer.evaluation", *SCHEDULER},
    "policy": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, *PLANNING, "sqlalchemy", "rebalancer.evaluation", *SCHEDULER},
    "proposals": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, *PLANNING, "rebalancer.evaluation", *SCHEDULER},
    "evictions": {*ONLY_DAEMON, *ONLY_BACKTEST, *PLANNING, *SCHEDULER, "prometheus_api_client", "sqlalchemy"},
    "pause": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, *PLANNING, "rebalancer.evaluation", *SCHEDULER},
    "resume": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, *PLANNING, "rebalancer.evaluation", *SCHEDULER},
    "status": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, *PLANNING, "rebalancer.evaluation", *SCHEDULER},
    "report": {*ONLY_DAEMON, *ONLY_DATABASE, *ONLY_BACKTEST, *ADAPTERS, *SCHEDULER},
    "db": {*ONLY_DAEMON, *ONLY_BACKTEST, *ADAPTERS, "rebalancer.evaluation", *SCHEDULER},
    "trigger": LIBRARIES - {"urllib3"},
}
"""Command -> modules that it does not import while it runs."""
CALLS = {
    "plan": ["plan", "-f", POLICY, "--kubeconfig", "missing"],
    "run": ["run", "--once", "-f", POLICY, "--kubeconfig", "missing"],
    "forecast": ["forecast", "-f", POLICY, "--kubeconfig", "missing"],
    "limits": ["limits", "-f", POLICY, "--kubeconfig", "missing"],
    "explain": ["explain", "node", "n1", "-f", POLICY, "--kubeconfig", "missing"],
    "advise": ["advise", "scheduler", "-f", POLICY, "--kubeconfig", "missing"],
    "proposals": ["proposals", "-f", POLICY],
    "evictions": ["evictions", "--kubeconfig", "missing"],
    "doctor": ["doctor", "-f", POLICY, "--kubeconfig", "missing"],
    "windows": ["windows", "-f", POLICY],
    "policy": ["policy", "validate", POLICY],
    "pause": ["pause", "cluster", "-f", POLICY, "--reason", "test"],
    "resume": ["resume", "cluster", "-f", POLICY],
    "status": ["status", "-f", POLICY],
    "report": ["report", "-f", POLICY],
    "db": ["db", "upgrade"],
    "trigger": ["trigger", "--node", "n1", "--server", "http://127.0.0.1:1"],
}
COMMIT = {
    "rebalancer.bootstrap",
    "rebalancer.bootstrap.process",
    "rebalancer.bootstrap.process.build",
    "rebalancer.bootstrap.process.paths",
}
"""What finds the commit that the program was built from."""
GROUPS = {"advise": "scheduler", "db": "prune", "explain": "pod", "policy": "import"}
"""Group -> one of its commands."""


def imported(*arguments: str, cwd: Path | None = None) -> set[str]:
    """The modules of one start."""
    code = "import sys, contextlib, rebalancer.cli.main as m\nwith contextlib.suppress(SystemExit): m.main()\n"
    names = "print('MODULES', *sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code + names, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd)
    return set(done.stderr.partition("MODULES")[2].split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_neither_a_library_nor_the_rest_of_the_program(arguments: list[str]) -> None:
    name = arguments[0]
    if name in GROUPS:
        arguments = [name, GROUPS[name], "--help"]
    found = imported(*arguments)
    assert found & LIBRARIES == set()
    ours = {module for module in found if module.startswith("rebalancer.") and not module.startswith(ALWAYS)}
    assert ours == (COMMIT if name == "--version" else set())


@pytest.mark.parametrize("name", NEVER)
def test_a_command_imports_only_what_it_needs(name: str, tmp_path: Path) -> None:
    assert imported(*CALLS[name], cwd=tmp_path) & NEVER[name] == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_own_help_begins_with_what_the_list_says_of_it(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    own = " ".join((group.commands[name].help or "").split())
    assert own.startswith(COMMANDS[name][1].removesuffix("."))


def test_the_list_names_every_command() -> None:
    shown = rebalancer("--help", env={"COLUMNS": "120"}).out.partition("Commands:")[2]
    assert [line.split()[0] for line in shown.strip().splitlines()] == list(COMMANDS)


def test_a_command_that_does_not_exist_is_one_line() -> None:
    result = rebalancer("plna")
    assert result.code == 4
    assert "plna" in result.error
