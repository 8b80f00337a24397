"""Platforms: the values and objects in deploy/platforms render, and each does what its page promises."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.policy import load_policy
from tests.deploy.readers.manifests import ROOT, Object, container, find, of_hook, pod_spec, policy_text
from tests.deploy.test_chart import refused, rendered

PLATFORMS = ROOT / "deploy" / "platforms"


def values_of(name: str) -> dict[str, Any]:
    """The chart's values in a file."""
    (document,) = [
        each
        for each in yaml.safe_load_all((PLATFORMS / name).read_text())
        if each.get("kind") not in ("GitRepository",)
    ]
    match document.get("kind"):
        case "Application":
            return dict(document["spec"]["source"]["helm"]["valuesObject"])
        case "HelmRelease":
            return dict(document["spec"]["values"])
        case _:
            return dict(document)


def of_platform(name: str, folder: Path) -> list[Object]:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values_of(name)))
    return rendered("--values", str(path))


@pytest.mark.parametrize("name", sorted(path.name for path in PLATFORMS.iterdir()))
def test_the_chart_takes_the_values_of_a_platform_and_its_policy_is_valid(name: str, tmp_path: Path) -> None:
    found = load_policy(policy_text(of_platform(name, tmp_path)).encode(), source=name)
    assert found.cluster == "my-cluster"


def pods_of(objects: list[Object]) -> list[Object]:
    """Specs of all pods that the chart starts."""
    specs = {"Pod": lambda each: each["spec"], "Deployment": _template, "Job": _template}
    return [specs[each["kind"]](each) for each in objects if each["kind"] in specs]


def _template(each: Object) -> Object:
    spec: Object = each["spec"]["template"]["spec"]
    return spec


def test_on_openshift_no_pod_names_a_user_or_group(tmp_path: Path) -> None:
    """What the SCC restricted-v2 demands: ids of its own choice, and everything else as restricted as it is."""
    pods = pods_of(of_platform("openshift-values.yaml", tmp_path))
    assert pods
    for pod in pods:
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for each in (*pod.get("initContainers", ()), *pod["containers"]):
            assert not {"runAsUser", "runAsGroup"} & each["securityContext"].keys()


def test_on_openshift_the_files_of_the_policy_are_mounted_and_its_ports_are_open(tmp_path: Path) -> None:
    objects = of_platform("openshift-values.yaml", tmp_path)
    policy = yaml.safe_load(policy_text(objects))
    mounts = [each["mountPath"] for each in container(objects)["volumeMounts"]]
    assert str(Path(policy["usage"]["prometheus"]["caFile"]).parent) in mounts
    ports = {port["port"] for rule in find(objects, "NetworkPolicy")["spec"]["egress"] for port in rule["ports"]}
    assert {5353, 9091} <= ports


def test_our_pods_meet_the_restricted_pod_security_standard() -> None:
    """The fields of the standard, in the daemon's pod and in those of the hooks."""
    pods = pods_of(rendered("--set", "dryRun=false"))
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert {key for each in pod["volumes"] for key in each} <= {
            *("name", "configMap", "emptyDir", "secret", "projected", "persistentVolumeClaim")
        }
        for each in (*pod.get("initContainers", ()), *pod["containers"]):
            assert each["securityContext"]["allowPrivilegeEscalation"] is False
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert "hostPort" not in str(each.get("ports", ""))


# ---- before an uninstallation


def test_before_it_is_deleted_the_daemon_is_stopped_and_the_nodes_are_cleaned() -> None:
    objects = rendered("--set", "dryRun=false")
    hooks = [each for each in objects if of_hook(each) and each["metadata"]["name"].endswith("-cleanup")]
    assert {each["kind"] for each in hooks} == {"Job", "Role", "RoleBinding"}
    for each in hooks:
        notes = each["metadata"]["annotations"]
        assert (notes["helm.sh/hook"], notes["argocd.argoproj.io/hook"]) == ("pre-delete", "PreDelete")
        assert notes.get("helm.sh/hook-weight") == (None if each["kind"] == "Job" else "-1")
    job, role = (find(hooks, kind, "rebalancer-cleanup") for kind in ("Job", "Role"))
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["cleanup", "--deployment", find(objects, "Deployment")["metadata"]["name"]]
    assert pod["serviceAccountName"] == pod_spec(objects)["serviceAccountName"]
    assert job["spec"]["activeDeadlineSeconds"] > pod["terminationGracePeriodSeconds"] + 120
    (rule,) = role["rules"]
    assert rule == {
        "apiGroups": ["apps"],
        "resources": ["deployments/scale"],
        "resourceNames": ["rebalancer"],
        "verbs": ["patch"],
    }


@pytest.mark.parametrize(
    "values", ["dryRun=true", "dryRun=false,cleanup.enabled=false", "dryRun=false,kind=CronJob", "dryRun=false"]
)
def test_the_hook_is_there_only_where_a_daemon_evicts(values: str) -> None:
    names = {each["metadata"]["name"] for each in rendered("--set", values)}
    assert ("rebalancer-cleanup" in names) == (values == "dryRun=false")


def test_a_dry_run_needs_no_volume_and_a_daemon_that_evicts_does() -> None:
    objects = rendered("--set", "database.sqlite.persistent=false")
    assert not [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    (data,) = [each for each in pod_spec(objects)["volumes"] if each["name"] == "data"]
    assert data == {"name": "data", "emptyDir": {"sizeLimit": "5Gi"}}
    assert "database.sqlite.persistent: false needs dryRun" in refused(
        "--set", "database.sqlite.persistent=false,dryRun=false"
    )
