"""Paths of files: those that ship with the package, and those beside the history."""

from pathlib import Path

import rebalancer


def shipped(name: str) -> Path:
    """The folder `policies` or `migrations`, or the file `commit`, which a checkout doesn't have. They are inside the
    package when it is installed, and at the top of the repository in a checkout."""
    package = Path(rebalancer.__file__).resolve().parent
    inside = package / "_data" / name
    return inside if inside.exists() else package.parent / name


def newest_replay(history_dir: str, cluster: str) -> Path:
    """The page of the newest replay, which the dashboard links."""
    return Path(history_dir) / cluster / "replay.html"
