"""The `rebalancer` program: its root command, error messages and exit codes.

Exit codes: 0 success; 1 a bug; 2 a plan that is not empty, with `--detailed-exitcode`; 3 unsafe or partial data, or a
Lease held by another process; 4 wrong configuration or usage; 5 no connection; 128 + n stopped by signal n.
"""

import os
import signal
import sys
from types import FrameType

import typer

from rebalancer.cli.common import COMPLETION, Stopped, say
from rebalancer.cli.registry import CommandGroup
from rebalancer.model.errors import RebalancerError

# typer vendors click and does not export this class
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="rebalancer",
    cls=CommandGroup,
    help="Rebalances Kubernetes clusters by real and predicted CPU load, and explains every decision.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from rebalancer.cli.commands.version import version_line

        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and the commit."
    ),
) -> None:
    """Rebalances Kubernetes clusters by real and predicted CPU load, and explains every decision."""


def _usage(error: Exception) -> str:
    """What is wrong with the command line, and what to type."""
    missing = getattr(error, "param", None) if type(error).__name__ == "MissingParameter" else None
    if missing is None:
        return f"{error} (see --help)"
    if missing.name == "policy":
        return "no policy: type -f FILE or set REBALANCER_POLICY; `rebalancer policy init -f policy.yaml` writes one"
    named = missing.opts[0] if missing.opts[0].startswith("-") else missing.display_name_raw.upper()
    return f"{named} is missing (see --help)"


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def main() -> None:
    """The entry point of the `rebalancer` script."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)  # releases the Lease and removes temporary files
    if COMPLETION in os.environ:  # a shell asks for the words that may follow
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        sys.exit(typer.main.get_command(app).main(standalone_mode=False))
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command prints its help
            typer.echo(str(error))
            sys.exit(0)
        say(f"Error: {_usage(error)}")
        sys.exit(4)
    except Stopped as stopped:
        say(str(stopped))
        sys.exit(128 + stopped.number)
    except RebalancerError as error:
        for line in str(error).splitlines():
            say(f"Error: {line}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # `rebalancer plan | head`: keeps the interpreter from flushing into the closed pipe at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
