"""What people expect of any chart's values: names, parent charts, a policy that is checked, a CronJob."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rebalancer.model.cluster.annotations import DELETION_COST, LOWEST_COST
from rebalancer.policy import load_policy
from rebalancer.policy.schema.policy import policy_schema
from tests.deploy.programs import helm, run
from tests.deploy.readers.manifests import (
    CHART,
    OLDEST_KUBERNETES,
    ROOT,
    Object,
    Right,
    chart,
    container,
    environment,
    find,
    kinds,
    parse,
    pod_spec,
    policy_text,
    rights,
    variant_file,
)
from tests.deploy.test_chart import refused, rendered

# ---- a first installation


def test_without_an_image_helm_says_so_and_fails() -> None:
    command = [helm(), "template", "rebalancer", str(CHART), "--kube-version", OLDEST_KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "image.repository: set it to your image" in done.stderr


@pytest.mark.parametrize("values", ["", *sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))])
def test_the_chart_passes_lint_as_it_comes_and_with_the_values_for_ct(values: str) -> None:
    flags = ["--values", str(CHART / "ci" / values)] if values else []
    said = run(helm(), "lint", CHART, "--strict", "--kube-version", OLDEST_KUBERNETES, *flags)
    assert "[WARNING]" not in said
    if values:
        assert "[INFO]" not in said


def test_what_ct_lint_asks_of_a_chart_holds(tmp_path: Path) -> None:
    """Names, versions, maintainers, files that end with one newline, and a package that leaves out the values of ct."""
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert described["apiVersion"] == "v2"
    assert described["name"] == CHART.name
    assert described["maintainers"]
    for path in (CHART / "Chart.yaml", CHART / "values.yaml", *(CHART / "ci").glob("*.yaml")):
        assert not re.search(r"^[^#\n]*\S #", path.read_text(), re.M), f"{path}: two spaces before a comment"
    for path in CHART.rglob("*.yaml"):
        text = path.read_text()
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
        assert not [line for line in text.splitlines() if line != line.rstrip()], path
    run(helm(), "package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.iterdir()
    assert package.name == f"rebalancer-{described['version']}.tgz"
    listed = run("tar", "tzf", package).split()
    assert "rebalancer/README.md" in listed
    assert "rebalancer/files/policy.schema.json" in listed
    assert not [name for name in listed if "/ci/" in name]


def test_the_example_of_the_charts_page_is_accepted(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", (CHART / "README.md").read_text(), re.M | re.S)
    (tmp_path / "values.yaml").write_text(example)
    found = load_policy(policy_text(rendered("--values", str(tmp_path / "values.yaml"))).encode(), source="the page")
    assert found.cluster == "my-cluster"


def test_two_replicas_on_sqlite_are_refused_by_a_line_that_names_the_key() -> None:
    assert "replicas: more than one needs database.kind postgresql" in refused("--set", "replicas=2")
    assert "then" not in refused("--set", "replicas=2")


def test_the_image_of_a_mirror_keeps_tag_and_digest() -> None:
    mirror = rendered("--set", "image.registry=mirror.example/proxy,image.repository=org/rebalancer,image.tag=1.2")
    assert container(mirror)["image"] == "mirror.example/proxy/org/rebalancer:1.2"


@pytest.mark.parametrize(("dry_run", "command"), [(True, "plan"), (False, "doctor")])
def test_helm_test_runs_the_program_with_what_the_daemon_has(dry_run: bool, command: str) -> None:
    objects = rendered("--set", f"dryRun={str(dry_run).lower()},prometheusSecretName=prom,priorityClassName=high")
    pod, ours = find(objects, "Pod", "rebalancer-test"), pod_spec(objects)
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (made,), (daemon,) = pod["spec"]["containers"], ours["containers"]
    assert made["args"] == [command]
    for key in ("image", "env", "volumeMounts", "securityContext", "resources"):
        assert made[key] == daemon[key]
    assert "livenessProbe" not in made
    assert pod["spec"]["restartPolicy"] == "Never"
    for key in ("serviceAccountName", "securityContext", "priorityClassName"):
        assert pod["spec"][key] == ours[key]
    assert {each["name"] for each in pod["spec"]["volumes"]} == {each["name"] for each in ours["volumes"]}
    assert not [each for each in pod["spec"]["volumes"] if "persistentVolumeClaim" in each]
    for selector in (
        find(objects, "Service")["spec"]["selector"],
        find(objects, "Deployment")["spec"]["selector"]["matchLabels"],
    ):
        assert not selector.items() <= pod["metadata"]["labels"].items()


# ---- names, accounts and rights


def names(objects: list[Object]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def test_names_can_be_overridden_and_the_policy_still_knows_our_pods() -> None:
    part = rendered("--set", "nameOverride=mover", release="blue")
    whole = rendered("--set", "fullnameOverride=mover", release="blue")
    assert all(name.startswith("blue-mover") for name in names(part))
    assert all(name.startswith("mover") for name in names(whole))
    for objects in (part, whole):
        labels = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "rebalancer"
    assert all(len(name) <= 63 for name in names(rendered(release="r" * 53)))
    assert all(len(name) <= 63 for name in names(rendered("--set", f"nameOverride={'n' * 60}", release="r" * 53)))


SURGES = {Right("get", "deployments.apps"), Right("update", "deployments/scale.apps"), Right("patch", "pods")}


@pytest.mark.parametrize(
    ("rules", "dry_run"), [("[{namespaces: [shop]}]", False), ("[{namespaces: [shop]}]", True), ("[]", False)]
)
def test_the_rights_of_replacement_first_are_granted_only_where_the_policy_has_it(
    rules: str, dry_run: bool, tmp_path: Path
) -> None:
    policy = (CHART / "files" / "policy.yaml").read_text() + f"\nguards: {{replacementFirst: {rules}}}\n"
    (tmp_path / "policy.yaml").write_text(policy)
    objects = rendered("--set", f"dryRun={str(dry_run).lower()}", "--set-file", f"policy={tmp_path / 'policy.yaml'}")
    granted = rules != "[]" and not dry_run
    assert (rights(find(objects, "ClusterRole")) >= SURGES) is granted
    assert bool(rights(find(objects, "ClusterRole")) & SURGES) is granted
    policies = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    assert len(policies) == 1 + granted
    if granted:
        # a change of a pod by our account is of the one annotation, and to the value that the program writes
        (rule,) = policies[1]["spec"]["matchConstraints"]["resourceRules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["UPDATE"])
        assert policies[1]["spec"]["matchConditions"] == policies[0]["spec"]["matchConditions"]
        text = str(policies[1]["spec"])
        assert DELETION_COST in text
        assert f'== "{LOWEST_COST}"' in text


def test_a_service_account_that_is_there_is_used_everywhere() -> None:
    objects = rendered("--set", "serviceAccount.create=false,serviceAccount.name=theirs")
    assert "ServiceAccount" not in kinds(objects)
    assert pod_spec(objects)["serviceAccountName"] == "theirs"
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert [each["name"] for each in find(objects, kind)["subjects"]] == ["theirs"]
    (condition,) = find(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"].endswith(':theirs"')
    named = rendered("--set", "serviceAccount.name=ours")
    assert find(named, "ServiceAccount")["metadata"]["name"] == pod_spec(named)["serviceAccountName"] == "ours"
    assert "serviceAccount.name: set it" in refused("--set", "serviceAccount.create=false")


def test_roles_are_left_out_where_they_are_granted_by_hand() -> None:
    roles = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert kinds(rendered()) - kinds(rendered("--set", "rbac.create=false")) == roles


def test_an_ingress_leads_to_the_service() -> None:
    objects = chart("everything")
    ingress, service = find(objects, "Ingress"), find(objects, "Service")
    assert ingress["spec"]["ingressClassName"] == "nginx"
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "rebalancer.example"
    assert [(each["path"], each["pathType"]) for each in rule["http"]["paths"]] == [("/", "Prefix"), ("/api", "Exact")]
    for each in rule["http"]["paths"]:
        assert each["backend"]["service"]["name"] == service["metadata"]["name"]
        assert each["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert ingress["spec"]["tls"][0]["secretName"] == "rebalancer-example"
    assert "ingress.hosts: set a host" in refused("--set", "ingress.enabled=true")


def test_an_open_dashboard_answers_under_the_hosts_of_the_ingress() -> None:
    of = '{"host": "%s", "paths": [{"path": "/"}]}'
    hosts = f"ingress.hosts=[{of % 'a.example'}, {of % 'b.example'}]"
    host = ("--set", "ingress.enabled=true", "--set-json", hosts)
    container = pod_spec(rendered("--set", "dashboard=open", *host))["containers"][0]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["REBALANCER_DASHBOARD_HOSTS"] == "a.example,b.example"
    others = pod_spec(rendered(*host))["containers"][0]["env"]
    assert "REBALANCER_DASHBOARD_HOSTS" not in {each["name"] for each in others}


def test_a_disruption_budget_is_for_several_replicas_and_can_be_changed() -> None:
    two = ("--set", "replicas=2,database.kind=postgresql")
    assert "PodDisruptionBudget" not in kinds(rendered())
    assert find(rendered(*two), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    half = rendered(*two, "--set", "podDisruptionBudget.maxUnavailable=50%")
    assert find(half, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    assert "PodDisruptionBudget" not in kinds(rendered(*two, "--set", "podDisruptionBudget.enabled=false"))


# ---- a part of another chart


def test_a_parent_chart_switches_the_chart_on_and_off(tmp_path: Path) -> None:
    parent = tmp_path / "platform"
    (parent / "charts").mkdir(parents=True)
    (parent / "charts" / "rebalancer").symlink_to(CHART)
    dependency = {"name": "rebalancer", "version": "0.1.0", "condition": "rebalancer.enabled"}
    described = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(described))
    values = {"global": {"team": "sre"}, "rebalancer": yaml.safe_load(variant_file("metrics-server").read_text())}
    (parent / "values.yaml").write_text(yaml.safe_dump(values))

    def objects(*flags: str) -> list[Object]:
        return parse(run(helm(), "template", "prod", parent, "--kube-version", OLDEST_KUBERNETES, *flags))

    there = objects()
    assert find(there, "Deployment")["metadata"]["name"] == "prod-rebalancer"
    assert load_policy(policy_text(there).encode(), source="the ConfigMap").cluster == "small"
    assert objects("--set", "rebalancer.enabled=false") == []


# ---- the policy


POLICY = yaml.safe_load((CHART / "files" / "policy.yaml").read_text())


def refused_policy(folder: Path, *, as_file: bool, **changes: object) -> str:
    policy = {**POLICY, **changes}
    path = folder / "given.yaml"
    path.write_text(yaml.safe_dump(policy if as_file else {"policy": policy}))
    return refused(*(("--set-file", f"policy={path}") if as_file else ("--values", str(path))))


@pytest.mark.parametrize("as_file", [False, True], ids=["map", "file"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pool": []}, "policy.pool: unknown field; known here: alerts,"),
        ({"cluster": ""}, "policy.cluster: expected a name such as prod-eu-1: lower-case letters, digits, - and ."),
        ({"cluster": 7}, "policy.cluster: expected string, got 7"),
        ({"pools": []}, "policy.pools: expected at least 1"),
        ({"pools": [{"name": "all", "selector": {}, "thresholds": {"high": 170, "target": 60, "low": 50}}]},
         "policy.pools[0].thresholds.high: expected 100 or less, got 170"),
        ({"pools": [{"name": "all", "selector": {}, "thresholds": {"target": 60, "low": 50}}]},
         "policy.pools[0].thresholds.high: missing"),
        ({"strategies": [{"name": "LowNodeUtilisation"}]},
         "policy.strategies[0].name: expected LowNodeUtilization, HighNodeUtilization,"),
        ({"strategies": [{"name": "LowNodeUtilization", "args": {"source": "Cpu"}}]},
         'policy.strategies[0].args.source: expected CPU, Requests, got "Cpu"'),
        ({"limits": {"perCycle": 1.5}}, "policy.limits.perCycle: expected a whole number, got 1.5"),
        ({"limits": {"cluster": {"inFlight": "ten"}}},
         "policy.limits.cluster.inFlight: expected a whole number or a percentage such as 10%"),
        ({"guards": {"minAge": "5 minutes"}}, "policy.guards.minAge: expected a duration such as 90s, 5m, 1h30m or 8d"),
        ({"guards": {"minReplicas": -1}}, "policy.guards.minReplicas: expected 0 or more, got -1"),
        ({"guards": {"requireOptIn": "no"}}, 'policy.guards.requireOptIn: expected true or false, got "no"'),
        ({"usage": {"prometheus": {"url": "prometheus:9090"}}}, "policy.usage.prometheus.url: expected a URL such as"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_in_the_policy_is_refused_when_the_chart_is_rendered(
    change: dict[str, object], said: str, as_file: bool, tmp_path: Path
) -> None:
    message = refused_policy(tmp_path, as_file=as_file, **change)
    assert said in message
    assert len([line for line in message.splitlines() if line.startswith("policy.")]) == 1


def test_all_mistakes_come_together(tmp_path: Path) -> None:
    message = refused_policy(tmp_path, as_file=False, pool=[], limits={"perCycle": -1}, strategies=[{"name": "x"}])
    assert [line.split(":")[0] for line in message.splitlines() if line.startswith("policy.")] == [
        "policy.limits.perCycle",
        "policy.pool",
        "policy.strategies[0].name",
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "policies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_policy_is_accepted_as_a_file_and_as_a_map(path: Path, tmp_path: Path) -> None:
    wanted = load_policy(path.read_bytes(), source=path.name)
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"policy": yaml.safe_load(path.read_text())}))
    assert policy_text(rendered("--set-file", f"policy={path}")).strip() == path.read_text().strip()
    assert load_policy(policy_text(rendered("--values", str(values))).encode(), source="the map") == wanted


def test_a_map_keeps_large_numbers_and_switches(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    policy = {**POLICY, "guards": {"priorityBelow": 1000000000}}
    values.write_text(yaml.safe_dump({"policy": policy}) + "  forecast: {mode: Off}\n")
    found = load_policy(policy_text(rendered("--values", str(values))).encode(), source="the map")
    assert (found.guards.priority_below, found.forecast.mode) == (1000000000, "Off")


def test_the_chart_knows_every_keyword_of_the_policys_schema() -> None:
    """A keyword that the templates don't know would let mistakes through."""
    known = {
        "$defs", "$id", "$ref", "$schema", "additionalProperties", "anyOf", "const", "default", "description", "enum",
        "exclusiveMinimum", "format", "items", "maximum", "minItems", "minLength", "minimum", "oneOf", "pattern",
        "properties", "required", "title", "type",
    }  # fmt: skip

    def keywords(schema: object, *, names: bool = False) -> set[str]:
        if isinstance(schema, list):
            return {word for each in schema for word in keywords(each)}
        if not isinstance(schema, dict):
            return set()
        inner = {
            word
            for key, value in schema.items()
            if names or key not in ("default", "enum", "const")
            for word in keywords(value, names=not names and key in ("properties", "$defs"))
        }
        return inner if names else inner | schema.keys()

    assert keywords(policy_schema()) <= known


