"""A leader and a follower at work: their requests, their output, and what may be changed under them."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rebalancer.lab import Lab
from rebalancer.store.journal import recording_of
from tests.builders import cluster
from tests.e2e.servers import ALERT, TOKEN, DaemonProcess, alert_policy, daemon, evicted, until, warm_lab
from tests.programs.cli import Result, rebalancer


class Mount:
    """A policy file as a kubelet mounts it from a ConfigMap: a symlink to a folder that is swapped whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        folder.mkdir()
        (folder / "policy.yaml").symlink_to("..data/policy.yaml")

    @property
    def file(self) -> Path:
        return self._folder / "policy.yaml"

    def put(self, text: str) -> None:
        self._number += 1
        version = self._folder / f"..{self._number}"
        version.mkdir()
        (version / "policy.yaml").write_text(text)
        (self._folder / "..new").symlink_to(version.name)
        os.replace(self._folder / "..new", self._folder / "..data")


@dataclass
class Pair:
    lab: Lab
    folder: Path
    mount: Mount
    leader: DaemonProcess
    follower: DaemonProcess
    unused: Iterator[str] = field(default_factory=lambda: (f"warm-{number}" for number in range(1, 20)))

    def policy(self, **sections: Any) -> str:
        return yaml.safe_dump(alert_policy(self.lab.prometheus_url, **sections))

    def trigger(self, server: DaemonProcess, *nodes: str, token_file: Path | None = None) -> Result:
        asked = [word for name in nodes for word in ("--node", name)]
        return rebalancer(
            *("trigger", *asked, "--server", server.url, "--token-file", token_file or self.folder / "token"), cold=True
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    mount = Mount(folder / "mount")
    with warm_lab(warm=9) as lab:
        mount.put(yaml.safe_dump(alert_policy(lab.prometheus_url)))
        config = lab.write_kubeconfig(folder / "kubeconfig")
        database = f"sqlite:///{folder / 'shared.db'}"
        with daemon(folder, mount.file, config, name="first", database=database, cold=True) as first:
            until(first.leads, first.tail)
            with daemon(folder, mount.file, config, name="second", database=database) as second:
                until(second.ready, second.tail)
                yield Pair(lab=lab, folder=folder, mount=mount, leader=first, follower=second)


@pytest.fixture
def warm(pair: Pair) -> str:
    """A warm node that no other test has touched."""
    return next(pair.unused)


def moved(pair: Pair, node: str) -> Callable[[], bool]:
    return lambda: len(evicted(pair.lab, node)) == 1


def test_an_eviction_is_written_as_events_on_the_service_and_the_node(pair: Pair, warm: str) -> None:
    pair.leader.alert(warm)
    until(moved(pair, warm), pair.leader.tail)
    [gone] = evicted(pair.lab, warm)

    def events(kind: str) -> list[dict[str, Any]]:
        with pair.lab.cluster.lock:
            kept = pair.lab.cluster.store.sorted("events")
        return [each for each in kept if each["involvedObject"]["kind"] == kind and gone.name in each["message"]]

    [of_node] = until(lambda: events("Node"), pair.leader.tail)
    [of_service] = events("Deployment")
    assert (of_node["reason"], of_node["involvedObject"]["name"]) == ("Relieved", warm)
    assert (of_service["reason"], of_service["involvedObject"]["name"]) == ("Evicted", f"svc-{warm[5:]}")
    assert f"real CPU 65.6% is over high 60% (alert {ALERT})" in of_service["message"]
    assert of_service["involvedObject"]["uid"]


def test_an_alert_that_a_follower_takes_is_acted_on_by_the_leader(pair: Pair, warm: str) -> None:
    pair.follower.alert(warm)
    until(moved(pair, warm), pair.leader.tail)
    assert pair.follower.events("cycle") == []
    # the cluster knows of it before the leader has written its line
    until(lambda: warm in {each["node"] for each in pair.leader.events("eviction")}, pair.leader.tail)


def test_the_same_alert_again_and_through_both_replicas_moves_one_pod(pair: Pair, warm: str) -> None:
    for each in (pair.leader, pair.follower, pair.leader):
        each.alert(warm)
    until(moved(pair, warm), pair.leader.tail)
    cycles = len(pair.leader.events("cycle"))
    pair.trigger(pair.leader, warm)
    until(lambda: len(pair.leader.events("cycle")) > cycles, pair.leader.tail)
    assert len(evicted(pair.lab, warm)) == 1


def test_the_daemon_writes_a_journal_in_which_replacements_follow_evicted_pods(pair: Pair, warm: str) -> None:
    pair.leader.alert(warm)
    until(moved(pair, warm), pair.leader.tail)
    [gone] = evicted(pair.lab, warm)
    now = time.time()

    def replaced() -> list[str]:
        # a cycle records replacements that are Ready, and the journal follows each cycle
        pair.trigger(pair.leader, warm)
        pods = recording_of(
            pair.folder / "history",
            cluster="test",
            start=now - now % 300 - 300,
            end=now - now % 300 + 900,
            today=cluster([], []),
            usage={},
        ).pods
        if gone.uid not in pods.uids:
            return []
        predecessor = pods.uids.index(gone.uid)
        return [pods.uids[each] for each in np.flatnonzero(pods.replaced == predecessor).tolist()]

    [came] = until(replaced, pair.leader.tail)
    log = pair.lab.log.entries()
    assert came in {each.uid for each in log if each.event == "ready" and each.name.startswith(f"svc-{warm[5:]}-")}
    assert pair.leader.events("journal not written") == []


def test_metrics_show_what_was_done(pair: Pair, warm: str) -> None:
    before = pair.leader.metric("rebalancer_evictions_total", outcome="evicted")
    pair.leader.alert(warm)
    until(moved(pair, warm), pair.leader.tail)
    until(lambda: pair.leader.metric("rebalancer_evictions_total", outcome="evicted") == before + 1, pair.leader.tail)
    assert pair.leader.metric("rebalancer_cycles_total", trigger="alert", result="done") >= 1
    assert pair.leader.metric("rebalancer_alerts_received_total", result="opened") >= 1
    until(lambda: pair.leader.metric("rebalancer_lease_held") == 1.0, pair.leader.tail)
    assert pair.follower.metric("rebalancer_lease_held") == 0.0
    until(lambda: pair.leader.metric("rebalancer_alert_episodes_open") >= 1, pair.leader.tail)
    page = pair.leader.get("/metrics")[1]
    assert 'rebalancer_cache_age_seconds{kind="pods"}' in page
    for name in evicted(pair.lab):
        assert name.name not in page


def test_a_trigger_leads_to_a_cycle(pair: Pair, warm: str) -> None:
    before = len(pair.leader.events("cycle"))
    asked = pair.trigger(pair.leader, warm)
    assert (asked.code, asked.err.strip()) == (0, f"requested: {warm}")
    [cycle] = until(lambda: pair.leader.events("cycle")[before:], pair.leader.tail)
    assert cycle["trigger"] == "manual"


def test_a_trigger_for_a_node_that_does_not_exist_is_bad_usage(pair: Pair) -> None:
    asked = pair.trigger(pair.leader, "warm-1", "nowhere")
    assert asked.code == 4
    assert "no node of this cluster is nowhere" in asked.error


def test_a_follower_triggers_nothing_and_says_who_leads(pair: Pair) -> None:
    asked = pair.trigger(pair.follower, "warm-1")
    assert asked.code == 3
    assert "held by first_" in asked.error


def test_a_wrong_token_triggers_nothing(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("something else")
    asked = pair.trigger(pair.leader, "warm-1", token_file=tmp_path / "other")
    assert asked.code == 5
    assert "wrong credentials" in asked.error


def test_a_secret_that_is_replaced_holds_without_a_restart(pair: Pair) -> None:
    nothing: dict[str, Any] = {"version": "4", "alerts": []}
    wrong = pair.leader.metric("rebalancer_auth_failures_total", reason="wrong")
    try:
        (pair.folder / "token").write_text("a new one")
        until(lambda: pair.leader.post(nothing, token="a new one") == 200, pair.leader.tail)
        assert pair.leader.post(nothing, token=TOKEN) == 401
        assert pair.leader.metric("rebalancer_auth_failures_total", reason="wrong") > wrong
        (pair.folder / "token").write_text("")  # half written: closed to all, and worth another try
        until(lambda: pair.leader.post(nothing, token="a new one") == 503, pair.leader.tail)
    finally:
        (pair.folder / "token").write_text(TOKEN)
    until(lambda: pair.leader.post(nothing) == 200, pair.leader.tail)
    until(lambda: pair.follower.post(nothing) == 200, pair.follower.tail)


def test_a_swapped_policy_changes_what_happens_and_a_broken_one_does_not(pair: Pair) -> None:
    leader = pair.leader
    one, two, three = (next(pair.unused) for _ in range(3))

    def reloads(result: str) -> float:
        return leader.metric("rebalancer_policy_reloads_total", result=result)

    # nothing says what is hot but the pool, whose own high is 90%
    cycles = len(leader.events("cycle"))
    leader.alert(one, high=None, target=None)
    until(lambda: len(leader.events("cycle")) > cycles, leader.tail)
    assert evicted(pair.lab, one) == []

    rules = {"alerts": {"rules": [{"alert": ALERT, "high": 60, "target": 50}]}}
    pair.mount.put(pair.policy(**rules))
    until(lambda: reloads("success") == 1, leader.tail)
    leader.alert(two, high=None, target=None)
    until(moved(pair, two), leader.tail)

    pair.mount.put(pair.policy(**rules).replace("high: 90", "high: 50"))  # under its own target
    until(lambda: reloads("failure") == 1, leader.tail)
    [line] = leader.events("policy not reloaded, the last valid one stays active")
    assert "target" in line["error"]
    assert "policy.yaml" in line["error"]
    assert line["error"].splitlines()[0] in leader.get("/readyz?verbose")[1]
    assert leader.ready()

    # good in itself, but it names a file that isn't there
    pair.mount.put(pair.policy(**rules, scheduler={"configFile": "nowhere.yaml"}))
    until(lambda: reloads("failure") == 2, leader.tail)
    assert "nowhere.yaml" in leader.events("policy not reloaded, the last valid one stays active")[1]["error"]

    leader.alert(three, high=None, target=None)
    until(moved(pair, three), leader.tail)
    assert reloads("success") == 1
