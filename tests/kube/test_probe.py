import pytest
import yaml

from rebalancer.kube.client.permissions import Permission, can_i
from rebalancer.kube.probe import lease_holder, needed_permissions, rules
from rebalancer.model.errors import ConnectError, UnsafeDataError
from tests.kube.builders import Json
from tests.kube.fakes.api import Asked, Reply, serving, status

NOW = 1_795_230_012.4
"""12.4 seconds after the renewal below."""
RENEWED = "2026-11-21T03:00:00.000000Z"
PATH = "/apis/coordination.k8s.io/v1/namespaces/tools/leases/rebalancer"


def holder(spec: Json) -> str | None:
    def script(asked: Asked) -> Reply:
        return Reply(body={"metadata": {"name": "rebalancer"}, "spec": spec}) if asked.path == PATH else status(404)

    with serving(script) as (_, client):
        return lease_holder(client, "tools", "rebalancer", wall_time=lambda: NOW)


def test_the_holder_is_named_with_the_age_of_its_renewal() -> None:
    spec = {"holderIdentity": "pod-7", "leaseDurationSeconds": 15, "renewTime": RENEWED}
    assert holder(spec) == "pod-7, renewed 12 s ago"
    assert holder(spec | {"leaseDurationSeconds": 10}) == "pod-7, renewed 12 s ago (expired)"


def test_a_lease_that_was_let_go_has_no_holder() -> None:
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": RENEWED}
    assert holder(spec) == "no holder, renewed 12 s ago"
    assert holder({"holderIdentity": None, "renewTime": None}) == "no holder, never renewed"


def test_no_lease_is_none() -> None:
    with serving(lambda _: status(404, "not found")) as (_, client):
        assert lease_holder(client, "tools", "rebalancer") is None


def test_a_lease_that_can_not_be_read_is_an_error() -> None:
    with serving(lambda _: status(403, "no")) as (_, client), pytest.raises(ConnectError, match=r"get leases\.coord"):
        lease_holder(client, "tools", "rebalancer")
    with serving(lambda _: Reply(body=b"<html>")) as (_, client), pytest.raises(UnsafeDataError):
        lease_holder(client, "tools", "rebalancer")


def test_nodes_are_written_only_when_the_policy_steers() -> None:
    plain = {str(each) for each in needed_permissions(lease_namespace="tools")}
    steering = {str(each) for each in needed_permissions(lease_namespace="tools", taints_nodes=True)}
    assert steering - plain == {"get nodes", "patch nodes"}
    assert plain < steering


def test_watching_and_events_are_asked_for_only_by_the_daemon() -> None:
    plain = {str(each) for each in needed_permissions(lease_namespace="tools")}
    daemon = {str(each) for each in needed_permissions(lease_namespace="tools", daemon=True)}
    assert plain < daemon
    listed = {each.removeprefix("list ") for each in plain if each.startswith("list ")}
    assert daemon - plain == {f"watch {each}" for each in listed} | {
        "create events.events.k8s.io",
        "list events.events.k8s.io",
    }


def test_the_lease_is_asked_for_by_its_name_because_a_role_may_grant_no_other() -> None:
    asked = {str(each) for each in needed_permissions(lease_namespace="tools", lease_name="blue") if each.namespace}
    lease = "leases.coordination.k8s.io"
    assert asked == {f"get {lease} blue in tools", f"update {lease} blue in tools", f"create {lease} in tools"}
    with serving(lambda _: Reply(status=201, body={"status": {"allowed": True}})) as (api, client):
        for each in needed_permissions(lease_namespace="tools", lease_name="blue"):
            can_i(client, each)
        reviews = [one.body["spec"]["resourceAttributes"] for one in api.asked]
    assert [(one["verb"], one["name"]) for one in reviews if "name" in one] == [("get", "blue"), ("update", "blue")]


def test_what_is_missing_is_shown_as_the_rules_that_grant_it() -> None:
    needed = needed_permissions(lease_namespace="tools", lease_name="blue", taints_nodes=True, daemon=True)
    shown = dict(each.split(": ", 1) for each in rules(needed).split("; "))
    assert shown.keys() == {"ClusterRole", "Role in tools"}
    granted = {
        (verb, resource, group, name)
        for held in shown.values()
        for rule in yaml.safe_load(held)
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
        for name in rule.get("resourceNames", [""])
    }
    assert granted == {
        (each.verb, "/".join(filter(None, (each.resource, each.subresource))), each.group, each.name) for each in needed
    }


def test_one_rule_is_enough_for_what_is_granted_alike() -> None:
    missing = [Permission(verb="watch", group="apps", resource=each) for each in ("deployments", "statefulsets")]
    rule = '{apiGroups: ["apps"], resources: [deployments, statefulsets], verbs: [watch]}'
    assert rules(missing) == f"ClusterRole: [{rule}]"
