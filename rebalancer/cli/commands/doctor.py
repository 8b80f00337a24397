"""`rebalancer doctor`: each dependency probed, with the exact cause and the fix."""

import typer
from rich.text import Text

from rebalancer.bootstrap.doctor import Check, diagnose
from rebalancer.cli.common import (
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    Output,
    OutputOption,
    PolicyOption,
    print_json,
    read_policy,
    settings_for,
    stdout_console,
)


def doctor(
    policy: PolicyOption,
    output: OutputOption = Output.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Probe database, API server, rights, Lease and usage; exit with the code of the first thing that is broken.

    A warning is nothing broken.
    """
    loaded = read_policy(policy)
    checks = list(diagnose(loaded, settings_for(database=database, kubeconfig=kubeconfig, context=context)))
    if output is Output.JSON:
        print_json(
            {
                "schemaVersion": "1",
                "checks": [
                    {
                        "name": each.name,
                        "ok": each.ok,
                        "warning": each.warning,
                        "detail": each.detail,
                        "fix": each.fix,
                    }
                    for each in checks
                ],
            }
        )
    else:
        console = stdout_console()
        for check in checks:
            console.print(Text.assemble(_mark(check), f" {check.name}: {check.detail}"))
            if check.fix:
                console.print(Text(f"     fix: {check.fix}"))
    broken = next((check for check in checks if not check.ok), None)
    if broken is not None:
        raise typer.Exit(broken.exit_code)


def _mark(check: Check) -> Text:
    if not check.ok:
        return Text("FAIL", style="bold red")
    return Text("warn", style="yellow") if check.warning else Text("ok  ", style="green")
