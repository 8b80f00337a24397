"""A DeschedulerPolicy is found in the manifests that carry it; one of another program is refused under its name."""

import json
import textwrap

import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy
from rebalancer.policy.descheduler.importer import import_policy
from rebalancer.policy.descheduler.manifests import only_policy_in, policies_in

PROFILES = """\
maxNoOfPodsToEvictTotal: 5
profiles:
  - name: main
    pluginConfig:
      - name: PodLifeTime
        args: {maxPodLifeTimeSeconds: 604800}
    plugins:
      deschedule: {enabled: [PodLifeTime]}
"""
POLICY = f"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{PROFILES}"
# the chart has a value named kind; what follows the policy is less indented
VALUES = (
    f"kind: CronJob\nreplicas: 1\ndeschedulerPolicy:\n{textwrap.indent(PROFILES, '  ')}# by default\nsuspend: false\n"
)
RELEASE = f"""\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: descheduler}}
spec:
  values:
{textwrap.indent(VALUES, "    ")}
"""
CONFIG_MAP = f"apiVersion: v1\nkind: ConfigMap\ndata:\n  policy.yaml: |\n{textwrap.indent(POLICY, '    ')}"
APPLICATION = f"""\
apiVersion: argoproj.io/v1alpha1
kind: Application
spec:
  source:
    helm:
      values: |
{textwrap.indent(VALUES, "        ")}
"""
KUBE_DESCHEDULER = """\
apiVersion: operator.openshift.io/v1
kind: KubeDescheduler
metadata: {name: cluster, namespace: openshift-kube-descheduler-operator}
spec: {deschedulingIntervalSeconds: 3600, profiles: [AffinityAndTaints]}
"""
DECKHOUSE = """\
apiVersion: deckhouse.io/v1alpha2
kind: Descheduler
metadata: {name: low}
spec: {strategies: {lowNodeUtilization: {enabled: true}}}
"""
KOORDINATOR = """\
apiVersion: v1
kind: ConfigMap
data:
  koord-descheduler-config: |
    apiVersion: descheduler/v1alpha2
    kind: DeschedulerConfiguration
    profiles: [{name: koord-descheduler, plugins: {balance: {enabled: [{name: LowNodeLoad}]}}}]
"""


def flow(text: str) -> str:
    return json.dumps(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (POLICY, "DeschedulerPolicy"),
        (flow(POLICY), "DeschedulerPolicy"),
        (f"kind: Namespace\napiVersion: v1\n---\n{POLICY}", "DeschedulerPolicy"),
        (CONFIG_MAP, "ConfigMap"),
        (flow(CONFIG_MAP), "ConfigMap"),
        (f"apiVersion: v1\nkind: List\nitems:\n- {textwrap.indent(CONFIG_MAP, '  ').strip()}\n", "ConfigMap"),
        (VALUES, "Helm values"),
        (flow(VALUES), "Helm values"),
        (VALUES.replace("deschedulerPolicy:", "deschedulerPolicy: &policy"), "Helm values"),
        (f"descheduler:\n{textwrap.indent(VALUES, '  ')}", "Helm values"),
        (RELEASE, "HelmRelease"),
        (APPLICATION, "Application"),
    ],
)
def test_the_policy_in_a_manifest_is_imported(text: str, form: str) -> None:
    found = only_policy_in(text.encode(), source="f.yaml")
    assert found.form == form
    made = import_policy(found.data, source="f.yaml")
    ours = load_policy(made.text.encode(), source="ours.yaml")
    assert [each.name for each in ours.strategies] == ["PodLifeTime"]
    assert ours.limits.per_cycle == 5


