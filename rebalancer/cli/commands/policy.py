"""`rebalancer policy`: validate policy files, print their JSON Schema, import a DeschedulerPolicy."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli.common import read_file, read_policy, say
from rebalancer.cli.invocation import TABLES, Invocation, options

app = typer.Typer(help="Validate policy files and import DeschedulerPolicy files.", no_args_is_help=True)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Policy files.", show_default=False)],
) -> None:
    """Validate policy files. Each mistake is one line with file, line, field and the expected value."""
    for path in files:
        policy = read_policy(path)
        pools, strategies = len(policy.pools), len(policy.strategies)
        say(f"{path}: ok: cluster {policy.cluster}, {pools} pool(s), {strategies} strategy(ies)")


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from rebalancer.policy.schema.policy import policy_schema

    sys.stdout.write(json.dumps(policy_schema(), indent=2) + "\n")


@app.command("import")
@options(*TABLES)
def import_(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(help="A DeschedulerPolicy, descheduler/v1alpha2.", show_default=False)],
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster.", show_default=False)] = None,
    prometheus_url: Annotated[
        str | None,
        typer.Option(help="URL of Prometheus, instead of the one in the DeschedulerPolicy.", show_default=False),
    ] = None,
) -> None:
    """Convert a DeschedulerPolicy of kubernetes-sigs/descheduler.

    Prints the policy on stdout and its differences, with reasons, on stderr. With `-o json` both are on stdout.
    """
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.tables import UNKNOWN, Screen, plain_table
    from rebalancer.policy.descheduler.importer import import_policy

    made = import_policy(read_file(file), source=str(file), cluster=cluster, prometheus_url=prometheus_url)
    differences = [
        {
            "field": each.field or None,
            "line": each.line if each.field else None,
            "kind": each.kind,
            "policyField": each.ours or None,
            "why": each.why,
        }
        for each in made.differences
    ]

    def draw(_: Screen) -> None:
        sys.stdout.write(made.text)
        sys.stdout.flush()
        table = plain_table("Differences", "LINE", "FIELD", "", "POLICY FIELD", "REASON")
        for each in made.differences:
            line = str(each.line) if each.field else ""
            table.add_row(line, each.field or UNKNOWN, each.kind, each.ours or UNKNOWN, each.why)
        Screen(stderr=True, markup=False).print(table)

    document = {"policy": made.text, "differences": differences}
    invocation.show(lambda: Shown(document=document, draw=draw, rows="differences"))
