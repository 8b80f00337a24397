"""The helm chart, rendered for every file of values. Skipped without helm, unlike test_values.py."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import rebalancer
from tests.deploy.programs import helm, run
from tests.deploy.readers.manifests import (
    CHART,
    KUSTOMIZE,
    NAMESPACE,
    OLDEST_KUBERNETES,
    OVERLAYS,
    RENDERED,
    Object,
    Right,
    chart,
    container,
    environment,
    find,
    kinds,
    overlay,
    overlay_with,
    parse,
    pod_spec,
    policy_text,
    rights,
    variant_file,
)
from tests.deploy.test_prometheus_rules import ALERTS

GIVEN = ("--kube-version", OLDEST_KUBERNETES, "--values", str(CHART / "ci" / "default-values.yaml"))


def rendered(*flags: str, release: str = "rebalancer", namespace: str = NAMESPACE) -> list[Object]:
    return parse(run(helm(), "template", release, CHART, "--namespace", namespace, *GIVEN, *flags))


def refused(*flags: str) -> str:
    """What helm says of values that it doesn't take."""
    done = subprocess.run(
        [helm(), "template", "rebalancer", str(CHART), *GIVEN, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return done.stderr


@pytest.mark.parametrize("variant", RENDERED)
def test_helm_lint_finds_nothing(variant: str) -> None:
    run(helm(), "lint", CHART, "--strict", "--kube-version", OLDEST_KUBERNETES, "--values", variant_file(variant))


def test_the_charts_version_of_the_app_is_the_programs() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == rebalancer.__version__


def test_the_policy_is_passed_on_as_it_was_written() -> None:
    given = yaml.safe_load(variant_file("everything").read_text())
    assert policy_text(chart("everything")).strip() == given["policy"].strip()
    held = find(chart("everything"), "ConfigMap", "rebalancer-policy")["data"]["scheduler.yaml"]
    assert held.strip() == given["schedulerConfiguration"].strip()


@pytest.mark.parametrize("form", ["a file", "a map"])
def test_a_policy_is_taken_without_a_warning(form: str, tmp_path: Path) -> None:
    file, values = CHART.parents[2] / "policies" / "conservative.yaml", tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"policy": yaml.safe_load(file.read_text())}))
    flags = ["--values", str(values)] if form == "a map" else ["--set-file", f"policy={file}"]
    image = ["--set", "image.repository=registry.example/rebalancer", "--kube-version", OLDEST_KUBERNETES]
    command = [helm(), "template", "rebalancer", str(CHART), *image, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- the overlays are the same


def essential(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """(kind, name) -> the object, without what only helm or only kustomize writes."""
    out = {}
    for each in objects:
        metadata = each["metadata"]
        if "helm.sh/hook" in metadata.pop("annotations", {}):
            continue
        if each["kind"] == "ConfigMap":
            metadata["name"] = _without_hash(metadata["name"])
            each["data"] = {name: text.strip() for name, text in each["data"].items()}
        for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            metadata.get("labels", {}).pop(label, None)
        if each["kind"] == "Deployment":
            template = each["spec"]["template"]
            template["metadata"].pop("annotations", None)
            for volume in template["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = _without_hash(volume["configMap"]["name"])
            for part in (*template["spec"]["containers"], *template["spec"]["initContainers"]):
                for field in ("env", "volumeMounts"):
                    part[field] = sorted(part.get(field, ()), key=lambda one: str(one["name"]))
            template["spec"]["volumes"].sort(key=lambda one: str(one["name"]))
        if each["kind"] in ("Role", "ClusterRole"):
            each["rules"] = sorted(rights(each))
        out[each["kind"], metadata["name"]] = each
    return out


def _without_hash(name: str) -> str:
    """A ConfigMap's name without what kustomize puts behind it."""
    return re.sub(r"-[0-9a-z]{10}$", "", name)


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_what_the_chart_renders(name: str) -> None:
    ours = essential(overlay(name))
    namespace = ours.pop(("Namespace", NAMESPACE))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert ours == essential(chart(name))


@pytest.mark.parametrize(("component", "variant"), [("webhook", "webhook"), ("monitoring", "monitoring")])
def test_a_component_is_what_the_chart_renders(component: str, variant: str, tmp_path: Path) -> None:
    base = "../sqlite" if component == "webhook" else "../dry-run"
    ours = essential(overlay_with(tmp_path, resources=[base], components=[f"../../components/{component}"]))
    del ours["Namespace", NAMESPACE]
    wanted = essential(chart(variant))
    wanted.pop(("ConfigMap", "rebalancer-dashboard"), None)
    assert ours.keys() == wanted.keys()
    for key, each in ours.items():
        if key[0] in ("ServiceMonitor", "PrometheusRule"):
            assert each["spec"] == wanted[key]["spec"]
        else:
            assert each == wanted[key]


def test_the_overlays_policy_is_the_charts() -> None:
    assert (KUSTOMIZE / "base" / "policy.yaml").read_bytes() == (CHART / "files" / "policy.yaml").read_bytes()


# ---- what values do


def test_values_that_contradict_each_other_are_refused_with_a_reason() -> None:
    assert re.search(r"[/ ]replicas\b", refused("--set", "replicas=2"))  # versions of Helm write paths differently
    rules = "--set=monitoring.prometheusRule.enabled=true", "--set=monitoring.prometheusRule.hotNodes.target=75"
    assert "expected target below high" in refused(*rules)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c", "not YAML"),
        ("kind: RebalancerPolicy", "policy.cluster: missing"),
        ("cluster: [a]", "policy.cluster: expected string"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(text)
    assert said in refused("--set-file", f"policy={tmp_path / 'policy.yaml'}")


def test_a_changed_policy_changes_the_pods_and_nothing_else_does() -> None:
    def checksum(*flags: str) -> str:
        found = find(rendered(*flags), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return str(found["checksum/config"])

    assert checksum() == checksum("--set", "dryRun=false")
    assert checksum() != checksum("--values", str(variant_file("metrics-server")))
    assert checksum() != checksum("--set", "schedulerConfiguration=kind: KubeSchedulerConfiguration")


def test_another_release_in_another_namespace_has_names_of_its_own_everywhere() -> None:
    objects = rendered("--set", "dryRun=false", release="blue", namespace="ops")
    assert all(each["metadata"]["name"].startswith("blue-rebalancer") for each in objects)
    clusterwide = {"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert {each["kind"] for each in objects if each["metadata"].get("namespace") != "ops"} == clusterwide
    (condition,) = find(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:ops:blue-rebalancer"'
    for binding in (find(objects, "ClusterRoleBinding"), find(objects, "RoleBinding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "blue-rebalancer", "namespace": "ops"}]
    assert pod_spec(objects)["serviceAccountName"] == "blue-rebalancer"


def test_metrics_server_may_be_read_only_where_the_policy_reads_it() -> None:
    extra = {Right("list", f"{resource}.metrics.k8s.io") for resource in ("nodes", "pods")}
    with_it, without = (rights(find(chart(name), "ClusterRole")) for name in ("metrics-server", "sqlite"))
    assert with_it - without == extra
    assert without - with_it == set()
    ports = [
        port["port"]
        for rule in find(chart("metrics-server"), "NetworkPolicy")["spec"]["egress"]
        for port in rule["ports"]
    ]
    assert 9090 not in ports


def test_credentials_come_from_the_secrets_that_are_named() -> None:
    objects = chart("basic-auth-and-tls")
    env = environment(container(objects))
    assert env["REBALANCER_BASIC_AUTH_FILE"] == "/run/rebalancer/basic-auth/userpassword"
    assert "REBALANCER_BEARER_TOKEN_FILE" not in env
    volumes = {each["name"]: each for each in pod_spec(objects)["volumes"]}
    assert volumes["basic-auth"]["secret"]["items"] == [{"key": "login", "path": "userpassword"}]
    assert (env["REBALANCER_TLS_CERT_FILE"], env["REBALANCER_TLS_KEY_FILE"]) == (
        "/run/rebalancer/tls/tls.crt",
        "/run/rebalancer/tls/tls.key",
    )
    (endpoint,) = find(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}


def test_the_databases_url_comes_from_its_secret_for_daemon_and_migration() -> None:
    wanted = {"secretKeyRef": {"name": "pg", "key": "uri"}}
    objects = chart("closed-network")
    (migration,) = pod_spec(objects)["initContainers"]
    assert (
        environment(container(objects))["REBALANCER_DATABASE"]
        == environment(migration)["REBALANCER_DATABASE"]
        == wanted
    )


def test_nobody_may_ask_where_nobody_is_named() -> None:
    assert find(chart("closed-network"), "NetworkPolicy")["spec"]["ingress"] == []


def test_every_other_value_arrives() -> None:
    objects, given = chart("everything"), yaml.safe_load(variant_file("everything").read_text())
    spec, daemon = pod_spec(objects), container(objects)
    assert kinds(objects).isdisjoint({"NetworkPolicy", "ValidatingAdmissionPolicy", "PersistentVolumeClaim"})
    image = "images.example/rebalancer@" + given["image"]["digest"]
    assert {daemon["image"], spec["initContainers"][0]["image"]} == {image}
    assert daemon["imagePullPolicy"] == "Always"
    assert daemon["resources"] == given["resources"]
    same = (
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "affinity",
        "imagePullSecrets",
        "topologySpreadConstraints",
        "terminationGracePeriodSeconds",
    )
    for name in same:
        assert spec[name] == given[name], name
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == "1234"
    assert volumes["bearer-token"]["secret"]["secretName"] == "5678"
    assert volumes["basic-auth"]["secret"]["secretName"] == "people"
    assert volumes["prometheus"]["secret"]["secretName"] == "prometheus-read"
    assert volumes["proxy-ca"] == given["extraVolumes"][0]
    for each in (daemon, spec["initContainers"][0]):
        assert given["extraVolumeMounts"][0] in each["volumeMounts"]
        assert environment(each)["TZ"] == "UTC"
    assert daemon["args"] == ["run", *given["extraArgs"]]
    assert environment(daemon)["REBALANCER_LOG_LEVEL"] == "debug"
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert given[name].items() < daemon[name].items()
    for each in objects:
        assert each["metadata"]["labels"]["example.com/cost"] == "platform", each["kind"]
    assert volumes["notifications"]["secret"]["secretName"] == "slack"
    template = find(objects, "Deployment")["spec"]["template"]["metadata"]
    assert template["labels"]["example.com/cost"] == "platform"
    assert template["annotations"]["example.com/team"] == "platform"
    assert template["labels"]["example.com/tier"] == "ops"
    assert find(objects, "ServiceAccount")["metadata"]["annotations"] == given["serviceAccount"]["annotations"]
    service = find(objects, "Service")
    assert service["metadata"]["annotations"] == given["service"]["annotations"]
    assert (service["spec"]["type"], service["spec"]["ports"][0]["port"]) == ("NodePort", 80)
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert find(objects, kind)["metadata"]["labels"]["release"] == "prometheus"
    assert find(objects, "ConfigMap", "rebalancer-dashboard")["metadata"]["labels"]["grafana_dashboard"] == "true"
    claim = find(chart("other-volume"), "PersistentVolumeClaim")["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "20Gi")


def test_the_dashboard_is_the_programs_default_until_it_is_set() -> None:
    assert "REBALANCER_DASHBOARD" not in environment(container(chart("sqlite")))
    assert environment(container(chart("everything")))["REBALANCER_DASHBOARD"] == "open"
    assert environment(container(rendered("--set", "dashboard=off")))["REBALANCER_DASHBOARD"] == "off"
    assert re.search(r"[/ ]dashboard\b", refused("--set", "dashboard=false"))


def alerts(variant: str) -> dict[str, Object]:
    groups = find(chart(variant), "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_every_alert_links_its_section_of_the_runbook_where_that_can_be_read() -> None:
    page = "https://code.example/rebalancer/blob/main/docs/operations/runbook.md"
    links = {name: alert["annotations"].get("runbook_url") for name, alert in alerts("everything").items()}
    assert links == {name: f"{page}#{name.lower()}" for name in ALERTS}
    # the rest of the annotations is what it is without
    for name, alert in alerts("monitoring").items():
        assert "runbook_url" not in alert["annotations"]
        if name != "NodeCPUHigh":
            linked = {"runbook_url": links[name], **alert["annotations"]}
            assert alerts("everything")[name] == {**alert, "annotations": linked}


def test_the_alerts_thresholds_are_those_of_the_values() -> None:
    (alert,) = [
        rule
        for group in find(chart("everything"), "PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "NodeCPUHigh"
    ]
    assert alert["expr"].endswith("> 85")
    assert alert["for"] == "10m"
    marks = {name: value for name, value in alert["annotations"].items() if name.startswith("rebalancer_")}
    assert marks == {"rebalancer_high": "85", "rebalancer_target": "72.5"}
