"""A command run in this process: where what it says is tested, and not how it ends."""

from collections.abc import Sequence

from typer.testing import CliRunner

from rebalancer.cli.main import app
from rebalancer.model.errors import RebalancerError
from tests.programs.cli import Result


def run_here(arguments: Sequence[str], *, columns: int | None = None) -> Result:
    """As `rebalancer ARGUMENTS` in a pipe, or with COLUMNS set, but an error's text is all of stderr."""
    done = CliRunner(env={"COLUMNS": columns and str(columns)}).invoke(app, list(arguments))
    if done.exception is None or isinstance(done.exception, SystemExit):
        return Result(code=done.exit_code, out=done.stdout, err=done.stderr)
    if not isinstance(done.exception, RebalancerError):
        raise done.exception
    return Result(code=done.exception.exit_code, out=done.stdout, err=str(done.exception))
