"""What commands share: options, the policy file, JSON and errors. Every start imports this, so it imports little."""

import json
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.bootstrap.settings import Settings
    from rebalancer.policy import RebalancerPolicy

UNSAFE_EXIT = 3
CONNECT_EXIT = 5
NOT_EMPTY_EXIT = 2
PIPE_WIDTH = 240
DEMO_DATABASE = "rebalancer-demo.db"


class Stopped(BaseException):
    """A signal asked us to stop. No `except Exception` on the way may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Output(StrEnum):
    """`-o`"""

    TABLE = "table"
    JSON = "json"


PolicyOption = Annotated[
    Path, typer.Option("--policy", "-f", envvar="REBALANCER_POLICY", help="The policy file.", show_default=False)
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig file; default as kubectl.")
]
ContextOption = Annotated[str | None, typer.Option("--context", help="The kubeconfig context to use.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="Database URL: sqlite:///FILE or postgresql://... [env: REBALANCER_DATABASE] "
        "[default: sqlite:///rebalancer.db]",
    ),
]
NamespaceOption = Annotated[str | None, typer.Option("--namespace", "-n", help="Show pods of this namespace only.")]
AllNodesOption = Annotated[
    bool,
    typer.Option("--all-nodes", "-A", help="Show each node and finding, not only what changes and the first of many."),
]


def settings_for(
    *, database: str | None = None, kubeconfig: str | None = None, context: str | None = None
) -> "Settings":
    """Flags over environment variables. Raises ConfigError for one that can't be understood."""
    from pydantic import ValidationError

    from rebalancer.bootstrap.settings import Settings

    given: dict[str, Any] = {"database": database, "kubeconfig": kubeconfig, "context": context}
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        # only what takes few values is checked, and no secret does
        wrong = error.errors(include_url=False)[0]
        what = str(wrong["msg"]).replace("Input should be", "expected")
        raise ConfigError(f"REBALANCER_{str(wrong['loc'][0]).upper()}: {what}, got {wrong['input']!r}") from None


def read_policy(path: Path) -> "RebalancerPolicy":
    """Raises ConfigError when the file can't be read or is wrong."""
    return parse_policy(read_file(path), path=path)


def parse_policy(data: bytes, *, path: Path) -> "RebalancerPolicy":
    """What a policy file says; files that it names are relative to it. Raises ConfigError."""
    from rebalancer.policy import load_policy
    from rebalancer.strategies.plugins import args_of

    policy = load_policy(data, source=str(path), args_of=args_of)
    if policy.scheduler.config_file is None:
        return policy
    beside = str(path.parent / policy.scheduler.config_file)
    return policy.model_copy(update={"scheduler": policy.scheduler.model_copy(update={"config_file": beside})})


def read_file(path: Path) -> bytes:
    """Raises ConfigError when the file can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: expected a readable file") from None


class _PipeConsole(Console):
    """Leaves a broken pipe (`plan | head -1`) to `main`, which ends quietly."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout_console(*, markup: bool = True) -> Console:
    """Tables as wide as the terminal; in a pipe wide enough not to be folded."""
    return _PipeConsole(markup=markup, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def say(message: str) -> None:
    """A line for people, on stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(message, markup=False)


def print_json(document: dict[str, Any]) -> None:
    """The document, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
