"""Which build of the program runs."""

import subprocess

from rebalancer.bootstrap.process.paths import shipped

GIT_SECONDS = 5.0


def commit() -> str:
    """The commit that the program was built from, of the wheel or of the checkout; empty where it isn't known."""
    path = shipped("commit")
    if path.is_file():
        return path.read_text().strip()
    top = path.parent
    if not (top / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(top), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
