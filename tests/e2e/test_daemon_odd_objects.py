"""A daemon beside a tenant's objects that can't be read: it goes on for all others, names the object, and forgets
it when the object is gone."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.servers import POOL, DaemonProcess, alert_policy, daemon, evicted, until, warm_lab
from tests.faults.scenarios.live import copy_objects
from tests.programs.cli import rebalancer, write_policy
from tests.real.servers.api_server import ApiServer, api_server
from tests.stories.scenarios.odd_objects import Json, a_pod, a_replicaset, call, controlled_by, odd_pod

PODS = "/api/v1/namespaces/tenant/pods"
SETS = "/apis/apps/v1/namespaces/tenant/replicasets"
GPU = {**POOL, "name": "gpu", "selector": {"matchLabels": {"gpu": "yes"}}}
Api = Callable[[str, str, Json | None], Json]
"""One request: method, path, body."""
WRITTEN = {"1e400": "10e399", "1e308": "100e306"}
"""Quantity -> as a real API server writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An odd object."""

    kind: str
    text: str
    """In all that names it."""
    make: Callable[[Api], object]
    end: Callable[[Api], object]
    read: bool = True
    """Whether it is counted as an object that can't be read; an ambiguous node can."""


def owners_in_a_circle(api: Api, names: Sequence[str]) -> None:
    made = [api("POST", SETS, a_replicaset(name)) for name in names]
    for each, above in zip(made, [*made[1:], made[0]], strict=True):
        api("PATCH", f"{SETS}/{each['metadata']['name']}", {"metadata": controlled_by(above)})
    api("POST", PODS, a_pod(f"of-{names[0]}", "cold-1", **controlled_by(made[0])))


def without_owners(api: Api, names: Sequence[str]) -> None:
    for name in names:
        api("PATCH", f"{SETS}/{name}", {"metadata": {"ownerReferences": None}})


def allocatable(api: Api, cpu: str) -> None:
    api("PATCH", "/api/v1/nodes/cold-6/status", {"status": {"allocatable": {"cpu": cpu}}})


def gpu(api: Api, value: str | None) -> None:
    api("PATCH", "/api/v1/nodes/cold-5", {"metadata": {"labels": {"gpu": value}}})


