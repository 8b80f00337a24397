"""The proxy with faults, in front of a practice cluster."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, IncompleteRead

import pytest

from rebalancer.lab import Lab
from tests.faults.scenarios.live import KINDS, SIDES
from tests.faults.servers.proxy import FaultProxy, ProxyFault, fault_proxy

PODS = "/api/v1/pods?limit=500"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("demo", stepped=True) as running:
        yield running


@pytest.fixture
def proxy(lab: Lab) -> Iterator[FaultProxy]:
    with fault_proxy(lab.url) as made:
        yield made


def ask(proxy: FaultProxy, path: str = PODS, seconds: float = 30.0) -> tuple[int, bytes]:
    """(status, body); 0 without a whole answer."""
    try:
        with urllib.request.urlopen(proxy.url + path, timeout=seconds) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, HTTPException):
        return 0, b""


def test_without_a_fault_everything_passes(lab: Lab, proxy: FaultProxy) -> None:
    status, body = ask(proxy)
    assert status == 200
    with lab.cluster.lock:
        assert len(json.loads(body)["items"]) == len(lab.cluster.pods())


def test_a_connection_takes_many_requests(proxy: FaultProxy) -> None:
    connection = HTTPConnection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    for _ in range(3):
        connection.request("GET", PODS)
        assert connection.getresponse().read()
    connection.close()


@pytest.mark.parametrize(
    "kind",
    ["connections are reset", "requests arrive, answers are lost", "bodies are cut"],
)
def test_a_fault_takes_the_answer_away_until_it_ends(proxy: FaultProxy, kind: str) -> None:
    proxy.begin(KINDS[kind])
    assert ask(proxy)[0] == 0
    assert proxy.hits == 1
    proxy.end()
    assert ask(proxy)[0] == 200


def test_a_body_of_an_error_breaks_off(proxy: FaultProxy) -> None:
    proxy.begin(KINDS["an error whose body breaks off"])
    with pytest.raises(IncompleteRead) as found:
        ask(proxy)
    assert found.value.partial == b"x" * 10


def test_a_fault_answers_in_the_place_of_the_server(proxy: FaultProxy) -> None:
    proxy.begin(KINDS["503, Retry-After of an hour"])
    assert ask(proxy)[0] == 503
    proxy.begin(KINDS["login page, 200"])
    assert ask(proxy) == (200, b"<html><body>Sign in</body></html>")


def test_a_request_that_hangs_is_answered_once_the_fault_is_over(proxy: FaultProxy) -> None:
    proxy.begin(ProxyFault(hang=True))
    assert ask(proxy, seconds=0.3)[0] == 0
    proxy.end()
    assert ask(proxy)[0] == 200


def test_only_the_chosen_requests_meet_a_fault(proxy: FaultProxy) -> None:
    proxy.begin(ProxyFault(status=500, requests=SIDES["Lease"]))
    assert ask(proxy)[0] == 200
    assert ask(proxy, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x")[0] == 500
