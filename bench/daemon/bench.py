"""From an alert to the eviction call, and what a cycle and the daemon cost: `python -m bench.daemon.bench`.

The daemon is a process of the real command. Another process is its API server and its Prometheus: rendered lists,
watches in which nothing happens, pods that can be read and evicted (they stay), answers to the three usage queries with
one series for each node and pod, and empty vectors for every other query. An alert for a node at 66 % of its CPU is
posted to the webhook; the clock stops when the eviction of one of that node's pods arrives at the API server, which
includes usage read anew, a plan, our taint, the ledger (SQLite) and the second look at the pod. First 1,000 nodes and
30,000 pods, then 5,000 and 150,000, each with a warm cache. Prints one JSON object a line. Resident memory is the whole
process's, some seconds after the last cycle; the greatest until then is a figure of its own.
"""

import argparse
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import yaml

from bench.cluster.pages import synthetic_cluster
from bench.lists.bench import SEED
from bench.plan.find_and_plan import bench_policy

ALERTS_AIM_SECONDS, CYCLE_AIM_SECONDS, RESIDENT_AIM_MIB = 1.0, 0.5, 400.0
NODE_CORES, WARM_SHARE, WARM_EVERY = 32, 0.66, 20
HIGH, TARGET = 65, 64
"""One pod is enough to cool a node."""
BOOKMARK_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
SETTLE_SECONDS = 8.0
"""After the last cycle: what runs beside it ends, and free memory is returned."""
STAMP = b"1111111111.111"
"""Where the time of the answer belongs in a rendered one."""

# ---- the server


class Backend:
    """What the server knows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.guard = threading.Lock()
        self.lease: dict[str, Any] | None = None
        self.version = 1
        self.nodes = {node["metadata"]["name"]: node for node in rendered_items(directory, "nodes")}
        self.pods = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): (
                pod["metadata"]["uid"],
                pod["spec"].get("nodeName") or "",
            )
            for pod in rendered_items(directory, "pods")
        }
        self.usage = self._usage()

    def _usage(self) -> dict[str, bytes]:
        """Rendered answers by query."""
        level = self.levels()
        on: dict[str, list[tuple[str, str]]] = {}
        for key, (_, node) in self.pods.items():
            on.setdefault(node, []).append(key)
        pods = []
        for node, keys in on.items():
            cores = level.get(node, 0.0) * NODE_CORES * 0.95 / len(keys)
            pods += [({"namespace": space, "pod": name, "node": node}, cores) for space, name in keys]
        by_node = [({"node": name}, share) for name, share in level.items()]
        return {
            "node:cpu": _vector(by_node),
            "node:time": _vector([({"node": name}, STAMP.decode()) for name in self.nodes]),
            "pod:cpu": _vector(pods),
        }

    def levels(self) -> dict[str, float]:
        """Share of its CPU that each node uses."""
        random = np.random.default_rng(SEED)
        level = {name: max(0.05, random.normal(0.4, 0.05)) for name in self.nodes}
        return level | dict.fromkeys(list(self.nodes)[::WARM_EVERY], WARM_SHARE)

    def answer(self, query: str) -> bytes:
        """To a query that it doesn't know, an empty vector."""
        return self.usage.get(query, EMPTY).replace(STAMP, f"{time.time():.3f}".encode())


def rendered_items(directory: Path, plural: str) -> Iterator[dict[str, Any]]:
    """The objects of a rendered list."""
    number = 0
    while (path := directory / f"{plural}-{number}.json").exists():
        yield from json.loads(path.read_bytes())["items"]
        number += 1


def _vector(series: list[tuple[dict[str, str], Any]]) -> bytes:
    rows = [{"metric": labels, "value": ["@", str(value)]} for labels, value in series]
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}, separators=(",", ":"))
    return text.encode().replace(b'"@"', STAMP)


EMPTY = _vector([])
NOT_FOUND = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}


