"""The steps of the Dockerfile in a root of their own, and the daemon that the result starts, without Docker."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import rebalancer
from rebalancer.lab import Lab
from tests.deploy.readers.manifests import ROOT
from tests.deploy.test_image import last_stage, steps

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PATIENCE_SECONDS = 120.0
BASE = (
    "/usr", "/bin", "/sbin", "/lib", "/lib64", "/dev", "/proc", "/etc/ssl", "/etc/hosts", "/etc/nsswitch.conf",
    "/etc/resolv.conf", sys.base_prefix, *filter(os.path.isabs, os.environ.get("PIP_FIND_LINKS", "").split()),
)  # fmt: skip
"""What stands for the base image: the machine's programs and this Python."""
WRITABLE = ("data", "tmp")

ENTER = """
set -eu
root=$1 user=$2 cwd=$3 writable=$4 base=$5; shift 5
mount --bind "$root" "$root"
for path in $base; do
  [ -e "$path" ] || continue
  if [ -h "$path" ]; then ln -sfn "$(readlink "$path")" "$root$path"; continue; fi
  mkdir -p "$(dirname "$root$path")"
  if [ -d "$path" ]; then mkdir -p "$root$path"; else touch "$root$path"; fi
  mount --rbind "$path" "$root$path"
done
if [ "$writable" != / ]; then
  for path in $writable; do mount --bind "$root/$path" "$root/$path"; done
  mount -o remount,ro,bind "$root"
fi
exec /usr/sbin/chroot --userspec="$user" "$root" sh -c 'cd "$0" && exec "$@"' "$cwd" "$@"
"""
"""Mounts of a process alone: they end with it. With names of folders as `writable` the rest is read-only."""


class Image:
    """A root folder that the Dockerfile's steps have made, and what they say about the process in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"}
        self.user, self.cwd = "0:0", "/"
        self.command: list[str] = []

    def build(self) -> None:
        """All steps in their order."""
        for name in WRITABLE:
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "tmp").chmod(0o1777)
        shutil.rmtree(self.root / "data")
        for step in steps():
            if step in last_stage() and self.cwd == "/src":
                shutil.rmtree(self.root / "src")  # another stage starts from the base
                self.cwd = "/"
            self._do(step.name, step.text)

    def _do(self, name: str, text: str) -> None:
        if name == "WORKDIR":
            self.cwd = text
            (self.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and "--from=build" in text:
            source, target = text.split()[1:]
            assert source == target  # there is one root for both stages
            assert (self.root / target.lstrip("/")).is_dir()
        elif name == "COPY":
            *sources, target = text.split()
            for source in sources:
                self._copy(source, self.root / self.cwd.lstrip("/") / target)
        elif name == "RUN":
            # pip is the base image's there, and this machine's here
            kept = [part for part in text.split(" && ") if "pip uninstall" not in part]
            self.run("sh", "-c", " && ".join(kept), env={**_of_pip(), "COMMIT": COMMIT})
        elif name == "ENV":
            for pair in text.split():
                key, _, value = pair.partition("=")
                self.env[key] = value.replace("$PATH", self.env["PATH"])
        elif name == "USER":
            self.user = text
        elif name in ("ENTRYPOINT", "CMD"):
            self.command += json.loads(text)

    def _copy(self, source: str, target: Path) -> None:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, target)

    def start(
        self, *command: str, env: Mapping[str, str] | None = None, read_only: bool = False
    ) -> subprocess.Popen[str]:
        """Start a command as the image would; it is the process itself that gets signals."""
        writable = " ".join(WRITABLE) if read_only else "/"
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", ENTER, "sh", self.root, self.user, self.cwd, writable, " ".join(BASE),
             *command],
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def run(self, *command: str, env: Mapping[str, str] | None = None, read_only: bool = False) -> str:
        """What the command says; fails when it fails."""
        running = self.start(*command, env=env, read_only=read_only)
        said, _ = running.communicate(timeout=840)
        assert running.returncode == 0, said
        return said


def _of_pip() -> dict[str, str]:
    """Settings by which pip reaches its index here. It compiles no modules: that is half of the build."""
    return {"PIP_COMPILE": "0"} | {
        key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_")) or "_proxy" in key.lower()
    }


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Built once; removed afterwards, for it is large."""
    may = ["unshare", "--mount", "sh", "-c", "mount --bind /usr /usr"]
    if os.geteuid() != 0 or subprocess.run(may, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    made = Image(tmp_path_factory.mktemp("image"))
    made.root.chmod(0o755)
    made.build()
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


def test_the_images_steps_install_the_program_with_its_license_and_commit(image: Image) -> None:
    assert f"rebalancer {rebalancer.__version__} (commit {COMMIT[:12]}, " in image.run(
        "rebalancer", "version", read_only=True
    )
    (packages,) = (image.root / "opt" / "rebalancer" / "lib").glob("python3.*/site-packages")
    wanted = {
        path.relative_to(ROOT)
        for path in (ROOT / "rebalancer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.relative_to(packages) for path in (packages / "rebalancer").rglob("*")} >= wanted
    assert (packages / f"kube_rebalancer-{rebalancer.__version__}.dist-info" / "licenses" / "LICENSE").is_file()
    there = {each.name.lower() for each in packages.iterdir()}
    assert there.isdisjoint({"pip", "setuptools", "wheel", "pytest", "mypy", "ruff", "hatchling"})
    assert not (image.root / "opt" / "rebalancer" / "bin" / "pip").exists()
    assert not (image.root / "src").exists()


def test_the_image_migrates_and_starts_the_daemon_as_its_user_on_a_read_only_root(image: Image) -> None:
    newest = max(path.name for path in (ROOT / "migrations" / "versions").glob("0*.py"))[:4]
    assert f"at revision {newest}" in image.run("rebalancer", "db", "upgrade", read_only=True)
    assert image.command == ["rebalancer", "run"]
    with socket.socket() as first, socket.socket() as second, Lab.start("demo") as lab:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        listen, health = (f"127.0.0.1:{each.getsockname()[1]}" for each in (first, second))
        first.close()
        second.close()
        etc = image.root / "etc" / "rebalancer"
        policy = (ROOT / "policies" / "demo.yaml").read_text()
        (etc / "policy.yaml").write_text(policy.replace("http://127.0.0.1:1/prometheus", lab.prometheus_url))
        lab.write_kubeconfig(etc / "kubeconfig").chmod(0o644)
        settings = {
            "REBALANCER_LISTEN": listen,
            "REBALANCER_HEALTH_LISTEN": health,
            "REBALANCER_INSECURE_NO_AUTH": "true",
        }
        running = image.start(
            *image.command, "--dry-run", "--kubeconfig", "/etc/rebalancer/kubeconfig", env=settings, read_only=True
        )
        try:
            _wait_until_ready(f"http://{health}/readyz", running)
            status = Path(f"/proc/{running.pid}/status").read_text()
            assert "\nUid:\t65532\t65532\t" in status
            assert (image.root / "data" / "rebalancer.db").stat().st_uid == 65532
            running.send_signal(signal.SIGTERM)
            said, _ = running.communicate(timeout=60)
        finally:
            running.kill()
            running.wait()
    assert running.returncode == 0, said
    assert "Traceback" not in said


def _wait_until_ready(url: str, running: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                assert answer.status == 200
                return
        except (urllib.error.URLError, ConnectionError):
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < until, "the daemon does not become ready"
            time.sleep(0.2)
