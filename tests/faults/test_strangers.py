"""The objects that the fuzz draws are accepted by a real API server: statuses by its subresource."""

import random
import urllib.error
from collections.abc import Iterator

import pytest

from rebalancer.lab.objects import kinds
from rebalancer.lab.objects.kinds import Kind, Obj
from tests.e2e.servers import until
from tests.faults.scenarios.strangers import GIVEN, QUOTA_SPACE, SPACES, Strangers
from tests.real.servers.api_server import ApiServer, api_server

pytestmark = pytest.mark.real

OF_EACH_KIND = 25
CHANGED = ("labels", "annotations", "ownerReferences")


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    """With the strangers' namespaces."""
    with api_server() as server:
        for space in (*SPACES, QUOTA_SPACE):
            server.call("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        until(lambda: _has_system_priorities(server))
        yield server


def _has_system_priorities(server: ApiServer) -> bool:
    """They are made some time after the start."""
    found = server.call("GET", "/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
    return {each["metadata"]["name"] for each in found} >= {"system-node-critical", "system-cluster-critical"}


def path_of(kind: Kind, obj: Obj, *, name: bool) -> str:
    group = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    space = f"/namespaces/{obj['metadata']['namespace']}" if kind.namespaced else ""
    return f"{group}{space}/{kind.plural}" + (f"/{obj['metadata']['name']}" if name else "")


def refusal(server: ApiServer, strangers: Strangers, plural: str, obj: Obj) -> str:
    """What the API server has against it, or against a change of it; empty where it takes both."""
    kind = kinds.by_plural(plural)
    body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    own = path_of(kind, obj, name=True)
    try:
        made = server.call("POST", path_of(kind, obj, name=False), body)
        changed = strangers.changed(plural, made)
        for each in (obj, changed):
            if each is changed:
                kept = {field: value for field, value in made["metadata"].items() if field not in CHANGED}
                new = {field: value for field, value in changed["metadata"].items() if field in CHANGED}
                made = server.call("PUT", own, {**made, "metadata": kept | new})
            if "status" in each and "status" in kind.subresources:
                made = server.call("PUT", f"{own}/status", {**made, "status": each["status"]})
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()[:500]
    return ""


@pytest.mark.parametrize("plural", GIVEN)
def test_every_stranger_is_accepted(api: ApiServer, plural: str) -> None:
    strangers = Strangers(random.Random(plural), nodes=["warm-1"], uids=["a-uid"])
    refused = {}
    for _ in range(OF_EACH_KIND):
        obj = strangers.of(plural)
        if why := refusal(api, strangers, plural, obj):
            refused[why] = obj
    assert refused == {}
