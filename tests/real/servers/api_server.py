"""A real Kubernetes API server with its etcd, for tests: from the folder that KUBEBUILDER_ASSETS names.

No controllers, no scheduler, no kubelets run beside it: objects stay as the test made them, and an evicted pod stays
terminating.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

START_SECONDS = 60.0
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """A running API server; everything is allowed to the token."""

    url: str
    token: str
    ca_file: Path
    etcd: str
    """URL of its etcd, whose keys hold the objects."""

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for it."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        }
        path.write_text(json.dumps(config))
        return path

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request; raises urllib.error.HTTPError for an answer that is no success."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return dict(json.load(answer))


@contextmanager
def api_server(*, flags: Sequence[str] = ()) -> Iterator[ApiServer]:
    """Start one on loopback, with more `flags` on its command line; skips where KUBEBUILDER_ASSETS names no folder with
    both programs."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
    if not (assets / "kube-apiserver").exists() or not (assets / "etcd").exists():
        raise SkipTest("needs KUBEBUILDER_ASSETS to name a folder with kube-apiserver and etcd")
    folder = Path(tempfile.mkdtemp(prefix="rebalancer-api-"))
    running: list[subprocess.Popen[bytes]] = []
    try:
        client, peer, port = _free_ports(3)
        running.append(_etcd(assets, folder, client, peer))
        server = _certificates(folder, port, client)
        running.append(_apiserver(assets, folder, client, port, flags))
        _wait_until_ready(server, running[-1], folder)
        yield server
    finally:
        # the API server first: without etcd it would wait for it
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_SECONDS)
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]


def _start(command: list[str | Path], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _etcd(assets: Path, folder: Path, client: int, peer: int) -> subprocess.Popen[bytes]:
    own = f"http://127.0.0.1:{peer}"
    return _start(
        [
            assets / "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls={own}",
            f"--initial-advertise-peer-urls={own}",
            f"--initial-cluster=default={own}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        folder / "etcd.log",
    )


def _certificates(folder: Path, port: int, etcd: int) -> ApiServer:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl("genrsa", "-out", "sa.key", "2048")
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "api.key", "-out", "api.crt",
        "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", names,
    )  # fmt: skip
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    return ApiServer(
        url=f"https://127.0.0.1:{port}", token=token, ca_file=folder / "api.crt", etcd=f"http://127.0.0.1:{etcd}"
    )


def _apiserver(assets: Path, folder: Path, etcd: int, port: int, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    return _start(
        [
            assets / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={folder / 'api.crt'}",
            f"--tls-private-key-file={folder / 'api.key'}",
            f"--cert-dir={folder / 'certs'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'sa.pub'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            # nothing here makes service accounts, or takes the not-ready taint off a node
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--endpoint-reconciler-type=none",
            *flags,
        ],
        folder / "api.log",
    )


def _wait_until_ready(server: ApiServer, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            server.call("GET", "/api/v1/namespaces/kube-system")
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"the API server doesn't start: {(folder / 'api.log').read_text()[-2000:]}")
