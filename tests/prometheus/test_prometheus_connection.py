"""Credentials, time limits, retries, and what a refusal is called."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.policy.schema.usage import Prometheus, UsageSource
from rebalancer.prometheus.connection.client import PrometheusClient, TooMuchError
from rebalancer.prometheus.promql.queries import Query, stabilization_offsets
from tests.prometheus.builders import OWN, Asked, a_cluster, fake_prometheus, read, reader, usual, vector

NODES: dict[str, list[str]] = {"a": []}
GOOD = {"a": 0.5}


def test_the_token_file_is_read_anew_for_every_cycle(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with fake_prometheus(usual(GOOD)) as fake, closing(reader(fake.url, **OWN, bearerTokenFile=str(token))) as usage:
        usage.read(a_cluster(NODES))
        token.write_text("second\n")
        usage.read(a_cluster(NODES))
    sent = [asked.headers["Authorization"] for asked in fake.asked]
    assert sent == ["Bearer first"] * 4 + ["Bearer second"] * 4


def test_a_netrc_of_the_user_does_not_replace_our_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    (tmp_path / "token").write_text("ours")
    with fake_prometheus(usual(GOOD)) as fake:
        read(fake.url, a_cluster(NODES), **OWN, bearerTokenFile=str(tmp_path / "token"))
        read(fake.url, a_cluster(NODES), **OWN)
    assert [asked.headers.get("Authorization") for asked in fake.asked] == ["Bearer ours"] * 4 + [None] * 4


def test_basic_auth_and_headers_are_sent(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pä:ss")
    auth = {"username": "us", "passwordFile": str(tmp_path / "password")}
    with fake_prometheus(usual(GOOD)) as fake:
        read(fake.url, a_cluster(NODES), **OWN, basicAuth=auth, headers={"X-Scope-OrgID": "team"})
    assert fake.asked[0].headers["Authorization"] == "Basic dXM6cMOkOnNz"
    assert fake.asked[0].headers["X-Scope-OrgID"] == "team"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "can't read"), (b"", "is empty"), (b"a\nb", "one line"), (b"\xff\xfe\x00", "expected text")],
)
def test_a_bad_token_file_is_named_with_its_field(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"usage\.prometheus\.bearerTokenFile: .*{expected}") as caught:
        reader("http://127.0.0.1:1", bearerTokenFile=str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bad_ca_file_is_named_with_its_field(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.crt"
    if content:
        path.write_text(content)
    with pytest.raises(ConfigError, match=rf"usage\.prometheus\.caFile: .*{path}"):
        reader("https://127.0.0.1:1", caFile=str(path))


def test_an_unreachable_server_is_named_without_the_password_in_its_url() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectError) as caught:
            read(f"http://me:hunter2@127.0.0.1:{port}/prom/", a_cluster(NODES))
    assert str(caught.value).startswith(f"Prometheus at http://127.0.0.1:{port}/prom: ")
    assert "refused" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_name_that_does_not_resolve_is_reported_as_such() -> None:
    with pytest.raises(ConnectError, match=r"http://prometheus\.invalid: .*resolve"):
        read("http://prometheus.invalid", a_cluster(NODES))


@pytest.mark.parametrize("url", ["http://host:port", "http://[::1", "http://host:99999"])
def test_a_url_that_is_none_is_a_mistake_in_the_policy(url: str) -> None:
    # the policy's own check comes first; this one is for settings that were made without it
    settings = Prometheus(url="http://host").model_copy(update={"url": url})
    with pytest.raises(ConfigError, match=r"usage\.prometheus\.url"):
        PrometheusClient(settings)


def test_user_and_password_and_the_path_of_the_url_are_used() -> None:
    with fake_prometheus(usual(GOOD)) as fake:
        read(fake.url.replace("//", "//me:p%40ss@") + "/tenant/prometheus/", a_cluster(NODES), **OWN)
    assert fake.asked[0].headers["Authorization"] == "Basic bWU6cEBzcw=="
    assert fake.asked[0].path == "/tenant/prometheus/api/v1/query"


def test_a_server_that_does_not_answer_is_given_up_once() -> None:
    with fake_prometheus(lambda _: time.sleep(1.5) or (200, b"{}")) as fake:
        start = time.monotonic()
        with pytest.raises(ConnectError, match=r"no answer within 1 s \(usage\.prometheus\.timeout\)"):
            read(fake.url, a_cluster(NODES), timeout="1s")
        assert time.monotonic() - start < 1.4
    assert len(fake.asked) == 1
    assert fake.asked[0].params["timeout"] == "1s"


def test_a_server_that_dribbles_is_given_up_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                try:
                    for _ in range(40):
                        connection.sendall(b" ")
                        time.sleep(0.1)
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        start = time.monotonic()
        with pytest.raises(ConnectError, match="no answer within 1 s"):
            read(f"http://127.0.0.1:{server.getsockname()[1]}", a_cluster(NODES), timeout="1s")
        assert time.monotonic() - start < 2
        thread.join()


def scripted(answers: list[bytes], *, hold: float = 0.0) -> tuple[socket.socket, threading.Thread]:
    """A server that sends each of these once, waits for `hold` and closes the connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                time.sleep(hold)

    thread = threading.Thread(target=serve)
    thread.start()
    return server, thread


