"""The program as a user runs it: another process, its stdout, its stderr, its exit code."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.programs.warm import WarmProcess, start

TIMEOUT_SECONDS = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout as JSON: fails when anything else stands there."""
        return dict(json.loads(self.out))

    @property
    def error(self) -> str:
        """The one line of stderr that explains; fails on a traceback or more than one line."""
        lines = self.err.strip().splitlines()
        assert "Traceback" not in self.err, self.err
        assert len(lines) == 1, self.err
        return lines[0]


Running = subprocess.Popen[bytes] | WarmProcess


def begin(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    cold: bool = False,
    program: str = "",
) -> Running:
    """Start `rebalancer ARGUMENTS`, without any setting of the machine's leaking in.

    Cold is a new interpreter, which takes seconds; without it see `warm`. A `program` in Python is run instead of the
    command's own, in a new one.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("REBALANCER_", "KUBE", "POD_")) and key != "COLUMNS"
    }
    settings = {**kept, "HOME": str(cwd or "/nonexistent"), **(env or {})}
    words = [str(each) for each in arguments]
    starts_otherwise = any(name.startswith("PYTHON") for name in env or {})  # an interpreter reads these when it starts
    if not (cold or program or starts_otherwise):
        return start(words, env=settings, cwd=cwd, stdout=stdout, stderr=stderr)
    command = [sys.executable, *(("-c", program) if program else ("-m", "rebalancer")), *words]
    return subprocess.Popen(command, env=settings, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def rebalancer(
    *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, cold: bool = False
) -> Result:
    """Run it to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        running = begin(*arguments, env=env, cwd=cwd, stdout=out.fileno(), stderr=err.fileno(), cold=cold)
        try:
            code = running.wait(TIMEOUT_SECONDS)
        finally:
            running.kill()
        out.seek(0)
        err.seek(0)
        return Result(code=code, out=out.read().decode(), err=err.read().decode())


def policy_for(prometheus_url: str, **sections: Any) -> dict[str, Any]:
    """A policy for the lab's own recording rules; `sections` replace top-level ones."""
    return {
        "apiVersion": "rebalancer.dev/v1alpha1",
        "kind": "RebalancerPolicy",
        "cluster": "test",
        "pools": [{"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 65, "low": 50}}],
        "usage": {
            "prometheus": {
                "url": prometheus_url,
                "nodeCPU": {
                    "query": "instance:node_cpu_utilisation:rate5m",
                    "freshness": 'timestamp(node_cpu_seconds_total{mode="idle"})',
                },
                "podCPU": {"query": "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"},
            },
            "stabilizationWindow": {"samples": 2, "duration": "30s"},
        },
        "strategies": [{"name": "LowNodeUtilization"}],
        "guards": {"minAge": "1m"},
        "forecast": {"mode": "Off"},
        **sections,
    }


def write_policy(folder: Path, policy: Mapping[str, Any], name: str = "policy.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(dict(policy), sort_keys=False))
    return path