class Handler(BaseHTTPRequestHandler):
    """Answers for both."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    backend: Backend

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        target, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        parts = target.path.strip("/").split("/")
        if parts[0] == "prometheus":
            return self._say(self.backend.answer(query["query"][0]))
        if "watch" in query:
            return self._hold()
        if "leases" in parts:
            with self.backend.guard:
                return self._say(self.backend.lease or {}, 200 if self.backend.lease else 404)
        if parts[-2:-1] == ["pods"]:
            if (parts[-3], parts[-1]) not in self.backend.pods:
                return self._say(NOT_FOUND, 404)
            uid, node = self.backend.pods[parts[-3], parts[-1]]
            meta = {"namespace": parts[-3], "name": parts[-1], "uid": uid}
            return self._say({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
        if parts[-2:-1] == ["nodes"]:
            if parts[-1] not in self.backend.nodes:
                return self._say(NOT_FOUND, 404)
            return self._say(self.backend.nodes[parts[-1]] | {"apiVersion": "v1", "kind": "Node"})
        path = self.backend.directory / f"{parts[-1]}-{int(query.get('continue', ['0'])[0])}.json"
        # a resource that the rendered cluster doesn't have
        return self._say(path.read_bytes()) if path.exists() else self._say(NOT_FOUND, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[0] == "prometheus":
            return self._say(self.backend.answer(parse_qs(body.decode())["query"][0]))
        if parts[-1] == "eviction":
            if (parts[-4], parts[-2]) not in self.backend.pods:
                return self._say(NOT_FOUND, 404)
            _, node = self.backend.pods[parts[-4], parts[-2]]
            print(json.dumps({"node": node, "at": time.monotonic()}), flush=True)
            return self._say({"kind": "Status", "status": "Success"}, 201)
        if parts[-1] == "selfsubjectaccessreviews":
            return self._say({"status": {"allowed": True}}, 201)
        return self.do_PUT(body) if parts[-1] == "leases" else self._say(json.loads(body), 201)

    def do_PUT(self, body: bytes = b"") -> None:
        sent = json.loads(body or self.rfile.read(int(self.headers["Content-Length"])))
        with self.backend.guard:
            self.backend.version += 1
            sent["metadata"]["resourceVersion"] = str(self.backend.version)
            self.backend.lease = sent
        return self._say(sent, 201 if body else 200)

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        node = self.backend.nodes.get(self.path.partition("?")[0].rsplit("/", 1)[-1])
        return self._say(NOT_FOUND, 404) if node is None else self._say(node)

    def _say(self, content: Any, status: int = 200) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _hold(self) -> None:
        self.start_watch()
        with contextlib.suppress(OSError):
            while True:
                self.send_bookmark()
                time.sleep(BOOKMARK_SECONDS)
        self.close_connection = True

    def start_watch(self) -> None:
        """The head of an answer without end."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_bookmark(self) -> None:
        """Nothing has changed."""
        self.send_chunk(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"987654321"}}}\n')

    def send_chunk(self, line: bytes) -> None:
        """One line of a watch."""
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def serve(directory: Path) -> None:
    """Print the port, then a line for each eviction, until killed."""
    listen(Handler, Backend(directory))


class _Server(ThreadingHTTPServer):
    """Clients that are gone are no error."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def listen(handler: type[Handler], backend: Backend) -> None:
    """Print the port, and answer until killed."""
    handler.backend = backend
    server = _Server(("127.0.0.1", 0), handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


# ---- the daemon, and the alerts


class Running:
    """A daemon with a warm cache."""

    def __init__(self, pid: int, url: str, log: Path, calls: "queue.SimpleQueue[dict[str, Any]]") -> None:
        self.pid, self.url, self.log, self.calls = pid, url, log, calls

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log's entries of one event."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [each for each in lines if each.get("event") == event]

    def resident_mib(self, field: str = "VmRSS") -> float:
        """Now; with `VmHWM` the greatest so far."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) / 1024 for line in status if line.startswith(f"{field}:"))

    def alert(self, node: str) -> float:
        """Seconds from the POST of an alert to the arrival of an eviction from its node."""
        alert = {
            "status": "firing",
            "labels": {"alertname": "NodeHot", "node": node},
            "annotations": {"rebalancer_high": str(HIGH), "rebalancer_target": str(TARGET)},
            "startsAt": datetime.now(UTC).isoformat(),
        }
        body = json.dumps({"version": "4", "groupKey": "{}", "status": "firing", "receiver": "r", "alerts": [alert]})
        json_body = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/alerts", body.encode(), json_body, method="POST")
        cycles, began = len(self.said("cycle")), time.monotonic()
        with urllib.request.urlopen(request, timeout=30):
            pass
        try:
            while (call := self.calls.get(timeout=PATIENCE_SECONDS))["node"] != node:
                pass
        except queue.Empty:
            sys.exit(f"no eviction from {node}\n{self.log.read_text()[-3000:]}")
        _until(lambda: len(self.said("cycle")) > cycles)
        return float(call["at"]) - began


