"""The commands, each imported when it is asked for: the libraries of all of them take seconds to import."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "plan": ("plan:plan", "Show what a run would do now, with the reason for everything; change nothing."),
    "run": ("run:run", "Run as a daemon: on a timer, on alerts and when triggered, until stopped."),
    "trigger": ("trigger:trigger", "Ask the daemon that leads to look at nodes now."),
    "forecast": ("forecast:forecast", "Show each node's expected peak."),
    "report": ("report:report", "Show whether evictions helped."),
    "limits": ("limits:limits", "Every scope with its limits: used, left, and when the next eviction may be."),
    "windows": (
        "limits:windows",
        "For each scope with change windows: open or closed, until when, and the next opening.",
    ),
    "pause": ("limits:pause", "Stop evictions in a scope."),
    "resume": ("limits:resume", "End the pauses of a scope."),
    "status": ("limits:status", "What is paused, given up or on its way."),
    "demo": ("demo:demo", "Cool the hot nodes of a practice cluster."),
    "backtest": ("backtest:backtest_command", "Compare the predictors, each day forecast from earlier days only."),
    "doctor": ("doctor:doctor", "Probe database, API server, rights, Lease and usage."),
    "lab": ("lab:lab", "Serve a practice cluster on loopback until interrupted."),
    "explain": ("explain:app", "Why a pod or a node is as it is, with the scheduler's own numbers."),
    "advise": ("advise:app", "What would make evictions unnecessary."),
    "policy": ("policy:app", "Check policy files, make one."),
    "db": ("database:app", "The database of cycles, evictions and their outcomes."),
}
"""name -> (module:function, or module:app of a group; how its own help begins)"""


class CommandGroup(TyperGroup):
    """The program's own group. Its help imports no command."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.commands = cast(MutableMapping[str, Any], _Loaded())

    def list_commands(self, ctx: Any) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As the base class does."""
        width = formatter.width - 6 - max(len(name) for name in COMMANDS)
        with formatter.section("Commands"):
            formatter.write_dl(
                (name, TyperCommand(name, help=text).get_short_help_str(width)) for name, (_, text) in COMMANDS.items()
            )


class _Loaded(Mapping[str, Any]):
    """name -> the command."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f"{__package__}.commands.{module}"), attribute)
        app = typer.Typer(rich_markup_mode=None, callback=_nothing)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        return group.commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _nothing() -> None:
    """With it, one command makes a group."""
