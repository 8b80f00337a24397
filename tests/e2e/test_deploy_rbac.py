"""The daemon under exactly the roles that we ship, on a real API server with RBAC: its audit log shows what it used.

Every request was allowed, and every right that the roles grant was needed: for the dry run of the first week, and for
the real thing afterwards.
"""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.readers.manifests import NAMESPACE, Right, find, overlay, rights
from tests.deploy.servers import Cluster
from tests.e2e.scenarios import HOT, MOVED, Stage, stage_on
from tests.e2e.servers import DaemonProcess, daemon, until
from tests.programs.cli import rebalancer, write_policy
from tests.real.servers.api_server import api_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:rebalancer"

VERSION = Right("get", "/version")
"""Every account may (ClusterRole system:public-info-viewer)."""
USED_BY_RIGHTS_OF_ALL_ACCOUNTS = {VERSION, Right("create", "selfsubjectaccessreviews.authorization.k8s.io")}
"""What the daemon asks besides and every account may: the version, and whether it may patch nodes (ClusterRole
system:basic-user)."""

GRANTED_AND_NOT_USED_IN_A_DRY_RUN = {
    # read again right before an eviction, and to settle those whose answer was lost
    Right("get", "pods"),
    # announced is what happened
    Right("create", "events.events.k8s.io"),
    # read by `db accept-restore`
    Right("list", "events.events.k8s.io"),
}
"""They stay in the dry run's role: only what could evict or change a node is taken out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    cluster: Cluster
    stage: Stage
    audit_log: Path
    folder: Path

    def audited(self) -> list[dict[str, Any]]:
        """Every request of our account that was answered."""
        found = [json.loads(line) for line in self.audit_log.read_text().splitlines() if line.endswith("}")]
        return [each for each in found if each["user"]["username"] == ACCOUNT]

    def kubeconfig(self) -> Path:
        """Our account's, as a pod would have it."""
        return self.cluster.account(NAMESPACE, "rebalancer").kubeconfig(self.folder / "account.kubeconfig")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("rbac")
    (folder / "audit.yaml").write_text(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
    )
    log = folder / "audit.log"
    log.touch()
    flags = (
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
    )
    with api_server(flags=flags) as server, stage_on(server, folder, warm="node-4") as stage:
        # volumes are followed only where a pod uses a claim
        server.call(
            "POST",
            "/api/v1/namespaces/shop/pods",
            {
                "metadata": {"name": "keeps-data"},
                "spec": {
                    "nodeName": "node-4",
                    "containers": [{"name": "keeps-data", "image": "keeps-data:1"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                },
            },
        )
        yield Scene(cluster=Cluster.of(server, folder), stage=stage, audit_log=log, folder=folder)


def right_of(event: dict[str, Any]) -> Right:
    """What a request took, as roles put it. A create has no name when it is judged; the version is no object."""
    if "objectRef" not in event:
        return Right(event["verb"], event["requestURI"])
    asked = event["objectRef"]
    resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
    group = asked.get("apiGroup", "")
    name = asked.get("name", "") if asked["resource"] == "leases" and event["verb"] != "create" else ""
    return Right(event["verb"], f"{resource}.{group}" if group else resource, name)


def used(events: list[dict[str, Any]]) -> tuple[set[Right], set[Right]]:
    """(by our own roles, by others); nothing may have been refused."""
    ours: set[Right] = set()
    others: set[Right] = set()
    for event in events:
        notes = event["annotations"]
        assert notes["authorization.k8s.io/decision"] == "allow", event
        of_us = (
            f'"{ACCOUNT.removeprefix("system:serviceaccount:").replace(":", "/")}"'
            in notes["authorization.k8s.io/reason"]
        )
        (ours if of_us else others).add(right_of(event))
    return ours, others


def granted(name: str) -> set[Right]:
    objects = overlay(name)
    return rights(find(objects, "ClusterRole")) | rights(find(objects, "Role"))


def run_daemon(scene: Scene, name: str, *arguments: str) -> AbstractContextManager[DaemonProcess]:
    """One that finds no Lease yet: it has to make it."""
    scene.cluster.kubectl("-n", NAMESPACE, "delete", "lease", "rebalancer", "--ignore-not-found")
    policy = write_policy(scene.folder, scene.stage.policy, f"{name}.yaml")
    env = {"POD_NAMESPACE": NAMESPACE, "POD_UID": "0"}
    return daemon(scene.folder, policy, scene.kubeconfig(), name=name, arguments=arguments, env=env)


def hot_node_is_looked_at(process: DaemonProcess) -> dict[str, Any]:
    """Ask for a cycle; its line in the log."""
    until(lambda: process.leads() and process.ready(), process.tail)
    until(lambda: process.post({"nodes": [HOT]}, "/api/v1/trigger") == 202, process.tail)
    return until(lambda: [each for each in process.events("cycle") if each["planned"]], process.tail)[0]


def accept_restore(scene: Scene, name: str) -> None:
    """A command for the database of the daemon of this name, whose last reservations are lost."""
    database = scene.folder / f"{name}.db"
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE scopes SET sequence = 0 WHERE kind = 'cluster'")
    env = {
        "REBALANCER_DATABASE": f"sqlite:///{database}",
        "REBALANCER_LEASE_NAME": "rebalancer",
        "POD_NAMESPACE": NAMESPACE,
    }
    arguments = ("-f", scene.folder / f"{name}.yaml", "--kubeconfig", scene.kubeconfig())
    accepted = rebalancer("db", "accept-restore", *arguments, env=env, cwd=scene.folder)
    assert accepted.code == 0, accepted.err
    assert "Events can't be read" not in accepted.out + accepted.err


def test_the_dry_run_of_the_first_week_needs_no_more_than_its_roles_and_could_not_evict(scene: Scene) -> None:
    scene.cluster.apply(overlay("dry-run"))
    before = len(scene.audited())
    with run_daemon(scene, "dry-run", "--dry-run") as process:
        cycle = hot_node_is_looked_at(process)
        process.signal(signal.SIGTERM)
        assert process.ended(60.0) == 0
    assert (cycle["planned"], cycle["evicted"]) == (len(MOVED), 0)
    assert scene.stage.evicted() == set()
    ours, others = used(scene.audited()[before:])
    assert others == {VERSION}
    assert ours <= granted("dry-run")
    assert granted("dry-run") - ours == GRANTED_AND_NOT_USED_IN_A_DRY_RUN
    assert granted("sqlite") - granted("dry-run") == {
        Right("create", "pods/eviction"),
        Right("get", "nodes"),
        Right("patch", "nodes"),
    }


def test_every_right_that_the_daemon_uses_is_granted_and_every_right_that_is_granted_is_used(scene: Scene) -> None:
    scene.cluster.apply(overlay("sqlite"))
    before = len(scene.audited())
    with run_daemon(scene, "live") as process:
        cycle = hot_node_is_looked_at(process)
        tainted = [each for each in scene.audited()[before:] if each["verb"] == "patch"]
        process.signal(signal.SIGTERM)
        assert process.ended(60.0) == 0
    assert cycle["evicted"] == len(MOVED)
    assert len(scene.stage.evicted()) == len(MOVED)
    assert tainted
    accept_restore(scene, "live")
    ours, others = used(scene.audited()[before:])
    assert ours == granted("sqlite")
    assert others == USED_BY_RIGHTS_OF_ALL_ACCOUNTS
    # it left nothing of its own behind, under the admission policy and its roles
    nodes = scene.cluster.server.call("GET", "/api/v1/nodes")["items"]
    assert not [each for each in nodes if each["spec"].get("taints")]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/rebalancer"
    assert scene.cluster.server.call("GET", lease)["spec"]["holderIdentity"] == ""
    events = scene.cluster.server.call("GET", "/apis/events.k8s.io/v1/events")["items"]
    assert {each["reason"] for each in events if each.get("reportingController") == "rebalancer"} == {
        "Evicted",
        "Relieved",
    }


def test_doctor_misses_nothing_and_in_a_dry_run_only_the_right_to_evict(scene: Scene) -> None:
    policy = write_policy(scene.folder, scene.stage.policy)

    def diagnosed() -> tuple[int, str]:
        found = rebalancer(
            "doctor", "-f", policy, "--kubeconfig", scene.kubeconfig(), "-o", "json",
            env={"POD_NAMESPACE": NAMESPACE}, cwd=scene.folder,
        )  # fmt: skip
        (check,) = [each for each in found.document["checks"] if each["name"] == "permissions"]
        return found.code, check["detail"]

    scene.cluster.apply(overlay("sqlite"))
    assert diagnosed() == (0, "everything that a run needs is allowed")
    scene.cluster.apply(overlay("dry-run"))
    assert diagnosed() == (5, "not allowed: create pods/eviction, get nodes, patch nodes")
