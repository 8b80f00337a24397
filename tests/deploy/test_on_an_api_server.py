"""What a real API server says of the manifests, and what it lets our account do with nodes."""

import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.programs import helm, run
from tests.deploy.readers.manifests import (
    CHART,
    KUSTOMIZE,
    NAMESPACE,
    OVERLAYS,
    RENDERED,
    SECOND_SCHEDULER,
    Object,
    Right,
    chart,
    find,
    kustomized,
    overlay,
    overlay_with,
    parse,
    rights,
    variant_file,
)
from tests.deploy.servers import Cluster, helm_environment, monitoring_crds
from tests.deploy.test_chart import rendered
from tests.real.servers.api_server import ApiServer, api_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

STEER = {"key": "rebalancer.dev/steer", "value": "hot", "effect": "PreferNoSchedule"}
DEDICATED = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with api_server() as server:
        made = Cluster.of(server, tmp_path_factory.mktemp("cluster"))
        made.apply(monitoring_crds())
        made.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        yield made


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Cluster:
    """With the overlay `sqlite` applied, but for its claim, which nobody here would bind."""
    cluster.apply(each for each in overlay("sqlite") if each["kind"] != "PersistentVolumeClaim")
    return cluster


def refusal(account: ApiServer, method: str, path: str, body: dict[str, Any] | None = None) -> str:
    """What the API server says against a request; empty when it does it."""
    try:
        account.call(method, path, body)
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
    return ""


# ---- schemas


