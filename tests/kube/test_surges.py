"""The calls of replacement first, as the API server gets them, and what its answers mean."""

from typing import Any

import pytest

from rebalancer.kube.actions.surges import KubeSurges, selector_text
from rebalancer.kube.client.client import AnswerLostError
from rebalancer.model.cluster.annotations import DELETION_COST, LOWEST_COST
from rebalancer.model.cluster.objects import LabelSelector, Requirement
from rebalancer.model.decisions.surges import DeploymentSeen, PodSeen, SurgeCall, SurgeView
from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.model.reason import Reason
from tests.cycle.test_surge_steps import a_surge
from tests.kube.builders import Json, a_pod, meta, owned_by
from tests.kube.fakes.api import Asked, Reply, Script, serving, status

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
POD = "/api/v1/namespaces/shop/pods/web-1"


def a_deployment(**spec: Any) -> Json:
    entry = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    other = {"manager": "helm", "fieldsV1": {"f:metadata": {}}}
    return {
        "kind": "Deployment",
        "metadata": {
            **meta("web", "shop"),
            "uid": "uid-web",
            "resourceVersion": "7",
            "generation": 3,
            "managedFields": [entry, other],
        },
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"observedGeneration": 3, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
    }


def pod(name: str, uid: str, *, owner: str = "rs-1", **fields: Any) -> Json:
    found = a_pod(name, **fields)
    found["metadata"] |= {"uid": uid, "resourceVersion": "5", **owned_by("ReplicaSet", owner)}
    return found


def answers(deployment: Json | None, first: Json | None, *others: Json) -> Script:
    def script(asked: Asked) -> Reply:
        found: Json | None = {"items": list(others)}
        if asked.path == DEPLOYMENT:
            found = deployment
        elif asked.path == POD:
            found = first
        return status(404) if found is None else Reply(body=found)

    return script


def test_a_view_has_the_deployment_the_pod_and_the_others_of_its_replicaset() -> None:
    first = pod("web-1", "uid-1")
    first["metadata"]["annotations"] = {DELETION_COST: "3"}
    others = [pod("web-2", "uid-2"), pod("web-3", "uid-3", owner="rs-2"), first]
    with serving(answers(a_deployment(strategy={"type": "Recreate"}, paused=True), first, *others)) as (api, client):
        view = KubeSurges(client=client).look(a_surge())
    assert view.deployment == DeploymentSeen("uid-web", "7", 1, True, True, True, 1, 1, 1, ("kubectl",))
    assert view.pod is not None
    assert (view.pod.name, view.pod.node, view.pod.cost) == ("web-1", "n1", "3")
    assert [each.name for each in view.others] == ["web-2"]
    assert api.asked[-1].query == {"labelSelector": "app=web"}


@pytest.mark.parametrize("uid", ["uid-web", "another"])
def test_an_object_of_another_uid_is_not_there(uid: str) -> None:
    deployment = a_deployment()
    deployment["metadata"]["uid"] = uid
    with serving(answers(deployment, pod("web-1", "another"))) as (_, client):
        view = KubeSurges(client=client).look(a_surge())
    assert (view.deployment is None) is (uid == "another")
    assert view.pod is None


VIEW = SurgeView(
    DeploymentSeen("uid-web", "7", 1, False, False, True, 1, 1, 1, ()),
    PodSeen("web-1", "5", "n1", True, False, None),
    (),
)


@pytest.mark.parametrize(
    ("call", "method", "path", "body"),
    [
        (SurgeCall.MARK, "PATCH", POD, {"annotations": {DELETION_COST: LOWEST_COST}, "resourceVersion": "5"}),
        (SurgeCall.UNMARK, "PATCH", POD, {"annotations": {DELETION_COST: None}, "resourceVersion": "5"}),
        (SurgeCall.GROW, "PUT", f"{DEPLOYMENT}/scale", 2),
        (SurgeCall.SHRINK, "PUT", f"{DEPLOYMENT}/scale", 1),
    ],
)
def test_each_call_has_what_was_read_as_its_precondition(call: SurgeCall, method: str, path: str, body: Any) -> None:
    kind = "Pod" if method == "PATCH" else "Scale"
    with serving(lambda asked: Reply(body={"kind": kind})) as (api, client):
        surges = KubeSurges(client=client, term=lambda: 4)
        assert surges.send(call, a_surge(), VIEW) is None
        assert surges.send(call, a_surge(), VIEW, dry_run=True) is None
    real, dry = api.asked
    assert (real.method, real.path) == (method, path)
    assert real.headers["User-Agent"].endswith("term/4")
    assert not real.query
    assert dry.query == {"dryRun": "All"}
    if method == "PATCH":
        assert real.body == {"metadata": {"uid": "uid-1", **body}}
        assert real.headers["Content-Type"] == "application/merge-patch+json"
    else:
        assert (real.body["metadata"]["uid"], real.body["metadata"]["resourceVersion"]) == ("uid-web", "7")
        assert real.body["spec"] == {"replicas": body}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (status(409, "the object has been modified"), Reason.SERVER_UID_CHANGED),
        (status(404, "not found"), Reason.SERVER_GONE),
        (status(403, "exceeded quota"), Reason.SURGE_FORBIDDEN),
        (status(422, "invalid"), Reason.SERVER_ERROR),
        (status(429, "too many requests"), Reason.SERVER_ERROR),
    ],
)
def test_an_answer_that_refuses_did_nothing(answer: Reply, code: Reason) -> None:
    with serving(lambda asked: answer) as (_, client):
        refusal = KubeSurges(client=client).send(SurgeCall.GROW, a_surge(), VIEW)
    assert refusal is not None
    assert refusal.code is code


@pytest.mark.parametrize(
    "answer",
    [status(500, "etcd"), status(503), Reply(status=200, body=b"<html>Sign in</html>"), Reply(status=403, body=b"no")],
    ids=["500", "503", "a login page", "a proxy's 403"],
)
def test_any_other_answer_leaves_it_open(answer: Reply) -> None:
    with serving(lambda asked: answer, attempts=1) as (_, client), pytest.raises(AnswerLostError):
        KubeSurges(client=client).send(SurgeCall.GROW, a_surge(), VIEW)


def test_pods_that_cannot_be_listed_are_an_error() -> None:
    def script(asked: Asked) -> Reply:
        bodies = {DEPLOYMENT: a_deployment(), POD: pod("web-1", "uid-1")}
        return Reply(body=bodies[asked.path]) if asked.path in bodies else status(403)

    with serving(script, attempts=1) as (_, client), pytest.raises(ConnectError, match="not allowed to list pods"):
        KubeSurges(client=client).look(a_surge())


def test_a_selector_is_written_as_the_api_server_reads_it() -> None:
    expressions = (
        Requirement(key="tier", operator="In", values=("a", "b")),
        Requirement(key="canary", operator="NotIn", values=("yes",)),
        Requirement(key="team", operator="Exists"),
        Requirement(key="old", operator="DoesNotExist"),
    )
    selector = LabelSelector(match_labels={"app": "web"}, match_expressions=expressions)
    assert selector_text(selector) == "app=web,tier in (a,b),canary notin (yes),team,!old"
    for empty in (None, LabelSelector()):
        with pytest.raises(UnsafeDataError):
            selector_text(empty)
