"""What holds for whatever is deployed: each overlay as kubectl renders it, each variant of the chart as helm does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rebalancer
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.daemon.serve import CLEAR_SECONDS, STOP_SECONDS, UNDO_SECONDS
from rebalancer.kube.leader.lease import Timing
from rebalancer.kube.probe import needed_permissions
from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.policy import load_policy
from rebalancer.web.http.server import parse_listen
from tests.deploy.readers.manifests import (
    OVERLAYS,
    RENDERED,
    Object,
    chart,
    container,
    environment,
    find,
    kinds,
    overlay,
    overlay_with,
    pod_spec,
    policy_text,
    rights,
)

NOT_SETTINGS = {"REBALANCER_POLICY", "POD_NAME", "POD_NAMESPACE", "POD_UID"}
"""Environment variables that a command line's option reads, or that have a name of their own."""


@pytest.fixture(
    params=[
        *(pytest.param((overlay, name), id=f"overlay-{name}") for name in OVERLAYS),
        *(pytest.param((chart, name), id=f"chart-{name}") for name in RENDERED),
    ]
)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    render: Callable[[str], list[Object]]
    render, name = request.param
    return render(name)


def containers(objects: list[Object]) -> list[Object]:
    spec = pod_spec(objects)
    return [*spec["initContainers"], *spec["containers"]]


def is_dry(objects: list[Object]) -> bool:
    return "--dry-run" in container(objects)["args"]


def test_the_policy_is_valid(objects: list[Object]) -> None:
    load_policy(policy_text(objects).encode(), source="the ConfigMap")


def test_the_policy_knows_our_own_pods(objects: list[Object]) -> None:
    ours = load_policy(policy_text(objects).encode(), source="the ConfigMap").guards.ours.rebalancer
    labels = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert selector_matches(ours.compiled(), labels)


