"""`rebalancer advise`: how kube-scheduler should be configured for what is seen in the cluster."""

from enum import StrEnum
from typing import Annotated

import typer

from rebalancer.cli.commands.explain import observed_cluster
from rebalancer.cli.common import (
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    PolicyOption,
    print_json,
    read_policy,
    stdout_console,
)
from rebalancer.cli.output.advised import advice_document, advised_yaml
from rebalancer.cli.output.tables import plain_table
from rebalancer.planner.advice.advice import advise

app = typer.Typer(help="What would make evictions unnecessary.", no_args_is_help=True)


class Output(StrEnum):
    """`-o`"""

    YAML = "yaml"
    JSON = "json"
    TABLE = "table"


@app.callback()
def root() -> None:
    """What would make evictions unnecessary."""


@app.command("scheduler")
def scheduler(
    policy: PolicyOption,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.YAML,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Print a KubeSchedulerConfiguration for this cluster, each change with the numbers behind it; apply nothing."""
    loaded = read_policy(policy)
    with observed_cluster(loaded, database=database, kubeconfig=kubeconfig, context=context) as scene:
        found = advise(
            scene.snapshot,
            scene.placement.without_pending(),
            scene.config,
            strategies=[each.name for each in loaded.strategies],
            pools=scene.pools,
            now=scene.now,
        )
    if output is Output.JSON:
        print_json(advice_document(found))
    elif output is Output.TABLE:
        table = plain_table("Advice", "TOPIC", "SUBJECT", "SEEN", "DO")
        for each in found.advice:
            table.add_row(str(each.topic), each.subject, each.seen, each.do)
        stdout_console().print(table)
    else:
        typer.echo(advised_yaml(found), nl=False)
