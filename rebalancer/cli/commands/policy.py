"""`rebalancer policy`: check a policy file, print its JSON Schema, take over a DeschedulerPolicy."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rebalancer.cli.common import PIPE_WIDTH, Output, OutputOption, print_json, read_file, read_policy, say
from rebalancer.cli.output.tables import plain_table
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.descheduler.importer import Imported, import_policy
from rebalancer.policy.schema.policy import policy_schema

app = typer.Typer(help="Check policy files, make one.", no_args_is_help=True)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Policy files.", show_default=False)],
) -> None:
    """Check policy files; every mistake is a line with file, line, field and what was expected."""
    for path in files:
        loaded: RebalancerPolicy = read_policy(path)
        say(
            f"{path}: ok: cluster {loaded.cluster}, {len(loaded.pools)} pool(s), {len(loaded.strategies)} strategy(ies)"
        )


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    sys.stdout.write(json.dumps(policy_schema(), indent=2) + "\n")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A DeschedulerPolicy, descheduler/v1alpha2.", show_default=False)],
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster.", show_default=False)] = None,
    prometheus_url: Annotated[
        str | None, typer.Option(help="The Prometheus to read, instead of the one it names.", show_default=False)
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take over a policy of kubernetes-sigs/descheduler.

    Prints a policy of ours on stdout, and on stderr what differs and why. With `-o json` both are on stdout.
    """
    made = import_policy(read_file(file), source=str(file), cluster=cluster, prometheus_url=prometheus_url)
    if output is Output.JSON:
        print_json(_document(made))
        return
    sys.stdout.write(made.text)
    sys.stdout.flush()
    table = plain_table("What differs", "LINE", "FIELD", "", "OURS", "WHY")
    for each in made.differences:
        table.add_row(str(each.line) if each.field else "", each.field or "-", each.kind, each.ours or "-", each.why)
    Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_WIDTH, markup=False).print(table)


def _document(made: Imported) -> dict[str, Any]:
    return {
        "schemaVersion": "1",
        "policy": made.text,
        "differences": [
            {
                "field": each.field or None,
                "line": each.line if each.field else None,
                "kind": each.kind,
                "ours": each.ours or None,
                "why": each.why,
            }
            for each in made.differences
        ],
    }
