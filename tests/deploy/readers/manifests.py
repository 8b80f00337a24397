"""The manifests as helm and kubectl render them, and what tests ask about them."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.deploy.programs import has_helm, helm, kubectl, run

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "rebalancer"
KUSTOMIZE = DEPLOY / "kustomize"
OVERLAYS = ("dry-run", "sqlite", "postgres")
"""Each has a file of values of the same name, which makes the chart render the same."""
VARIANTS = sorted(path.stem for path in (Path(__file__).parents[1] / "values").glob("*.yaml"))
RENDERED = VARIANTS if has_helm() else VARIANTS[:1]
"""Those that helm renders; without it one test that is skipped stands for them all."""
SECOND_SCHEDULER = DEPLOY / "second-scheduler"
NAMESPACE = "rebalancer"
OLDEST_KUBERNETES = "1.30.0"

Object = dict[str, Any]


class Right(NamedTuple):
    """One thing that a role grants."""

    verb: str
    resource: str
    """`pods/eviction`, `leases.coordination.k8s.io`"""
    name: str = ""
    """Of the one object that it is about; empty for all."""


def parse(text: str) -> list[Object]:
    """The objects of a stream of YAML documents; the caller may change them."""
    return copy.deepcopy(_parsed(text))


@cache
def _parsed(text: str) -> list[Object]:
    return [document for document in yaml.safe_load_all(text) if document]


def variant_file(variant: str) -> Path:
    """The values of a variant."""
    return Path(__file__).parents[1] / "values" / f"{variant}.yaml"


@cache
def chart_text(variant: str) -> str:
    """What helm renders; skips the test where there is no helm."""
    return run(
        helm(), "template", "rebalancer", CHART, "--namespace", NAMESPACE,
        "--kube-version", OLDEST_KUBERNETES, "--values", variant_file(variant),
    )  # fmt: skip


def chart(variant: str) -> list[Object]:
    """The chart's objects; skips the test where there is no helm."""
    return parse(chart_text(variant))


@cache
def kustomized_text(folder: Path) -> str:
    """What kubectl renders; skips the test where there is no kubectl."""
    return run(kubectl(), "kustomize", folder)


def kustomized(folder: Path) -> list[Object]:
    """An overlay's objects; skips the test where there is no kubectl."""
    return parse(kustomized_text(folder))


def overlay(name: str) -> list[Object]:
    """The objects of one of our overlays; skips the test where there is no kubectl."""
    return kustomized(KUSTOMIZE / "overlays" / name)


def overlay_with(folder: Path, *, resources: Sequence[str], components: Sequence[str], **more: Any) -> list[Object]:
    """An overlay as a user writes one, in a copy of ours."""
    copy = folder / "kustomize"
    for path in KUSTOMIZE.rglob("*.yaml"):
        target = copy / path.relative_to(KUSTOMIZE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    mine = copy / "overlays" / "mine"
    mine.mkdir()
    document = {"resources": list(resources), "components": list(components), **more}
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return parse(run(kubectl(), "kustomize", mine))


def find(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind (and name); without a name those of Helm's hooks don't count."""
    (found,) = [
        each
        for each in objects
        if each["kind"] == kind and (each["metadata"]["name"] == name if name else not of_hook(each))
    ]
    return found


def of_hook(each: Object) -> bool:
    """Whether it is there for one of Helm's hooks only."""
    return "helm.sh/hook" in each["metadata"].get("annotations", {})


def kinds(objects: Iterable[Object]) -> set[str]:
    """The kinds that are there."""
    return {each["kind"] for each in objects}


def pod_spec(objects: Iterable[Object]) -> Object:
    """Of the Deployment's pods."""
    return dict(find(objects, "Deployment")["spec"]["template"]["spec"])


def container(objects: Iterable[Object]) -> Object:
    """The daemon's."""
    (found,) = pod_spec(objects)["containers"]
    return dict(found)


def environment(of: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value, or where it comes from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in of.get("env", ())}


def policy_text(objects: Iterable[Object]) -> str:
    """The policy file that the ConfigMap holds."""
    (found,) = [each for each in objects if each["kind"] == "ConfigMap" and "policy.yaml" in each["data"]]
    return str(found["data"]["policy.yaml"])


def rights(role: Object) -> set[Right]:
    """What a Role or ClusterRole grants, one thing each."""
    return {
        Right(verb, f"{resource}.{group}" if group else resource, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