AT_ONCE = {"gracePeriodSeconds": 0}
CASES: dict[str, Case] = {
    "cpu of 1e400": Case(
        kind="Pod",
        text="request of cpu: 1e400 is out of range",
        make=lambda api: api("POST", PODS, odd_pod("odd-cpu", "cold-1", cpu="1e400")),
        end=lambda api: api("DELETE", f"{PODS}/odd-cpu", AT_ONCE),
    ),
    "memory of 1e308": Case(
        kind="Pod",
        text="request of memory: 1e308 is out of range",
        make=lambda api: api("POST", PODS, odd_pod("odd-memory", "cold-1", memory="1e308")),
        end=lambda api: api("DELETE", f"{PODS}/odd-memory", AT_ONCE),
    ),
    "its own owner": Case(
        kind="ReplicaSet",
        text="tenant/knot",
        make=lambda api: owners_in_a_circle(api, ["knot"]),
        end=lambda api: without_owners(api, ["knot"]),
    ),
    "owners of each other": Case(
        kind="ReplicaSet",
        text="it is its own owner, by way of there",
        make=lambda api: owners_in_a_circle(api, ["here", "there"]),
        end=lambda api: without_owners(api, ["here", "there"]),
    ),
    "a node": Case(
        kind="Node",
        text="allocatable of cpu: 1e400 is out of range",
        make=lambda api: allocatable(api, "1e400"),
        end=lambda api: allocatable(api, "8"),
    ),
    "a node in two pools": Case(
        kind="Node",
        text="the selectors of two pools match the node",
        make=lambda api: gpu(api, "yes"),
        end=lambda api: gpu(api, None),
        read=False,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    api: Api
    evicted: Callable[[str], int]
    """Number of pods evicted from a node."""
    running: DaemonProcess
    folder: Path
    written: Mapping[str, str]

    def text(self, case: Case) -> str:
        """What names the object, with quantities as this server writes them."""
        out = case.text
        for ours, theirs in self.written.items():
            out = out.replace(ours, theirs)
        return out

    def said(self, *words: str) -> str:
        """What a command prints."""
        policy, database = self.folder / "rebalancer.yaml", f"sqlite:///{self.folder / 'rebalancer.db'}"
        told = rebalancer(
            *words, "-f", policy, "--kubeconfig", self.folder / "config", "--database", database, cwd=self.folder
        )
        return " ".join(f"{told.out} {told.err}".split())

    def overview(self) -> str:
        """The text of the dashboard's first page."""
        return re.sub(r"<[^>]+>", "", self.running.get("/")[1])

    def counted(self, kind: str) -> float:
        return self.running.metric("rebalancer_unreadable_objects", kind=kind)


@pytest.fixture(scope="module", params=["lab", pytest.param("real", marks=pytest.mark.real)])
def cast(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    """A daemon with the lab's API server, or with a real one that has the lab's nodes and pods."""
    folder = tmp_path_factory.mktemp("odd")
    with ExitStack() as stack:
        server = stack.enter_context(api_server()) if request.param == "real" else None
        lab = stack.enter_context(warm_lab(warm=len(CASES)))
        if server is None:
            lab.write_kubeconfig(folder / "config")
            api: Api = partial(call, lab)
            gone: Callable[[str], int] = lambda node: len(evicted(lab, node))  # noqa: E731
        else:
            uids = copy_objects(lab, server)
            server.kubeconfig(folder / "config")
            api, gone = server.call, partial(missing, server, uids, placed(server))
        api("POST", "/api/v1/namespaces", {"metadata": {"name": "tenant"}})
        policy = alert_policy(
            lab.prometheus_url,
            pools=[POOL, GPU],
            guards={"minAge": "0s"},
            # nothing replaces the pods of an API server without controllers
            limits={"cluster": {"inFlight": 100}, "replacements": {"perNode": 100}},
            safety={"cooldowns": {"newNode": "0s", "poolAfterScaleUp": "0s"}},
        )
        write_policy(folder, policy, "rebalancer.yaml")
        running = stack.enter_context(daemon(folder, policy, folder / "config", env={"REBALANCER_DASHBOARD": "open"}))
        until(running.leads, running.tail)
        yield Cast(api=api, evicted=gone, running=running, folder=folder, written=WRITTEN if server else {})


def placed(server: ApiServer) -> dict[str, str]:
    """UID of a pod -> its node."""
    pods = server.call("GET", "/api/v1/namespaces/shop/pods")["items"]
    return {each["metadata"]["uid"]: each["spec"].get("nodeName", "") for each in pods}


def missing(server: ApiServer, uids: set[str], places: Mapping[str, str], node: str) -> int:
    pods = server.call("GET", "/api/v1/namespaces/shop/pods")["items"]
    alive = {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}
    return sum(places[uid] == node for uid in uids - alive)


def notes(running: DaemonProcess) -> str:
    """Of all cycles."""
    return " ".join(note for each in running.events("cycle") for note in each["notes"])


@pytest.mark.parametrize("name", CASES)
def test_a_daemon_relieves_the_others_and_names_the_object_until_it_is_gone(cast: Cast, name: str) -> None:
    case, node = CASES[name], f"warm-{list(CASES).index(name) + 1}"
    text = cast.text(case)
    case.make(cast.api)
    cast.running.alert(node)
    until(lambda: cast.evicted(node), cast.running.tail)
    assert cast.evicted(node) == 1
    assert cast.running.process.poll() is None
    assert cast.running.events("cycle failed") == []
    until(lambda: text in notes(cast.running), cast.running.tail)
    if case.read:
        until(lambda: cast.counted(case.kind) >= 1.0, cast.running.tail)
        begun = cast.running.events("object can't be read")
        assert len([each for each in begun if text in f"{each['object']}: {each['cause']}"]) == 1, begun
    until(lambda: text in cast.overview(), cast.running.tail)
    assert text in cast.said("status")
    assert text in cast.said("doctor")
    assert text in cast.said("plan")
    case.end(cast.api)
    until(lambda: text not in cast.overview(), cast.running.tail)
    until(lambda: cast.counted(case.kind) == 0.0, cast.running.tail)
    assert text not in cast.said("status")


def test_no_watch_was_lost(cast: Cast) -> None:
    # quiet kinds are listed again after some minutes without an event
    assert cast.running.metric("rebalancer_watch_relists_total", kind="pods") == 0.0
    assert [each for each in cast.running.log if each.get("level") == "error"] == []
    assert cast.running.ready()
