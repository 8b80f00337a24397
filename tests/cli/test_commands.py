"""What a start of the program imports, and what its help says of each command."""

import subprocess
import sys

import pytest
import typer
from typer.core import TyperGroup

from rebalancer.cli.main import app
from rebalancer.cli.registry import COMMANDS
from tests.e2e.cli import rebalancer

HEAVY = {"alembic", "kubernetes", "numpy", "pandas", "pydantic", "requests", "sqlalchemy", "starlette", "statsmodels"}


def imported(*arguments: str) -> set[str]:
    """The modules of one start, without those inside of packages."""
    code = "import sys, contextlib, rebalancer.cli.main as m\nwith contextlib.suppress(SystemExit): m.main()\n"
    told = "print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + told, *arguments], capture_output=True, text=True, check=True)
    return {name for name in done.stderr.split() if "." not in name}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_needs_none_of_the_heavy_libraries(arguments: list[str]) -> None:
    assert imported(*arguments) & HEAVY == set()


@pytest.mark.parametrize("name", ["plan", "run"])
def test_one_cycle_needs_neither_the_web_server_nor_the_practice_cluster(name: str) -> None:
    found = imported(name, "--help")
    assert found >= {"kubernetes", "numpy", "sqlalchemy"}
    assert found & {"apscheduler", "pandas", "prometheus_client", "starlette", "statsmodels", "uvicorn"} == set()


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
