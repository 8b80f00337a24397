"""What the admission policy of replacement first lets the account change of a pod, on a real API server."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rebalancer.model.cluster.annotations import DELETION_COST, LOWEST_COST
from tests.deploy.readers.manifests import CHART, NAMESPACE, of_hook
from tests.deploy.servers import Cluster
from tests.deploy.test_chart import rendered
from tests.deploy.test_on_an_api_server import PATIENCE_SECONDS, refusal
from tests.real.servers.api_server import api_server

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONTAINER = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}
POD = "/api/v1/namespaces/shop/pods/web"
Patch = Callable[[dict[str, Any]], str]


@pytest.fixture(scope="module")
def patch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patch]:
    """Patch a pod as our account would; the API server's message, empty when it did it."""
    folder = tmp_path_factory.mktemp("pods")
    policy = (CHART / "files" / "policy.yaml").read_text() + "\nguards: {replacementFirst: [{namespaces: [shop]}]}\n"
    (folder / "policy.yaml").write_text(policy)
    objects = rendered(
        *("--set", "dryRun=false", "--set-file", f"policy={folder / 'policy.yaml'}"),
        release="rebalancer",
        namespace=NAMESPACE,
    )
    with api_server() as server:
        cluster = Cluster.of(server, folder)
        for name in (NAMESPACE, "shop"):
            server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        server.call("POST", "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "default"}})
        cluster.apply(each for each in objects if not of_hook(each) and each["kind"] != "PersistentVolumeClaim")
        metadata = {"name": "web", "labels": {"app": "web"}, "annotations": {"note": "theirs"}}
        server.call("POST", "/api/v1/namespaces/shop/pods", {"metadata": metadata, "spec": {"containers": [CONTAINER]}})
        ours = cluster.account(NAMESPACE, "rebalancer")
        until = time.monotonic() + PATIENCE_SECONDS
        while not refusal(ours, "PATCH", POD, {"metadata": {"labels": {"probe": "x"}}}):
            assert time.monotonic() < until, "the policy is not in force"
            server.call("PATCH", POD, {"metadata": {"labels": {"probe": None}}})
            time.sleep(0.2)
        yield lambda change: refusal(ours, "PATCH", POD, change)


def cost(value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {DELETION_COST: value}}}


def test_the_lowest_deletion_cost_may_be_given_and_taken_away(patch: Patch) -> None:
    assert patch(cost(LOWEST_COST)) == ""
    assert patch(cost(None)) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cost("100"), "the lowest deletion cost"),
        ({"metadata": {"annotations": {"note": "ours"}}}, "may change only the deletion cost"),
        ({"metadata": {"annotations": {"note": None}}}, "may change only the deletion cost"),
        ({"metadata": {"annotations": {"more": "x"}}}, "may change only the deletion cost"),
        ({"metadata": {"labels": {"app": "other"}}}, "labels or other metadata"),
        ({"metadata": {"labels": None}}, "labels or other metadata"),
        ({"metadata": {"finalizers": ["example.com/never"]}}, "labels or other metadata"),
        ({"spec": {"containers": [{**CONTAINER, "image": "web:2"}]}}, "may not change a pod's spec"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "may not change a pod's spec"),
    ],
    ids=str,
)
def test_our_account_may_change_nothing_else_of_a_pod(change: dict[str, Any], said: str, patch: Patch) -> None:
    assert said in patch(change)
