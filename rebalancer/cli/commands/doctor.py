"""`rebalancer doctor`: a check of each dependency, with the cause of a failure and its fix."""

from typing import TYPE_CHECKING

import typer

from rebalancer.cli.invocation import CLUSTER, TABLES, Invocation, options

if TYPE_CHECKING:
    from rich.text import Text

    from rebalancer.bootstrap.commands.doctor import Check
    from rebalancer.cli.output.tables import Screen


@options(*CLUSTER, *TABLES)
def doctor(invocation: Invocation) -> None:
    """Check database, API server, permissions, Lease and metrics.

    The exit code is that of the first failed check. A warning is not a failure.
    """
    policy, settings = invocation.policy, invocation.settings
    from rebalancer.bootstrap.commands.doctor import diagnose
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick

    checks = list(diagnose(policy, settings))
    document = {"checks": [pick(each, "name", "ok", "warning", "detail", "fix") for each in checks]}
    invocation.show(
        lambda: Shown(document=document, draw=lambda screen: _draw(screen, checks), rows="checks", version="1")
    )
    failed = next((check for check in checks if not check.ok), None)
    if failed is not None:
        raise typer.Exit(failed.exit_code)


def _draw(screen: "Screen", checks: "list[Check]") -> None:
    from rich.text import Text

    from rebalancer.cli.output.tables import print_paragraph

    for check in checks:
        print_paragraph(screen, Text.assemble(_mark(check), f" {check.name}:"), check.detail)
        if check.fix:
            print_paragraph(screen, Text("    fix:"), check.fix)


def _mark(check: "Check") -> "Text":
    from rich.text import Text

    if not check.ok:
        return Text("FAIL", style="bold red")
    return Text("warn", style="yellow") if check.warning else Text("ok  ", style="green")