@contextmanager
def daemon(*, pods: int, nodes: int) -> Iterator[tuple[Running, list[str]]]:
    """Everything in place: (the daemon, names of the warm nodes)."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="daemon-bench-")))
        synthetic_cluster(folder, pods=pods, nodes=nodes, seed=SEED)
        warm = [node["metadata"]["name"] for node in rendered_items(folder, "nodes")][::WARM_EVERY]
        command = [sys.executable, "-m", "bench.daemon.bench", "--serve", str(folder)]
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None
        url, calls = f"http://127.0.0.1:{int(server.stdout.readline())}", queue.SimpleQueue[dict[str, Any]]()
        threading.Thread(target=_read, args=(server.stdout, calls), daemon=True).start()
        log, policy = folder / "log", folder / "policy.yaml"
        policy.write_text(yaml.safe_dump(_policy(f"{url}/prometheus")))
        context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "bench", "contexts": [context]}
        config |= {
            "clusters": [{"name": "bench", "cluster": {"server": url}}],
            "users": [{"name": "bench", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        settings = {
            "REBALANCER_LISTEN": "127.0.0.1:0",
            "REBALANCER_INSECURE_NO_AUTH": "true",
            "REBALANCER_DATABASE": f"sqlite:///{folder / 'bench.db'}",
            "POD_NAME": "bench",
        }
        command = [sys.executable, "-m", "rebalancer", "run", "-f", str(policy)]
        with log.open("wb") as output:
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, "--kubeconfig", str(folder / "kubeconfig")],
                    env={**os.environ, **settings},
                    stdout=subprocess.DEVNULL,
                    stderr=output,
                )
            )
        stack.callback(process.kill)
        running = Running(process.pid, "", log, calls)
        _until(lambda: running.said("started") or process.poll() is not None)
        if process.poll() is not None:
            sys.exit(log.read_text())
        running.url = running.said("started")[0]["address"]
        _until(lambda: running.said("cycle"))  # the first look at everything: the cache is warm
        yield running, warm


def _read(lines: Iterable[str], calls: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in lines:
        calls.put(json.loads(line))


def _policy(prometheus: str) -> dict[str, Any]:
    said = bench_policy().model_dump(mode="json", by_alias=True, exclude_unset=True)
    said["pools"] = [{"name": "all", "selector": {}, "thresholds": {"high": 90, "target": 80, "low": 50}}]
    said["alerts"] = {"rules": [{"alert": "NodeHot"}]}
    said["usage"] = {
        "prometheus": {
            "url": prometheus,
            "nodeCPU": {"query": "node:cpu", "freshness": "node:time", "label": "node"},
            "podCPU": {"query": "pod:cpu"},
        },
        # an alert has waited already
        "stabilizationWindow": {"samples": 1, "duration": "0s"},
    }
    return said


def _until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 3 * PATIENCE_SECONDS
    while not what():
        if time.monotonic() > end:
            sys.exit("the daemon does not do what it is waited for")
        time.sleep(0.02)


def _say(figure: str, value: float, unit: str, aim: str = "", holds: bool | None = None) -> None:
    line = {"bench": "daemon", "figure": figure, "value": round(value, 3), "unit": unit, "aim": aim, "holds": holds}
    print(json.dumps(line), flush=True)


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alerts", type=int, default=36)
    parser.add_argument("--cycles", type=int, default=12, help="alerts in the larger cluster")
    parser.add_argument("--nodes", type=int, default=5_000, help="of the larger cluster; the other has a fifth")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
    holds = True
    for nodes, alerts in ((args.nodes // 5, args.alerts), (args.nodes, args.cycles)):
        with daemon(pods=30 * nodes, nodes=nodes) as (running, warm):
            took = [running.alert(node) for node in warm[:alerts]]
            cycle = statistics.median(float(each["seconds"]) for each in running.said("cycle")[1:])
            time.sleep(SETTLE_SECONDS)
            p99, resident = float(np.percentile(took, 99)), running.resident_mib()
            what = f"{nodes:,} nodes"
            _say(f"alerts, {what}", len(took), "alerts")
            _say(f"alert to eviction call, {what}, p50", statistics.median(took), "s")
            quick, small = p99 < ALERTS_AIM_SECONDS, resident < RESIDENT_AIM_MIB
            _say(f"alert to eviction call, {what}, p99", p99, "s", f"< {ALERTS_AIM_SECONDS:g}", quick)
            _say(f"cycle on an alert, {what}", cycle, "s", f"< {CYCLE_AIM_SECONDS:g}", cycle < CYCLE_AIM_SECONDS)
            _say(f"resident, {what}", resident, "MiB", f"< {RESIDENT_AIM_MIB:g}", small)
            _say(f"resident at most, {what}", running.resident_mib("VmHWM"), "MiB")
            holds = holds and quick and small and cycle < CYCLE_AIM_SECONDS
    return 0 if holds else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
