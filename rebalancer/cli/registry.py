"""The commands, each imported on first use."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

COMMANDS = {
    "plan": ("plan:plan", "Show the evictions that a run would make now, and why."),
    "run": ("run:run", "Run the daemon until stopped, or with --once a single cycle."),
    "proposals": ("proposals:proposals", "Show plans that wait for an approval."),
    "approve": ("proposals:approve", "Approve the evictions of a proposal."),
    "reject": ("proposals:reject", "Reject a proposal, or take an approval back."),
    "trigger": ("trigger:trigger", "Request a cycle for some nodes from the leading daemon."),
    "forecast": ("forecast:forecast", "Show the predicted CPU peak of each node in the next 24 hours."),
    "replay": ("replay:replay", "Show what the last days would have been with a policy."),
    "try": ("try_out:try_out", "Show what it would have done here, without any set-up."),
    "report": ("report:report", "Show whether evictions helped."),
    "evictions": ("evictions:evictions", "Show who evicted what, rebalancer or any other component."),
    "assess": ("assess:assess", "Assess evictions that are due, and evaluate the hot-node SLO."),
    "limits": ("limits:limits", "Show what is used and left of each limit."),
    "windows": ("limits:windows", "Show the change windows of each scope, open or closed."),
    "pause": ("operator:pause", "Stop evictions in a scope."),
    "resume": ("operator:resume", "End the pauses of a scope."),
    "resolve": ("operator:resolve", "Close an eviction in flight by hand."),
    "status": ("operator:status", "Show pauses, backoffs, evictions in flight, and what has failed."),
    "demo": ("demo:demo", "Cool the hot nodes of a practice cluster."),
    "backtest": ("backtest:backtest_command", "Compare forecast predictors by rolling-origin evaluation."),
    "cleanup": ("cleanup:cleanup", "Remove all its taints and cordons from nodes."),
    "doctor": ("doctor:doctor", "Check database, API server, permissions, Lease and metrics."),
    "lab": ("lab:lab", "Serve a practice cluster on loopback until interrupted."),
    "explain": ("explain:app", "Explain the decisions about a pod or a node."),
    "advise": ("advise:app", "Advise on configuration that makes evictions unnecessary."),
    "policy": ("policy:app", "Validate, show, write and import policy files."),
    "db": ("database:app", "Manage the database of cycles, evictions and outcomes."),
    "completion": ("completion:completion", "Print the completion script of a shell."),
    "version": ("version:version", "Print the version, the commit and the version of Python."),
}
"""name -> (module:function, or module:app of a group; the beginning of its help)"""


PLACEHOLDERS = {
    **dict.fromkeys(("namespace", "context", "cluster", "node", "strategy"), "NAME"),
    **dict.fromkeys(("database", "server", "prometheus", "prometheus_url", "dask"), "URL"),
    **dict.fromkeys(("since", "until"), "TIME"),
    **dict.fromkeys(("duration", "older_than", "past"), "DURATION"),
    **dict.fromkeys(("days", "most", "port", "seed", "speed", "workers"), "NUMBER"),
    **dict.fromkeys(("kubeconfig", "policy", "policies", "against", "file", "plot", "token_file", "ca_file"), "FILE"),
    "selector": "LABELS",
    "reason": "TEXT",
    "by": "NAME,NAME",
    "goal": "BOUND",
    "resource": "RESOURCE",
    "traces": "FOLDER",
}
"""Name of an option's parameter -> what its help shows for a value."""


class CommandGroup(TyperGroup):
    """The root command. Its help imports no command."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.commands = cast(MutableMapping[str, Any], _Loaded())

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in the order of the help."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The names with the beginnings of their help."""
        width = formatter.width - 6 - max(len(name) for name in COMMANDS)
        with formatter.section("Commands"):
            formatter.write_dl(
                (name, TyperCommand(name, help=text).get_short_help_str(width)) for name, (_, text) in COMMANDS.items()
            )


class _Loaded(Mapping[str, Any]):
    """name -> command"""

    def __getitem__(self, name: str) -> Any:
        """The command, with a placeholder for the value of each option."""
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f"{__package__}.commands.{module}"), attribute)
        app = typer.Typer(rich_markup_mode=None, callback=_nothing)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        return _with_placeholders(group.commands[name])

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _with_placeholders(command: Any) -> Any:
    """The command, whose help shows `FILE` or `NAME` for values instead of types of Python."""
    for inner in getattr(command, "commands", {}).values():
        _with_placeholders(inner)
    for each in command.params:
        kind = each.type_descriptor
        if (
            each.metavar is None
            and isinstance(each, TyperOption)
            and not (each.is_flag or each.count or kind.is_choice)
        ):
            each.metavar = PLACEHOLDERS.get(each.name or "") or ("FILE" if kind.is_path else "VALUE")
    return command


def _nothing() -> None:
    """Makes a group of a single command."""