def test_alertmanager_is_reached_where_the_policy_notifies_it(tmp_path: Path) -> None:
    def ports(*receivers: dict[str, object]) -> set[int]:
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump({"policy": {**POLICY, "notifications": {"receivers": list(receivers)}}}))
        rules = find(rendered("--values", str(values)), "NetworkPolicy")["spec"]["egress"]
        return {port["port"] for rule in rules for port in rule["ports"]}

    slack = {"name": "chat", "slack": {"urlFile": "/run/rebalancer/notifications/url"}}
    assert ports(slack) == ports()
    assert ports(slack, {"name": "am", "alertmanager": {"url": "http://alertmanager:9093"}}) == ports() | {9093}


# ---- as a CronJob


def test_as_a_cronjob_one_cycle_runs_at_a_time_without_a_server() -> None:
    objects = rendered("--set", "kind=CronJob,cronJob.schedule=0 * * * *,cronJob.timeZone=Europe/Berlin")
    without = {"Deployment", "Service", "PodDisruptionBudget", "Ingress"}
    assert kinds(objects).isdisjoint(without)
    spec = find(objects, "CronJob")["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("0 * * * *", "Europe/Berlin", "Forbid")
    job = spec["jobTemplate"]["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 1800)
    pod = job["template"]["spec"]
    (one,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    assert one["args"] == ["run", "--once", "--dry-run"]
    assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & one.keys()
    assert "REBALANCER_LISTEN" not in environment(one)
    assert find(objects, "NetworkPolicy")["spec"]["ingress"] == []
    # else it is the daemon's pod
    daemon = container(rendered())
    assert {**daemon, "args": [], "env": []}.items() >= {**one, "args": [], "env": []}.items()
    assert pod["serviceAccountName"] == pod_spec(rendered())["serviceAccountName"]


def test_as_a_cronjob_there_are_no_alerts_about_the_daemons_metrics() -> None:
    on = "monitoring.prometheusRule.enabled=true,monitoring.serviceMonitor.enabled=true,ingress.enabled=true"
    objects = rendered("--set", f"kind=CronJob,{on}")
    assert kinds(objects).isdisjoint({"ServiceMonitor", "Ingress"})
    assert [group["name"] for group in find(objects, "PrometheusRule")["spec"]["groups"]] == ["rebalancer-usage"]