def test_the_version_is_the_programs(objects: list[Object]) -> None:
    image = container(objects)["image"]
    assert image == f"rebalancer:{rebalancer.__version__}" or "@sha256:" in image
    labels = find(objects, "Deployment")["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == rebalancer.__version__


def test_no_container_is_root_or_writes_to_its_root(objects: list[Object]) -> None:
    pod = pod_spec(objects)["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in containers(objects):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= each["resources"]["requests"].keys()
        assert "memory" in each["resources"]["limits"]
        assert "cpu" not in each["resources"]["limits"]


def test_everything_that_is_mounted_is_a_volume_and_the_other_way_round(objects: list[Object]) -> None:
    volumes = {each["name"] for each in pod_spec(objects)["volumes"]}
    assert {mount["name"] for each in containers(objects) for mount in each["volumeMounts"]} == volumes
    for each in containers(objects):
        paths = [mount["mountPath"] for mount in each["volumeMounts"]]
        # a folder can't be made in a ConfigMap's: it is read-only
        assert not [one for one in paths for other in paths if one != other and one.startswith(f"{other}/")]


def test_every_setting_is_one_that_the_program_knows(objects: list[Object]) -> None:
    known = {f"REBALANCER_{name.upper()}" for name in Settings.model_fields} | NOT_SETTINGS
    for each in containers(objects):
        assert {setting for setting in environment(each) if setting != "TZ"} <= known  # extraEnv of a variant


def test_files_that_settings_name_are_under_a_mount(objects: list[Object]) -> None:
    daemon = container(objects)
    mounts = tuple(mount["mountPath"] for mount in daemon["volumeMounts"])
    for name, value in environment(daemon).items():
        if name.endswith("_FILE") or name in ("REBALANCER_POLICY", "REBALANCER_HISTORY_DIR"):
            assert value.startswith(mounts), name


def test_the_daemon_knows_itself_and_service_links_set_nothing(objects: list[Object]) -> None:
    env = environment(container(objects))
    fields = {name: env[name]["fieldRef"]["fieldPath"] for name in ("POD_NAME", "POD_NAMESPACE", "POD_UID")}
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
    # a Service named rebalancer would set REBALANCER_PORT and the like
    assert pod_spec(objects)["enableServiceLinks"] is False


def test_the_database_is_brought_up_to_date_before_the_daemon_starts(objects: list[Object]) -> None:
    (migration,) = pod_spec(objects)["initContainers"]
    daemon = container(objects)
    assert migration["args"] == ["db", "upgrade"]
    assert migration["image"] == daemon["image"]
    assert environment(migration)["REBALANCER_DATABASE"] == environment(daemon)["REBALANCER_DATABASE"]


def test_probes_and_services_reach_the_ports_that_are_listened_on(objects: list[Object]) -> None:
    daemon = container(objects)
    port, health = daemon["ports"]
    assert parse_listen(environment(daemon)["REBALANCER_LISTEN"]) == ("0.0.0.0", port["containerPort"])
    # a listener of its own: the probes answer while all connections of the other one are taken
    assert parse_listen(environment(daemon)["REBALANCER_HEALTH_LISTEN"]) == ("0.0.0.0", health["containerPort"])
    probes = {name: daemon[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    service = find(objects, "Service")["spec"]
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {(health["name"], "HTTP")}
    labels = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


def test_a_sqlite_file_is_for_one_pod_at_a_time(objects: list[Object]) -> None:
    deployment = find(objects, "Deployment")["spec"]
    volumes = {each["name"]: each for each in pod_spec(objects)["volumes"]}
    if isinstance(environment(container(objects))["REBALANCER_DATABASE"], str):
        assert deployment["replicas"] == 1
        assert deployment["strategy"] == {"type": "Recreate"}
        assert "persistentVolumeClaim" in volumes["data"]
    else:
        assert deployment["strategy"]["type"] == "RollingUpdate"
        assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_several_replicas_have_a_budget_and_are_spread(objects: list[Object]) -> None:
    deployment = find(objects, "Deployment")["spec"]
    several = deployment["replicas"] > 1
    assert ("PodDisruptionBudget" in kinds(objects)) is several
    spread = pod_spec(objects).get("topologySpreadConstraints", [])
    # one replica is spread only where the values say so
    assert {each["whenUnsatisfiable"] for each in spread} <= {"ScheduleAnyway" if several else "DoNotSchedule"}
    if several:
        selector = deployment["selector"]
        assert find(objects, "PodDisruptionBudget")["spec"]["selector"] == selector
        assert {each["topologyKey"] for each in pod_spec(objects)["topologySpreadConstraints"]} == {
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        }
        assert all(each["labelSelector"] == selector for each in pod_spec(objects)["topologySpreadConstraints"])


def test_there_is_time_to_stop(objects: list[Object]) -> None:
    grace = pod_spec(objects)["terminationGracePeriodSeconds"]
    # finish the call, undo surges (one may run over: two reads and a write), take the taints off (one patch may run
    # over: two reads of 6 s and a write), give the Lease back
    assert grace > STOP_SECONDS + UNDO_SECONDS + 3 * 6.0 + CLEAR_SECONDS + 3 * 6.0 + 2 * Timing().renew_deadline / 2


def test_the_rights_are_those_that_the_program_asks_for(objects: list[Object]) -> None:
    """`doctor`'s own list, which is more than a dry run is granted."""
    wanted = {
        (each.verb, f"{'/'.join(filter(None, (each.resource, each.subresource)))}.{each.group}".rstrip("."), each.name)
        for each in needed_permissions(
            lease_namespace="rebalancer", lease_name=Settings().lease_name, taints_nodes=True, daemon=True
        )
    }
    if is_dry(objects):
        wanted -= {("create", "pods/eviction", ""), ("get", "nodes", ""), ("patch", "nodes", "")}
    granted = {
        tuple(right)
        for role in ("ClusterRole", "Role")
        for right in rights(find(objects, role))
        if not right.resource.endswith("metrics.k8s.io")
    }
    assert granted == wanted


def test_the_lease_is_granted_by_name_where_that_can_be(objects: list[Object]) -> None:
    for right in rights(find(objects, "Role")):
        assert right.name == ("" if right.verb == "create" else Settings.model_fields["lease_name"].default)


def test_roles_are_bound_to_our_account_alone(objects: list[Object]) -> None:
    account = find(objects, "ServiceAccount")["metadata"]
    wanted = [{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}]
    for role, binding in (("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")):
        found = find(objects, binding)
        assert found["subjects"] == wanted
        assert (found["roleRef"]["kind"], found["roleRef"]["name"]) == (role, find(objects, role)["metadata"]["name"])
    assert pod_spec(objects)["serviceAccountName"] == account["name"]


def test_the_admission_policy_names_our_account_and_our_taint(objects: list[Object]) -> None:
    if "ValidatingAdmissionPolicy" not in kinds(objects):
        return
    account, policy = find(objects, "ServiceAccount")["metadata"], find(objects, "ValidatingAdmissionPolicy")
    (condition,) = policy["spec"]["matchConditions"]
    assert f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"' in condition["expression"]
    taints: list[dict[str, Any]] = [each for each in policy["spec"]["variables"] if "taints" in each["name"].lower()]
    assert taints
    assert all(f'"{SOFT_TAINT}"' in each["expression"] for each in taints)
    assert find(objects, "ValidatingAdmissionPolicyBinding")["spec"] == {
        "policyName": policy["metadata"]["name"],
        "validationActions": ["Deny"],
    }


def test_the_network_policy_is_about_our_pods(objects: list[Object]) -> None:
    if "NetworkPolicy" in kinds(objects):
        spec = find(objects, "NetworkPolicy")["spec"]
        assert spec["podSelector"] == find(objects, "Deployment")["spec"]["selector"]
        assert set(spec["policyTypes"]) == {"Ingress", "Egress"}


def test_an_overlay_of_ones_own_replaces_policy_and_image(tmp_path: Path) -> None:
    """As the base's first lines say."""
    generator = {"name": "rebalancer-policy", "namespace": "rebalancer", "behavior": "replace"}
    objects = overlay_with(
        tmp_path,
        resources=["../sqlite"],
        components=[],
        configMapGenerator=[{**generator, "literals": ["policy.yaml=cluster: mine"]}],
        images=[{"name": "rebalancer", "newName": "images.example/rebalancer", "newTag": "9"}],
    )
    assert policy_text(objects) == "cluster: mine"
    (held,) = [each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"]
    volumes = {each["name"]: each for each in pod_spec(objects)["volumes"]}
    assert volumes["config"]["configMap"]["name"] == held
    assert {each["image"] for each in containers(objects)} == {"images.example/rebalancer:9"}
    # kustomize would rename what stands in resourceNames, were it a ConfigMap's name
    assert {right.name for right in rights(find(objects, "Role"))} == {"", "rebalancer"}
