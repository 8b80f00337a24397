"""The second kube-scheduler for crowds of short jobs: its configuration is our advice, and a real one runs with it."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.cli.output.advised import configuration
from rebalancer.planner.advice.profiles import CROWD_PROFILE
from rebalancer.policy.kube_scheduler.config import load_scheduler_config
from tests.deploy.readers.manifests import (
    SECOND_SCHEDULER,
    Object,
    container,
    find,
    kustomized,
    parse,
    pod_spec,
    rights,
)
from tests.deploy.servers import Cluster
from tests.planner.test_advice import advice_for, crowd
from tests.real.servers.api_server import api_server
from tests.real.servers.scheduler import assets_with_scheduler, kube_scheduler

DEPLOYED = SECOND_SCHEDULER / "deployment" / "kube-scheduler.yaml"
STATIC = SECOND_SCHEDULER / "static-pods" / "kube-scheduler.yaml"
PATCH = SECOND_SCHEDULER / "cronjob-patch.yaml"
FIRST_SCHEDULERS_PORT = 10259
LEASE = "crowd-scheduler"
PATIENCE_SECONDS = 60.0


def config(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def deployed() -> list[Object]:
    return kustomized(SECOND_SCHEDULER / "deployment")


def static_pod() -> Object:
    return find(parse((SECOND_SCHEDULER / "static-pods" / "crowd-scheduler.yaml").read_text()), "Pod")


def flag(command: list[str], name: str) -> str:
    (value,) = [each.removeprefix(f"--{name}=") for each in command if each.startswith(f"--{name}=")]
    return value


# ---- the configuration


def test_the_profile_is_the_one_that_is_advised_for_a_crowd() -> None:
    nodes, pods = crowd(12)
    advised = configuration(advice_for(nodes, pods))
    (profile,) = [each for each in advised["profiles"] if each["schedulerName"] == CROWD_PROFILE]
    assert config(DEPLOYED)["profiles"] == [profile]
    assert config(DEPLOYED)["apiVersion"] == advised["apiVersion"]


def test_our_own_model_of_the_scheduler_reads_it() -> None:
    read = load_scheduler_config(DEPLOYED.read_bytes(), source="kube-scheduler.yaml")
    (profile,) = read.profiles.values()
    assert profile.fit_strategy == "LeastAllocated"
    assert "ImageLocality" not in profile.weights
    assert read.unknown == ()


def test_the_static_pods_configuration_differs_only_in_how_the_api_server_is_reached() -> None:
    static = config(STATIC)
    assert static.pop("clientConnection") == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    assert static == config(DEPLOYED)


def test_its_lease_is_its_own_and_the_role_names_it() -> None:
    election = config(DEPLOYED)["leaderElection"]
    assert election == {"leaderElect": True, "resourceNamespace": "kube-system", "resourceName": LEASE}
    for objects in (deployed(), parse((SECOND_SCHEDULER / "static-pods" / "rbac.yaml").read_text())):
        role = find(objects, "Role")
        assert role["metadata"]["namespace"] == election["resourceNamespace"]
        assert {(right.verb, right.resource, right.name) for right in rights(role)} == {
            ("get", "leases.coordination.k8s.io", LEASE),
            ("update", "leases.coordination.k8s.io", LEASE),
        }


def test_its_port_is_its_own_and_probes_ask_it() -> None:
    for part in (container(deployed()), static_pod()["spec"]["containers"][0]):
        (port,) = part["ports"]
        assert int(flag(part["command"], "secure-port")) == port["containerPort"] != FIRST_SCHEDULERS_PORT
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if probe in part:
                assert (part[probe]["httpGet"]["port"], part[probe]["httpGet"]["scheme"]) == (port["name"], "HTTPS")


def test_both_run_two_of_it_at_least_with_the_file_that_is_mounted() -> None:
    deployment = find(deployed(), "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert find(deployed(), "PodDisruptionBudget")["spec"]["selector"] == deployment["selector"]
    part = container(deployed())
    (mount,) = part["volumeMounts"]
    name, _, file = flag(part["command"], "config").rpartition("/")
    assert name == mount["mountPath"]
    (volume,) = pod_spec(deployed())["volumes"]
    held = find(deployed(), "ConfigMap", volume["configMap"]["name"])["data"]
    assert yaml.safe_load(held[file]) == config(DEPLOYED)

    static = static_pod()["spec"]
    (part,) = static["containers"]
    mounted = {mount["mountPath"]: mount["name"] for mount in part["volumeMounts"]}
    files = {volume["name"]: volume["hostPath"]["path"] for volume in static["volumes"]}
    assert flag(part["command"], "config") in mounted
    assert config(STATIC)["clientConnection"]["kubeconfig"] in mounted
    assert {path: files[name] for path, name in mounted.items()} == {path: path for path in mounted}
    assert static["hostNetwork"] is True
    assert flag(part["command"], "bind-address") == "127.0.0.1"


def test_the_patch_sends_pods_there_and_gives_them_a_constraint_that_they_match() -> None:
    template = config(PATCH)["spec"]["jobTemplate"]["spec"]["template"]
    assert template["spec"]["schedulerName"] == CROWD_PROFILE
    (constraint,) = template["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    # as the advice words it
    nodes, pods = crowd(12)
    (said,) = [each.recommendation for each in advice_for(nodes, pods).advice if each.topic == "Crowd"]
    assert constraint["topologyKey"] in said
    assert constraint["whenUnsatisfiable"] in said
    assert re.search(rf"schedulerName {CROWD_PROFILE}\b", said)


# ---- a real one


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assets_with_scheduler()
    with api_server() as server:
        yield Cluster.of(server, tmp_path_factory.mktemp("cluster"))


@pytest.mark.real
@pytest.mark.timeout(300)
def test_it_leads_by_its_own_lease_and_places_a_crowd_under_the_shipped_roles(cluster: Cluster) -> None:
    cluster.apply(deployed())
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    for number in (1, 2, 3):
        name = f"node-{number}"
        labels = {"kubernetes.io/hostname": name}
        cluster.server.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        cluster.server.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    template = config(PATCH)["spec"]["jobTemplate"]["spec"]["template"]
    account = cluster.account("kube-system", "crowd-scheduler")
    with kube_scheduler(account, config=config(DEPLOYED)) as scheduler:
        placed = []
        for number in range(6):
            pod = {
                "metadata": {"name": f"job-{number}", "labels": template["metadata"]["labels"]},
                "spec": {**template["spec"], "containers": [{"name": "job", "image": "job:1"}]},
            }
            cluster.server.call("POST", "/api/v1/namespaces/default/pods", pod)
            placed.append(scheduler.decision(f"default/job-{number}").node)
        assert sorted(map(str, placed)) == ["node-1", "node-1", "node-2", "node-2", "node-3", "node-3"]
        held = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/crowd-scheduler"
        assert cluster.server.call("GET", held)["spec"]["holderIdentity"]
        until = time.monotonic() + PATIENCE_SECONDS
        while not (
            bound := cluster.server.call("GET", "/api/v1/namespaces/default/pods/job-5")["spec"].get("nodeName")
        ):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert bound == placed[-1]


@pytest.mark.real
def test_the_patch_fits_a_cronjob(cluster: Cluster) -> None:
    spec = {"containers": [{"name": "report", "image": "report:1"}], "restartPolicy": "Never"}
    cronjob = {
        "metadata": {"name": "report"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": spec}}}},
    }
    cluster.server.call("POST", "/apis/batch/v1/namespaces/default/cronjobs", cronjob)
    cluster.kubectl("patch", "cronjob", "report", "--patch-file", PATCH)
    template = cluster.server.call("GET", "/apis/batch/v1/namespaces/default/cronjobs/report")["spec"]["jobTemplate"]
    found = template["spec"]["template"]["spec"]
    assert found["schedulerName"] == CROWD_PROFILE
    assert [each["image"] for each in found["containers"]] == ["report:1"]


@pytest.mark.real
def test_static_pods_may_keep_their_lease_as_the_user_of_kubeadms_scheduler(cluster: Cluster) -> None:
    cluster.apply(parse((SECOND_SCHEDULER / "static-pods" / "rbac.yaml").read_text()))
    for verb, name in (("create", ""), ("get", LEASE), ("update", LEASE)):
        lease = "leases.coordination.k8s.io" + (f"/{name}" if name else "")
        asked = ("auth", "can-i", verb, lease, "-n", "kube-system", "--as=system:kube-scheduler")
        assert cluster.kubectl(*asked).strip() == "yes"