SOURCES: dict[str, Callable[[], list[Object]]] = {
    **{f"overlay-{name}": lambda name=name: overlay(name) for name in OVERLAYS},  # type: ignore[misc]
    **{f"chart-{name}": lambda name=name: chart(name) for name in RENDERED},  # type: ignore[misc]
    "chart-cronjob": lambda: rendered("--set", "kind=CronJob"),
    "second-scheduler": lambda: kustomized(SECOND_SCHEDULER / "deployment"),
    "static-scheduler": lambda: [
        *parse((SECOND_SCHEDULER / "static-pods" / "rbac.yaml").read_text()),
        *parse((SECOND_SCHEDULER / "static-pods" / "crowd-scheduler.yaml").read_text()),
    ],
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_api_server_takes_every_object_and_every_field(source: str, installed: Cluster) -> None:
    objects = SOURCES[source]()
    said = installed.apply(objects, "--dry-run=server").splitlines()
    assert len(said) == len(objects)


def test_a_field_that_kubernetes_doesnt_know_would_have_been_told(installed: Cluster) -> None:
    objects = overlay("sqlite")
    find(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["readOnlyRootFilesystem"] = True
    with pytest.raises(AssertionError, match="readOnlyRootFilesystem"):
        installed.apply(objects, "--dry-run=server")


@pytest.mark.parametrize("name", OVERLAYS)
def test_our_pods_pass_the_restricted_pod_security_standard(name: str, installed: Cluster) -> None:
    template = find(overlay(name), "Deployment")["spec"]["template"]

    def made(template: Object) -> str:
        pod = {"metadata": {"name": "ours", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
        return refusal(installed.server, "POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)

    assert made(template) == ""
    template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in made(template)


# ---- in and out


def left(cluster: Cluster, objects: list[Object]) -> set[str]:
    """Which of the objects are there, and not about to go."""
    found = cluster.get(objects)
    return {
        f"{each['kind']}/{each['metadata']['name']}" for each in found if "deletionTimestamp" not in each["metadata"]
    }


def test_an_overlay_with_all_components_is_applied_twice_and_deleted_without_a_rest(tmp_path: Path) -> None:
    everything = overlay_with(
        tmp_path, resources=["../postgres"], components=["../../components/webhook", "../../components/monitoring"]
    )
    # of its own: a namespace that is deleted takes nothing new
    with api_server() as server:
        cluster = Cluster.of(server, tmp_path)
        cluster.apply(monitoring_crds())
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        cluster.apply(everything)
        before = left(cluster, everything)
        assert len(before) == len(everything)
        cluster.apply(everything)
        cluster.delete(everything)
        assert left(cluster, everything) == set()


def test_helm_installs_switches_on_and_uninstalls(cluster: Cluster, tmp_path: Path) -> None:
    env, release = helm_environment(cluster, tmp_path), ("blue", "--namespace", "ops")

    def said(verb: str, *flags: str) -> str:
        return run(helm(), verb, *release, *flags, env=env)

    notes = said("install", str(CHART), "--create-namespace", "--values", str(variant_file("dry-run")))
    assert 'cluster "my-cluster"' in notes
    assert "evicts nothing" in notes
    assert "The webhook is closed" in notes
    assert "delete both, or neither" in notes
    dry = rights(yaml.safe_load(cluster.kubectl("get", "clusterrole", "blue-rebalancer", "-o", "yaml")))
    notes = said("upgrade", str(CHART), "--reuse-values", "--set", "dryRun=false,webhook.bearerToken.secretName=token")
    assert "and evicts" in notes
    assert "closed" not in notes
    live = rights(yaml.safe_load(cluster.kubectl("get", "clusterrole", "blue-rebalancer", "-o", "yaml")))
    assert live - dry == {Right("create", "pods/eviction"), Right("get", "nodes"), Right("patch", "nodes")}
    for before in ("pre-upgrade", None):  # to dry run, and once more
        said("upgrade", str(CHART), "--reuse-values", "--set", "dryRun=true", "--no-hooks")  # nothing runs pods here
        hooks = {each["kind"]: each for each in parse(run(helm(), "get", "hooks", *release, env=env))}
        found = hooks["Job"]["metadata"]["annotations"]["helm.sh/hook"] if "Job" in hooks else None
        assert found == before
    said("upgrade", str(CHART), "--reuse-values", "--set", "dryRun=false", "--no-hooks")
    objects = [
        {**each, "metadata": {**each["metadata"]}} for each in parse(run(helm(), "get", "manifest", *release, env=env))
    ]
    said("uninstall", "--no-hooks")  # nothing runs pods here
    assert left(cluster, objects) == {"PersistentVolumeClaim/blue-rebalancer"}


# ---- least power over nodes


Try = Callable[[dict[str, Any]], str]


@pytest.fixture(scope="module")
def patch(installed: Cluster) -> Try:
    """Patch a node as our account would; the API server's message, empty when it did it."""
    body = {
        "metadata": {"name": "node-1", "labels": {"pool": "a"}, "annotations": {"note": "mine"}},
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "taints": [DEDICATED]},
    }
    installed.server.call("POST", "/api/v1/nodes", body)
    ours = installed.account(NAMESPACE, "rebalancer")

    def attempt(change: dict[str, Any]) -> str:
        return attempted(ours, "node-1", change)

    forbidden = {"metadata": {"labels": {"probe": "x"}}}
    until = time.monotonic() + PATIENCE_SECONDS
    while not attempt(forbidden):  # until the API server has taken the policy up
        assert time.monotonic() < until, "the policy is not in force"
        installed.server.call("PATCH", "/api/v1/nodes/node-1", {"metadata": {"labels": {"probe": None}}})
        time.sleep(0.2)
    return attempt


def attempted(account: ApiServer, node: str, change: dict[str, Any]) -> str:
    return refusal(account, "PATCH", f"/api/v1/nodes/{node}", change)


def test_our_account_may_put_its_taint_change_it_and_take_it_off(patch: Try, cluster: Cluster) -> None:
    for value in ("hot", "no-room"):
        assert patch({"spec": {"taints": [DEDICATED, {**STEER, "value": value}]}}) == ""
    assert cluster.server.call("GET", "/api/v1/nodes/node-1")["spec"]["taints"] == [
        DEDICATED,
        {**STEER, "value": "no-room"},
    ]
    assert patch({"spec": {"taints": [{**STEER, "timeAdded": "2026-01-01T00:00:00Z"}, DEDICATED]}}) == ""
    assert patch({"spec": {"taints": [DEDICATED]}}) == ""


def marked(value: str) -> dict[str, Any]:
    return {"taints": [DEDICATED, {**STEER, "value": value}]}


CORDONED = {"unschedulable": True}
FREE = {"unschedulable": None}
CLEARED = {"taints": [DEDICATED]}


def set_up(cluster: Cluster, name: str, spec: dict[str, Any]) -> None:
    """Somebody else makes node-1 so."""
    cluster.server.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {**CLEARED, **FREE, **spec}})


@pytest.mark.parametrize("value", ["draining", "maintenance"])
def test_our_account_may_cordon_a_node_with_its_mark_and_lift_that_again(
    value: str, patch: Try, cluster: Cluster
) -> None:
    set_up(cluster, "node-1", {})
    assert patch({"spec": marked(value) | CORDONED}) == ""
    assert patch({"spec": marked("maintenance")}) == ""
    assert patch({"spec": CLEARED | FREE}) == ""
    assert patch({"spec": marked(value) | CORDONED}) == ""
    # to a soft taint
    assert patch({"spec": marked("hot") | FREE}) == ""
    # somebody uncordoned it by hand and left the mark
    set_up(cluster, "node-1", marked(value))
    assert patch({"spec": CORDONED}) == ""


@pytest.mark.parametrize(
    ("before", "change", "said"),
    [
        ({}, CORDONED, "cordon a node only with"),
        ({}, marked("hot") | CORDONED, "cordon a node only with"),
        (marked("hot"), CORDONED, "cordon a node only with"),
        (CORDONED, FREE, "uncordon only a node that it marked"),
        (marked("hot") | CORDONED, CLEARED | FREE, "uncordon only a node that it marked"),
        (marked("draining") | CORDONED, FREE, "and only with its mark"),
        # else it would lift somebody else's cordon in two steps
        (CORDONED, marked("draining"), "only when it cordons it"),
        (marked("hot") | CORDONED, marked("maintenance"), "only when it cordons it"),
        ({}, marked("maintenance"), "only when it cordons it"),
    ],
    ids=str,
)
def test_our_account_may_touch_no_cordon_but_its_own(
    before: dict[str, Any], change: dict[str, Any], said: str, patch: Try, cluster: Cluster
) -> None:
    set_up(cluster, "node-1", before)
    try:
        assert said in patch({"spec": change})
    finally:
        set_up(cluster, "node-1", {})


def test_a_node_that_people_cordoned_may_carry_the_soft_taint(patch: Try, cluster: Cluster) -> None:
    set_up(cluster, "node-1", CORDONED)
    assert patch({"spec": marked("hot")}) == ""
    assert patch({"spec": CLEARED}) == ""
    set_up(cluster, "node-1", {})


@pytest.mark.parametrize(
    "taints",
    [
        [],
        [STEER],
        [{**DEDICATED, "value": "other"}, STEER],
        [{**DEDICATED, "effect": "NoExecute"}],
        [DEDICATED, {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}],
        [DEDICATED, {"key": "example.com/soft", "effect": "PreferNoSchedule"}],
        [DEDICATED, {**STEER, "effect": "NoSchedule"}],
        [DEDICATED, {**STEER, "effect": "NoExecute"}],
    ],
    ids=str,
)
def test_our_account_may_touch_no_other_taint_and_none_of_its_own_that_is_hard(
    taints: list[dict[str, str]], patch: Try
) -> None:
    assert "only rebalancer.dev/steer with the effect PreferNoSchedule" in patch({"spec": {"taints": taints}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metadata": {"labels": {"pool": "b"}}}, "labels, annotations or other metadata"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "labels, annotations"),
        ({"metadata": {"labels": {"pool": None}}}, "labels, annotations"),
        ({"metadata": {"annotations": {"note": "theirs"}}}, "labels, annotations"),
        ({"metadata": {"annotations": None}}, "labels, annotations"),
        ({"metadata": {"finalizers": ["example.com/never"]}}, "labels, annotations"),
        ({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}]}}, "labels"),
        ({"spec": {"providerID": "cloud://other"}}, "only its own taint and unschedulable"),
        ({"spec": {"providerID": "cloud://other", "taints": [DEDICATED, STEER]}}, "only its own taint"),
    ],
    ids=str,
)
def test_our_account_may_change_nothing_else_of_a_node(change: dict[str, Any], said: str, patch: Try) -> None:
    assert said in patch(change)


