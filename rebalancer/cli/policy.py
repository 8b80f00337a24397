"""`rebalancer policy`: check a policy file, print its JSON Schema."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli.common import read_policy, say
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.json_schema import policy_schema

app = typer.Typer(help="Check policy files.", no_args_is_help=True)


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
