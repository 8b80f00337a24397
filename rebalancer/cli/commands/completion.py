"""`rebalancer completion`: scripts for shells."""

from enum import StrEnum
from typing import Annotated

import typer

from rebalancer.cli.common import COMPLETION


class Shell(StrEnum):
    """Shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Name of the shell.", show_default=False)]) -> None:
    """Print the completion script of a shell. For example: source <(rebalancer completion bash)"""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="rebalancer", complete_var=COMPLETION, shell=shell.value))
