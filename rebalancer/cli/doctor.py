"""`rebalancer doctor`: each dependency probed, with the exact cause and the fix."""

import typer
from rich.text import Text

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
from rebalancer.daemon.doctor import diagnose


def doctor(
    policy: PolicyOption,
    output: OutputOption = Output.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Probe database, API server, rights and Prometheus; exit with the code of the first thing that is broken."""
    loaded = read_policy(policy)
    checks = list(diagnose(loaded, settings_for(database=database, kubeconfig=kubeconfig, context=context)))
    if output is Output.JSON:
        print_json(
            {
                "schemaVersion": "1",
                "checks": [
                    {"name": each.name, "ok": each.ok, "detail": each.detail, "fix": each.fix} for each in checks
                ],
            }
        )
    else:
        console = stdout_console()
        for check in checks:
            mark = Text("ok  ", style="green") if check.ok else Text("FAIL", style="bold red")
            console.print(Text.assemble(mark, f" {check.name}: {check.detail}"))
            if check.fix:
                console.print(Text(f"     fix: {check.fix}"))
    broken = next((check for check in checks if not check.ok), None)
    if broken is not None:
        raise typer.Exit(broken.exit_code)
