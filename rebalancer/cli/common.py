"""Shared by the commands: exit codes, the policy file, consoles. Imported at every start, so it imports little."""

import getpass
import os
import signal
import sys
from collections.abc import Collection
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rebalancer.policy import RebalancerPolicy

UNSAFE_EXIT = 3
CONNECT_EXIT = 5
NOT_EMPTY_EXIT = 2
COMPLETION = "_REBALANCER_COMPLETE"
"""Environment variable of a shell that asks for completions."""
STDIN = Path("-")
Since = Annotated[str, typer.Option("--since", help="Start: an age such as 7d, or a date or time such as 2026-11-01.")]
Until = Annotated[
    str | None, typer.Option("--until", help="End, not included; same formats as --since. [default: now]")
]


class Stopped(BaseException):
    """Termination by a signal. A BaseException, so that no `except Exception` swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Output(StrEnum):
    """Values of `--output`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


class PageOutput(StrEnum):
    """Values of `--output` of commands that can write an HTML page."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    HTML = "html"


PAGE_TABLES = (PageOutput.TABLE, PageOutput.WIDE)


def read_policy(path: Path) -> "RebalancerPolicy":
    """Raises ConfigError for an unreadable or invalid file."""
    return parse_policy(read_file(path), path=path)


def parse_policy(data: bytes, *, path: Path) -> "RebalancerPolicy":
    """The policy in `data`, which may be a ConfigMap or Helm values; the files it names are relative to `path`.

    Raises ConfigError.
    """
    from rebalancer.policy import load_policy
    from rebalancer.policy.source import policy_in

    def args_of(plugin: str) -> "type[BaseModel]":
        from rebalancer.strategies.external.plugins import args_of as of_installed

        return of_installed(plugin)

    source = shown_path(path)
    return beside(load_policy(policy_in(data, source=source), source=source, args_of=args_of), path=path)


def beside(policy: "RebalancerPolicy", *, path: Path) -> "RebalancerPolicy":
    """The policy with the files that it names relative to `path`."""
    if policy.scheduler.config_file is None:
        return policy
    file = str(path.parent / policy.scheduler.config_file)
    return policy.model_copy(update={"scheduler": policy.scheduler.model_copy(update={"config_file": file})})


def shown_path(path: Path) -> str:
    """The path in messages."""
    return "stdin" if path == STDIN else str(path)


@cache
def _stdin() -> bytes:
    """All of standard input, which can be read once."""
    return sys.stdin.buffer.read()


def read_file(path: Path) -> bytes:
    """The file, or standard input for `-`. Raises ConfigError for an unreadable file."""
    try:
        return _stdin() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: expected a readable file") from None


def write_file(path: Path, text: str, *, option: str = "") -> None:
    """Raises ConfigError, under the name of the option, for a path that cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        named = f"{option} {path}".strip()
        raise ConfigError(f"{named}: {error.strerror or error}: expected a file that can be written") from None


def parse_moment(option: str, text: str, now: float) -> float:
    """`7d` (an age) or `2026-11-01T08:00` (UTC without a zone) in seconds since the epoch. Raises ConfigError."""
    from datetime import UTC, datetime

    from rebalancer.policy.schema.types import parse_duration

    try:
        return max(now - parse_duration(text), 0.0)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
        return max((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp(), 0.0)
    except (ValueError, OverflowError):
        hint = "an age such as 7d, or a date or time such as 2026-11-01"
        raise ConfigError(f"{option}: expected {hint}, got {text!r}") from None


def say(message: str) -> None:
    """A message on stderr."""
    typer.echo(message, err=True)


def own_user() -> str:
    """The name of the user who runs the command, for records; in a container it may have a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def unknown(what: str, name: str, known: Collection[str], *, shown: int = 10) -> ConfigError:
    """The error of a name that is not there, with those that are: the most similar first."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3)
    names = [*near, *(each for each in sorted(known) if each not in near)]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    expected = f"expected one of {', '.join(names[:shown])}{more}" if names else "there are none"
    return ConfigError(f"{what} {name}: not found; {expected}")
