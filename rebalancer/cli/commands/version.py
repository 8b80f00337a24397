"""`rebalancer version`: the release, the commit it was built from, and Python."""

import platform

import typer

from rebalancer import __version__

SHOWN = 12
"""Digits of the commit."""


def version_line() -> str:
    """`rebalancer 0.1.0 (commit 0123456789ab, Python 3.11.7)`."""
    from rebalancer.bootstrap.process.build import commit

    built_from, dash, dirty = commit().partition("-")
    shown = f"{built_from[:SHOWN]}{dash}{dirty}"
    return f"rebalancer {__version__} (commit {shown or 'unknown'}, Python {platform.python_version()})"


def version() -> None:
    """Print the version, the commit and the version of Python."""
    typer.echo(version_line())
