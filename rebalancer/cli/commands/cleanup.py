"""`rebalancer cleanup`: no taint or cordon of ours stays on a node."""

from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import CONNECT_EXIT
from rebalancer.cli.invocation import Invocation, options

if TYPE_CHECKING:
    from rebalancer.cli.output.tables import Screen

WAIT_SECONDS = 120.0
"""Twice the time that the chart gives the daemon to stop."""


@options("kubeconfig", "context", "verbose", "output")
def cleanup(
    invocation: Invocation,
    deployment: Annotated[
        str | None,
        typer.Option(
            "--deployment", metavar="NAME", help="Scale this Deployment to 0 first, and wait.", show_default=False
        ),
    ] = None,
) -> None:
    """Remove all its taints and cordons from nodes. For an uninstallation: the daemon removes its own when it stops.
    Nodes in maintenance keep them. Refused while a process holds the Lease; exits with code 5 where a node can't be
    changed."""
    settings = invocation.settings
    from rebalancer.bootstrap.commands.cleanup import FAILED, clean_up
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick
    from rebalancer.cli.output.progress import TerminalProgress
    from rebalancer.cli.output.tables import plain_table

    with TerminalProgress() as progress:
        cleaned = clean_up(settings, deployment=deployment, seconds=WAIT_SECONDS, progress=progress)

    def draw(screen: "Screen") -> None:
        if not cleaned:
            screen.print("No node has a taint or cordon of rebalancer.")
            return
        table = plain_table("Nodes", "NODE", "TAINT", "OUTCOME")
        for each in cleaned:
            table.add_row(each.node, each.value, each.outcome)
        screen.print(table)

    document = {"nodes": [pick(each, "node", "value", "outcome") for each in cleaned]}
    invocation.show(lambda: Shown(document=document, draw=draw, rows="nodes"))
    if any(each.outcome == FAILED for each in cleaned):
        raise typer.Exit(CONNECT_EXIT)