def test_a_node_without_taints_can_be_tainted_and_cleared(patch: Try, installed: Cluster) -> None:
    installed.server.call("POST", "/api/v1/nodes", {"metadata": {"name": "bare"}})
    ours = installed.account(NAMESPACE, "rebalancer")
    assert attempted(ours, "bare", {"spec": {"taints": [STEER]}}) == ""
    assert attempted(ours, "bare", {"spec": {"taints": None}}) == ""


def test_somebody_elses_hard_taint_with_our_key_hinders_us_not(patch: Try, installed: Cluster) -> None:
    hard = {**STEER, "effect": "NoSchedule"}
    installed.server.call("POST", "/api/v1/nodes", {"metadata": {"name": "by-hand"}, "spec": {"taints": [hard]}})
    ours = installed.account(NAMESPACE, "rebalancer")
    assert attempted(ours, "by-hand", {"spec": {"taints": [hard, STEER]}}) == ""
    assert "only rebalancer.dev/steer" in attempted(ours, "by-hand", {"spec": {"taints": [STEER]}})


def test_others_may_change_nodes_as_ever(patch: Try, installed: Cluster) -> None:
    label = {"metadata": {"labels": {"pool": "c"}}, "spec": {"taints": []}}
    assert attempted(installed.server, "node-1", label) == ""
    assert attempted(installed.server, "node-1", {"spec": {"taints": [DEDICATED]}}) == ""


def test_our_account_may_do_nothing_that_the_role_doesnt_say(installed: Cluster) -> None:
    ours = installed.account(NAMESPACE, "rebalancer")
    for method, path in (
        ("DELETE", "/api/v1/nodes/node-1"),
        ("DELETE", "/api/v1/namespaces/default/pods/any"),
        ("GET", "/api/v1/secrets"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/rebalancer"),
        ("PATCH", "/api/v1/nodes/node-1/status"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
        ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/other"),
    ):
        assert "is forbidden" in refusal(ours, method, path, {} if method == "PATCH" else None), (method, path)


def test_the_chart_and_the_overlay_have_one_admission_policy() -> None:
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert find(overlay("sqlite"), kind)["spec"] == find(chart("sqlite"), kind)["spec"]
    assert (KUSTOMIZE / "base" / "admission.yaml").exists()