@pytest.mark.parametrize("text", [POLICY, CONFIG_MAP, VALUES, RELEASE, APPLICATION])
def test_mistakes_have_the_lines_of_the_manifest(text: str) -> None:
    text = text.replace("maxPodLifeTimeSeconds", "maxPodLifeTime")
    line = next(at for at, each in enumerate(text.splitlines(), 1) if "maxPodLifeTime" in each)
    with pytest.raises(
        ConfigError, match=rf"^f\.yaml:{line}: profiles\[0\]\.pluginConfig\[0\]\.args\.maxPodLifeTime: "
    ):
        import_policy(only_policy_in(text.encode(), source="f.yaml").data, source="f.yaml")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (KUBE_DESCHEDULER, 1, "OpenShift's KubeDescheduler names profiles of its operator"),
        (KOORDINATOR, 5, "koordinator's DeschedulerConfiguration is not imported"),
        (DECKHOUSE, 1, "Deckhouse's Descheduler names strategies of its module"),
        ("deschedulerPolicy: {}\n", 1, "deschedulerPolicy is empty"),
        ("deschedulerPolicy: {nodeSelector: a}\n", 1, "deschedulerPolicy has no profiles, so those of the chart apply"),
        (VALUES.replace("main", "'{{ .Release.Name }}'"), 4, "deschedulerPolicy has expressions of a template"),
        (POLICY.replace("main", "{{NAME}}"), 1, "the policy has expressions of a template"),
        (CONFIG_MAP.replace("main", "'{{ NAME }}'"), 5, "the policy has expressions of a template"),
    ],
)
def test_another_form_is_refused_in_one_line_that_names_it(text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        only_policy_in(text.encode(), source="f.yaml")
    (answer,) = str(caught.value).splitlines()
    assert answer.startswith(f"f.yaml:{line}: {message}")


def test_values_for_an_old_chart_are_refused_as_v1alpha1() -> None:
    found = only_policy_in(f"deschedulerPolicyAPIVersion: descheduler/v1alpha1\n{VALUES}".encode(), source="f.yaml")
    with pytest.raises(ConfigError, match="got 'descheduler/v1alpha1'; write its strategies as plugins of a profile"):
        import_policy(found.data, source="f.yaml")


def test_values_with_strategies_are_refused_as_v1alpha1_in_one_line() -> None:
    """Old charts need no `deschedulerPolicyAPIVersion`."""
    text = "deschedulerPolicy: {strategies: {RemoveDuplicates: {enabled: true}}}\n"
    with pytest.raises(ConfigError) as caught:
        import_policy(only_policy_in(text.encode(), source="f.yaml").data, source="f.yaml")
    assert str(caught.value) == (
        "f.yaml:1: strategies: expected profiles of descheduler/v1alpha2, got strategies of descheduler/v1alpha1; "
        "write its strategies as plugins of a profile first"
    )


@pytest.mark.parametrize("text", [POLICY, VALUES, CONFIG_MAP])
def test_a_comment_makes_no_template(text: str) -> None:
    found = only_policy_in(text.replace("- name: main", "- name: main # {{ x }}").encode(), source="f.yaml")
    assert "strategies:\n  # profile main" in import_policy(found.data, source="f.yaml").text


def test_several_policies_of_a_file_are_refused_with_their_lines() -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml: expected one policy, got 2, at lines 1 and 12: split the file$"):
        only_policy_in(f"{POLICY}---\n{POLICY}".encode(), source="f.yaml")


@pytest.mark.parametrize("text", ["a: 1\n", "# descheduler\nreplicas: 1\n", "notes: |\n  the descheduler\n  {{ x\n"])
def test_files_without_a_policy_have_none(text: str) -> None:
    assert policies_in(text.encode(), source="f.yaml") == []


def test_a_definition_of_the_kind_is_no_policy() -> None:
    text = (
        "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nspec: {names: {kind: KubeDescheduler}}\n"
    )
    assert policies_in(text.encode(), source="f.yaml") == []


def test_aliases_are_followed_once() -> None:
    lines = ["a0: &a0 [descheduler]", *(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 30))]
    assert policies_in("\n".join(lines).encode(), source="f.yaml") == []
