"""`rebalancer doctor`: a check of each dependency, with the cause of a failure and its fix."""

from typing import TYPE_CHECKING

import typer

from rebalancer.cli.common import Output, stdout_console
from rebalancer.cli.invocation import CLUSTER, Invocation, OutputOption, options

if TYPE_CHECKING:
    from rich.text import Text

    from rebalancer.bootstrap.doctor import Check


@options(*CLUSTER)
def doctor(invocation: Invocation, output: OutputOption = Output.TABLE) -> None:
    """Check the database, the API server, permissions, the Lease and usage data.

    The exit code is that of the first failed check. A warning is not a failure.
    """
    policy, settings = invocation.policy, invocation.settings
    from rich.text import Text

    from rebalancer.bootstrap.doctor import diagnose
    from rebalancer.cli.output.json import pick, print_json

    checks = list(diagnose(policy, settings))
    if output is Output.JSON:
        shown = [pick(each, "name", "ok", "warning", "detail", "fix") for each in checks]
        print_json({"checks": shown}, version="1")
    else:
        console = stdout_console()
        for check in checks:
            console.print(Text.assemble(_mark(check), f" {check.name}: {check.detail}"))
            if check.fix:
                console.print(Text(f"     fix: {check.fix}"))
    failed = next((check for check in checks if not check.ok), None)
    if failed is not None:
        raise typer.Exit(failed.exit_code)


def _mark(check: "Check") -> "Text":
    from rich.text import Text

    if not check.ok:
        return Text("FAIL", style="bold red")
    return Text("warn", style="yellow") if check.warning else Text("ok  ", style="green")
