"""Where helm, actionlint, kubectl, promtool and amtool are found.

The first two are not packages of Debian: tests/install_real_parts.sh builds them into .cache/tools.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

BUILT = Path(__file__).resolve().parent.parent.parent / ".cache" / "tools"
NEEDS_HELM = "needs helm on PATH, or go on PATH so that tests/install_real_parts.sh can build it"
NEEDS_ACTIONLINT = "needs actionlint on PATH, or go on PATH so that tests/install_real_parts.sh can build it"
NEEDS_KUBECTL = "needs kubectl 1.25 or newer on PATH"
OLDEST_KUBECTL = (1, 25)


def helm() -> str:
    """Its path; skips the test where there is none."""
    return _there(_found("helm", BUILT), NEEDS_HELM)


def actionlint() -> str:
    """Its path; skips the test where there is none."""
    return _there(_found("actionlint", BUILT), NEEDS_ACTIONLINT)


def has_helm() -> bool:
    """Whether there is one."""
    return _found("helm", BUILT) is not None


def kubectl() -> str:
    """The path of one that is new enough for our overlays; skips the test where there is none."""
    return _there(_kubectl(), NEEDS_KUBECTL)


def promtool() -> str:
    """Its path; skips the test where there is none."""
    return _there(shutil.which("promtool"), "needs promtool: apt-get install prometheus")


def amtool() -> str:
    """Its path; skips the test where there is none."""
    return _there(shutil.which("amtool"), "needs amtool: apt-get install prometheus-alertmanager")


def run(*command: str | Path, stdin: str = "", env: dict[str, str] | None = None) -> str:
    """What the command says on stdout; fails with what it says on stderr when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@cache
def _kubectl() -> str | None:
    for path in filter(None, (shutil.which("kubectl"), _found("kubectl"))):
        said = subprocess.run([path, "version", "--client"], capture_output=True, text=True, timeout=60, check=False)
        version = re.search(r"v(\d+)\.(\d+)\.", said.stdout)
        if version is not None and (int(version[1]), int(version[2])) >= OLDEST_KUBECTL:
            return path
    return None


def _found(name: str, *folders: Path) -> str | None:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    search = os.pathsep.join(map(str, (assets, *folders)))
    return shutil.which(name) or shutil.which(name, path=search)


def _there(path: str | None, reason: str) -> str:
    if path is None:
        pytest.skip(reason)
    return path