GOOD_BODY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
WHOLE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(GOOD_BODY), GOOD_BODY)
BROKEN_OFF = {
    "counted": WHOLE[:-10],
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nabc",
    "a chunk without a length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "no gzip": WHOLE.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection"),
}


@pytest.mark.parametrize("broken", BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
def test_an_answer_that_breaks_off_is_asked_for_again_and_not_for_ever(broken: bytes) -> None:
    for answers, fails in (([broken, broken, WHOLE], False), ([broken] * 3, True)):
        server, thread = scripted(answers)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with server, closing(PrometheusClient(Prometheus(url=url))) as client:
            if fails:
                with pytest.raises(ConnectError, match=f"^Prometheus at {url}: its answer broke off: ") as caught:
                    client.query(Query(field="f", promql="up"))
                assert "\n" not in str(caught.value)
            else:
                assert not client.query(Query(field="f", promql="up")).warnings
            thread.join()


def test_a_body_that_stops_coming_is_the_time_limit() -> None:
    server, thread = scripted([WHOLE[:-10]], hold=1.5)
    settings = Prometheus.model_validate({"url": f"http://127.0.0.1:{server.getsockname()[1]}", "timeout": "1s"})
    with server, closing(PrometheusClient(settings)) as client:
        with pytest.raises(ConnectError, match=r"no answer within 1 s \(usage\.prometheus\.timeout\)"):
            client.query(Query(field="f", promql="up"))
        thread.join()


def test_answers_that_the_lab_cuts_end_in_a_line_or_not_at_all() -> None:
    query = Query(field="f", promql="node_cpu_seconds_total")
    with Lab.start("small") as lab, closing(PrometheusClient(Prometheus(url=lab.prometheus_url))) as client:
        lab.faults.set(sides=("prometheus",), cut_share=0.25)
        wording = []
        for _ in range(20):
            try:
                client.query(query)
            except ConnectError as error:
                wording.append(str(error))
        assert len(wording) < 10
        lab.faults.set(cut_share=1.0)
        with pytest.raises(ConnectError, match="its answer broke off"):
            client.query(query)


def test_a_failed_call_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectError), closing(PrometheusClient(Prometheus(url=url))) as client:
            client.query(Query(field="f", promql="up"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("samples", [1, 3, 300, 721])
def test_no_debounce_asks_for_more_points_than_prometheus_gives(samples: int) -> None:
    section = {"url": "http://h"}
    usage = UsageSource.model_validate(
        {"prometheus": section, "rateWindow": "30s", "stabilizationWindow": {"samples": samples, "duration": "1h"}}
    )
    assert len(stabilization_offsets(usage)) <= 720


def test_a_passing_failure_is_tried_again_and_a_lasting_one_not_for_ever() -> None:
    seen: list[str] = []

    def flaky(asked: Asked) -> tuple[int, Any]:
        seen.append(asked.path)
        return (503, b"starting") if len(seen) < 3 else (200, usual(GOOD).get(asked.params["query"], vector([])))

    with fake_prometheus(flaky) as fake:
        read(fake.url, a_cluster(NODES), **OWN)
        fake.answer = lambda _: (503, b"starting")
        fake.asked.clear()
        with pytest.raises(ConnectError, match=r"answered 503 .*starting"):
            read(fake.url, a_cluster(NODES), **OWN)
    assert len(fake.asked) == 3


def test_a_query_that_prometheus_gave_up_is_not_asked_again() -> None:
    wording = {"status": "error", "errorType": "timeout", "error": "query timed out in expression evaluation"}
    with (
        fake_prometheus(lambda _: (503, wording)) as fake,
        pytest.raises(ConnectError, match=r"answered 503 to usage\.prometheus\.nodeCPU\.query: query timed out"),
    ):
        read(fake.url, a_cluster(NODES), **OWN)
    assert len(fake.asked) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_being_refused_is_reported_with_the_status_and_without_the_token(tmp_path: Path, status: int) -> None:
    (tmp_path / "token").write_text("tok-123")
    with (
        fake_prometheus(lambda _: (status, b"no: tok-123")) as fake,
        pytest.raises(ConnectError, match=f"rejects the credentials with {status}: no: ") as caught,
    ):
        read(fake.url, a_cluster(NODES), bearerTokenFile=str(tmp_path / "token"))
    assert "tok-123" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, ConfigError, r"^usage\.prometheus\.nodeCPU\.query: .*refuses it: parse error"),
        (422, ConnectError, r"answered 422 to usage\.prometheus\.nodeCPU\.query: parse error"),
        (404, ConnectError, "is a path missing in usage.prometheus.url"),
        (500, ConnectError, "answered 500"),
    ],
)
def test_each_refusal_has_its_own_error(status: int, error: type[Exception], expected: str) -> None:
    wording = {"status": "error", "errorType": "bad_data", "error": "parse error:\n unexpected )"}
    with fake_prometheus(lambda _: (status, wording)) as fake, pytest.raises(error, match=expected) as caught:
        read(fake.url, a_cluster(NODES), **OWN)
    assert "\n" not in str(caught.value)


