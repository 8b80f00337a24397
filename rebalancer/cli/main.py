"""`rebalancer`: the commands, and the one place where errors become a line and an exit code.

Exit codes: 0 done; 1 a bug; 2 with `--detailed-exitcode` when the plan is not empty (and typer's usage errors);
3 unsafe or partial data, or somebody else holds the lease; 4 bad configuration; 5 can't connect.
"""

import os
import sys

import typer

from rebalancer import __version__
from rebalancer.cli import database, demo, doctor, lab, plan, policy, run
from rebalancer.cli.common import say
from rebalancer.model.errors import RebalancerError

app = typer.Typer(
    name="rebalancer",
    help="Rebalances Kubernetes clusters by real and predicted CPU load, and explains every decision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("lab")(lab.lab)
app.add_typer(policy.app, name="policy")
app.add_typer(database.app, name="db")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rebalancer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Rebalances Kubernetes clusters by real and predicted CPU load, and explains every decision."""


def main() -> None:
    """The entry point of the `rebalancer` script."""
    try:
        app()
    except RebalancerError as error:
        for line in str(error).splitlines():
            say(f"Error: {line}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # `rebalancer plan | head`: nobody reads on; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
