"""Where helm, kubectl, promtool and amtool are found; `python -m tests.deploy.programs` builds helm.

helm is no package of Debian's. Building it takes minutes, so no test does it: without helm the chart's tests are
skipped, and what is checked of the manifests is what kubectl makes of the overlays, which the chart has to equal.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

BUILT = Path(__file__).resolve().parent.parent.parent / ".cache" / "tools"
HELM_MODULE = "helm.sh/helm/v3/cmd/helm@v3.22.0"
NEEDS_HELM = "needs helm (on PATH, in KUBEBUILDER_ASSETS, or built with go by `python -m tests.deploy.programs`)"
NEEDS_KUBECTL = "needs kubectl 1.25 or newer (on PATH or in KUBEBUILDER_ASSETS)"
OLDEST_KUBECTL = (1, 25)


def helm() -> str:
    """Its path; skips the test where there is none."""
    return _there(_found("helm", BUILT), NEEDS_HELM)


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


def main() -> None:
    """Build helm where it isn't found."""
    found = _found("helm", BUILT)
    if found is not None:
        sys.exit(f"helm is there: {found}")
    if shutil.which("go") is None:
        sys.exit("needs go to build helm")
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "install", HELM_MODULE], env={**os.environ, "GOBIN": str(BUILT)}, check=True)


if __name__ == "__main__":
    main()