ASKED = Query(field="usage.prometheus.nodeCPU.query", promql="up")


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.query(ASKED),
        lambda client: client.query_range(ASKED, start=0, end=60, step=30),
        lambda client: client.version(),
    ],
    ids=["instant", "range", "version"],
)
@pytest.mark.parametrize(
    ("kind", "error"),
    [("bad_data", ConfigError), ("execution", TooMuchError), ("timeout", TooMuchError), ("internal", ConnectError)],
)
def test_an_error_with_http_status_200_is_an_error_whatever_data_it_has(
    call: Callable[[PrometheusClient], Any], kind: str, error: type[Exception]
) -> None:
    data = {"resultType": "vector", "result": [], "version": "3.0.0"}
    wrong = {"status": "error", "errorType": kind, "error": "a store is gone", "data": data}
    with fake_prometheus(lambda _: (200, wrong)) as fake, closing(PrometheusClient(Prometheus(url=fake.url))) as client:
        with pytest.raises(error, match="a store is gone") as raised:
            call(client)
        assert type(raised.value) is error
        assert len(fake.asked) == 1


LENGTHS = "the query time range exceeds the limit (query length: 24h0m0s, limit: 3h0m0s)"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, LENGTHS),
        (400, {"status": "error", "errorType": "bad_data", "error": LENGTHS}),
        (422, {"status": "error", "errorType": "execution", "error": f"expanding series: {LENGTHS}"}),
        (200, {"status": "error", "errorType": "bad_data", "error": LENGTHS}),
    ],
    ids=["Thanos", "Mimir", "a querier", "a proxy"],
)
def test_a_range_that_a_frontend_refuses_is_too_much_and_no_mistake_in_promql(status: int, body: Any) -> None:
    with (
        fake_prometheus(lambda _: (status, body)) as fake,
        closing(PrometheusClient(Prometheus(url=fake.url))) as client,
    ):
        with pytest.raises(TooMuchError, match=r"query length: 24h0m0s, limit: 3h0m0s"):
            client.query_range(ASKED, start=0, end=86_400, step=300)
        assert len(fake.asked) == 1


def test_a_redirect_is_not_followed_but_reported() -> None:
    with fake_prometheus(lambda _: (302, b"")) as fake:
        fake.reply_headers["Location"] = "https://u:p@login.example/auth?state=secret"
        with pytest.raises(ConnectError, match=r"redirects to https://login\.example/auth: write") as caught:
            read(fake.url, a_cluster(NODES), **OWN)
    assert "secret" not in str(caught.value)
    assert len(fake.asked) == 1


def test_a_long_query_travels_in_the_body() -> None:
    long = "sum(" + "x" * 5000 + ")"
    answers = usual(GOOD)
    answers[long] = answers["node:cpu"]
    with fake_prometheus(answers) as fake:
        read(fake.url, a_cluster(NODES), **{**OWN, "nodeCPU": {**OWN["nodeCPU"], "query": long}})
    assert [asked.method for asked in fake.asked] == ["POST", "GET", "GET", "GET"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nodeCPU": {"label": "in-stance"}}, r"nodeCPU\.label: expected a label name"),
        ({"headers": {"X-A": "one\r\nHost: evil"}}, r"headers: 'X-A'"),
    ],
    ids=["a label that PromQL can't say", "a header that HTTP can't carry"],
)
def test_what_can_not_be_sent_is_a_mistake_in_the_policy(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"usage\.prometheus\.{message}") as caught:
        reader("http://127.0.0.1:1", **fields)
    assert "evil" not in str(caught.value)
