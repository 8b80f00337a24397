"""A cold plan beside the community's descheduler: `python -m bench peer [--pods N] [--nodes N] [--rounds N]`.

Both read the same cluster from the same real API server, in turns: `rebalancer plan` with usage from a rendered
Prometheus, and `descheduler --dry-run` with LowNodeUtilization by requests. KUBEBUILDER_ASSETS names the folder with
kube-apiserver, etcd and descheduler; without them nothing is measured. The objects are written into etcd. CPU seconds,
wall time and the highest resident memory are those of the measured process; ratios are of medians. The plan runs with
its bytecode cached, as an installed package has it.
"""

import argparse
import base64
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.cluster.pages import synthetic_cluster
from bench.daemon.bench import rendered_items
from bench.lists.bench import SEED
from bench.plan.find_and_plan import bench_policy
from tests.real.servers.api_server import ApiServer, api_server

PODS, NODES, ROUNDS = 50_000, 5_000, 3
CPU_AIM, WALL_AIM, MEMORY_AIM = 0.7, 0.8, 0.3
TXN_OBJECTS, SAMPLE_SECONDS = 60, 0.05
PROGRAMS = ("kube-apiserver", "etcd", "descheduler")
STORED: dict[str, tuple[str, str, str]] = {
    "nodes": ("minions", "Node", "v1"),
    "pods": ("pods", "Pod", "v1"),
    "namespaces": ("namespaces", "Namespace", "v1"),
    "priorityclasses": ("priorityclasses", "PriorityClass", "scheduling.k8s.io/v1"),
    "replicasets": ("replicasets", "ReplicaSet", "apps/v1"),
    "deployments": ("deployments", "Deployment", "apps/v1"),
    "statefulsets": ("statefulsets", "StatefulSet", "apps/v1"),
    "daemonsets": ("daemonsets", "DaemonSet", "apps/v1"),
    "jobs": ("jobs", "Job", "batch/v1"),
    "persistentvolumes": ("persistentvolumes", "PersistentVolume", "v1"),
    "poddisruptionbudgets": ("poddisruptionbudgets", "PodDisruptionBudget", "policy/v1"),
}
"""Plural -> its folder in etcd, kind and apiVersion."""
DESCHEDULER_POLICY: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "bench",
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": {"nodeFit": True}},
                {
                    "name": "LowNodeUtilization",
                    "args": {
                        "thresholds": {"cpu": 20, "memory": 20, "pods": 20},
                        "targetThresholds": {"cpu": 50, "memory": 50, "pods": 50},
                    },
                },
            ],
            "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
        }
    ],
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one process cost."""

    cpu_seconds: float
    wall_seconds: float
    peak_mib: float


def measured(command: Sequence[str], *, log: Path, env: dict[str, str] | None = None) -> Cost:
    """Run it to its end; exits with its output when it fails."""
    began, peak = time.perf_counter(), 0.0
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        # the high-water mark in wait4's answer remembers this process, which started it
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, _peak_mib(process.pid))
            time.sleep(SAMPLE_SECONDS)
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    return Cost(cpu_seconds=usage.ru_utime + usage.ru_stime, wall_seconds=time.perf_counter() - began, peak_mib=peak)


def _peak_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    return 0.0


def store(directory: Path, server: ApiServer) -> None:
    """Write every rendered object into etcd, as the API server reads it."""
    for plural, (folder, kind, version) in STORED.items():
        puts: dict[str, str] = {}
        for item in rendered_items(directory, plural):
            meta = item["metadata"]
            space = f"{meta['namespace']}/" if meta.get("namespace") else ""
            whole = {**item, "kind": kind, "apiVersion": version}
            if kind == "ReplicaSet":  # rendered as metadata only
                labels = meta["labels"]
                containers = [{"name": "main", "image": "app:1"}]
                template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
                whole["spec"] = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
            # times of managed fields are left open where they are of workloads
            text = json.dumps(whole).replace("@CREATED@", "2026-10-02T08:00:00Z")
            puts[_base64(f"/registry/{folder}/{space}{meta['name']}")] = _base64(text)
            if len(puts) == TXN_OBJECTS:
                _write(server, puts)
                puts = {}
        if puts:
            _write(server, puts)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _write(server: ApiServer, puts: dict[str, str]) -> None:
    body = json.dumps({"success": [{"requestPut": {"key": key, "value": value}} for key, value in puts.items()]})
    with urllib.request.urlopen(urllib.request.Request(f"{server.etcd}/v3/kv/txn", body.encode()), timeout=60):
        pass


@contextmanager
def cluster(*, pods: int, nodes: int) -> Iterator[tuple[Path, Path]]:
    """A real API server with the cluster, and its usage: (kubeconfig, folder with `policy.yaml`)."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peer-bench-")))
        synthetic_cluster(folder, pods=pods, nodes=nodes, seed=SEED)
        server = stack.enter_context(api_server())
        store(folder, server)
        command = [sys.executable, "-m", "bench.daemon.bench", "--serve", str(folder)]
        usage = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(usage.kill)
        assert usage.stdout is not None
        policy = bench_policy().model_dump(mode="json", by_alias=True, exclude_unset=True)
        policy["usage"] = {
            "prometheus": {
                "url": f"http://127.0.0.1:{int(usage.stdout.readline())}/prometheus",
                "nodeCPU": {"query": "node:cpu", "freshness": "node:time", "label": "node"},
                "podCPU": {"query": "pod:cpu"},
            },
            "stabilizationWindow": {"samples": 1, "duration": "0s"},
        }
        (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
        yield server.kubeconfig(folder / "kubeconfig"), folder


def _say(figure: str, value: float, unit: str, aim: float | None = None) -> bool:
    holds = aim is None or value <= aim
    line = {"bench": "peer", "figure": figure, "value": round(value, 3), "unit": unit}
    print(json.dumps(line | ({} if aim is None else {"aim": f"<= {aim:g}", "holds": holds})), flush=True)
    return holds


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
    if missing := [name for name in PROGRAMS if not (assets / name).exists()]:
        print(f"peer: needs KUBEBUILDER_ASSETS to name a folder with {', '.join(missing)}", file=sys.stderr)
        return 0
    ours, theirs = list[Cost](), list[Cost]()
    with cluster(pods=args.pods, nodes=args.nodes) as (kubeconfig, folder):
        (folder / "descheduler.yaml").write_text(yaml.safe_dump(DESCHEDULER_POLICY))
        plan = [sys.executable, "-m", "rebalancer", "plan", "-f", str(folder / "policy.yaml"), "-o", "json"]
        plan += ["--kubeconfig", str(kubeconfig)]
        peer = [str(assets / "descheduler"), "--dry-run", f"--kubeconfig={kubeconfig}", "--secure-port=0"]
        peer += [f"--policy-config-file={folder / 'descheduler.yaml'}", "--descheduling-interval=0"]
        env = {
            "REBALANCER_DATABASE": f"sqlite:///{folder}/plan.db",
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }
        for _ in range(args.rounds + 1):
            theirs.append(measured(peer, log=folder / "peer.log"))
            ours.append(measured(plan, log=folder / "plan.log", env=env))
    # the first round fills the server's caches and the bytecode's
    held = True
    for name, unit, aim in (
        ("cpu_seconds", "CPU s", CPU_AIM),
        ("wall_seconds", "s", WALL_AIM),
        ("peak_mib", "MiB", MEMORY_AIM),
    ):
        mine, other = (statistics.median(getattr(each, name) for each in costs[1:]) for costs in (ours, theirs))
        _say(f"cold plan, {name}", mine, unit)
        _say(f"descheduler, {name}", other, unit)
        held = _say(f"ratio of {name}", mine / other, "x", aim) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
