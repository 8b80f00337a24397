import json
import logging
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from urllib3.exceptions import InsecureRequestWarning

from rebalancer.kube.client.auth import Credentials
from rebalancer.kube.client.client import AnswerLostError, ApiClient, NotSentError, Timeouts, connect
from rebalancer.kube.client.permissions import Permission, can_i
from rebalancer.kube.probe import needed_permissions
from rebalancer.kube.snapshot.version import FollowedRelease, server_version
from rebalancer.model.errors import ConfigError, ConnectError, UnsafeDataError
from rebalancer.model.secrets import remember
from tests.kube.fakes.api import Asked, FakeApi, Reply, Script, client_of, serving, status


def kubeconfig(path: Path, *, server: str = "http://127.0.0.1:1", user: dict[str, object] | None = None) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(config))
    return str(path)


@contextmanager
def connected(folder: Path, script: Script, **user: object) -> Iterator[tuple[FakeApi, ApiClient]]:
    """By a kubeconfig with this user."""
    with FakeApi(script) as api:
        client = connect(kubeconfig(folder / "k", server=api.url, user=user), None, "rebalancer/1")
        try:
            yield api, client
        finally:
            client.close()


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_a_get_is_tried_exactly_as_often_as_we_say(code: int) -> None:
    waits: list[float] = []
    with serving(lambda _: Reply(status=code), waits=waits, attempts=3) as (api, client):
        assert client.get("/x").status == code
        assert len(api.asked) == 3
        assert len(waits) == 2


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 501])
def test_other_answers_are_not_asked_for_again(code: int) -> None:
    with serving(lambda _: Reply(status=code)) as (api, client):
        assert client.get("/x").status == code
        assert len(api.asked) == 1


def test_retry_after_is_honoured_and_bounded() -> None:
    waits: list[float] = []
    answers = iter([status(429, headers={"Retry-After": "3"}), status(429, headers={"Retry-After": "900"}), Reply()])
    with serving(lambda _: next(answers), waits=waits) as (_, client):
        assert client.get("/x").status == 200
    assert waits == [3.0, 10.0]


def test_waits_grow_without_retry_after() -> None:
    waits: list[float] = []
    with serving(lambda _: Reply(status=503), waits=waits, attempts=5) as (_, client):
        client.get("/x")
    assert len(waits) == 4
    assert waits[3] > waits[0]


def test_a_cut_get_is_tried_again() -> None:
    answers = iter([Reply(drop=True), Reply(body={"a": "b"}, cut=True), Reply(body={"a": "b"})])
    with serving(lambda _: next(answers)) as (api, client):
        assert json.loads(client.get("/x").data) == {"a": "b"}
        assert len(api.asked) == 3


@pytest.mark.parametrize("reply", [Reply(status=500), Reply(status=503), Reply(status=429), Reply(drop=True)])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_writes_are_sent_once(method: str, reply: Reply) -> None:
    with serving(lambda _: reply) as (api, client):
        try:
            client.send(method, "/x", b"{}")
        except AnswerLostError:
            assert reply.drop
        assert len(api.asked) == 1


def test_a_refused_connection_was_never_sent_and_names_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = client_of(f"http://127.0.0.1:{port}", attempts=2)
    with pytest.raises(NotSentError, match=rf"http://127.0.0.1:{port}.*Connection refused"):
        client.send("POST", "/x", b"{}")
    with pytest.raises(ConnectError, match="Connection refused") as caught:
        client.get("/x")
    assert "\n" not in str(caught.value)


def test_a_name_that_does_not_resolve_is_named() -> None:
    client = client_of("http://no-such-host.invalid", attempts=1)
    with pytest.raises(NotSentError, match=r"no-such-host\.invalid.*does not resolve"):
        client.get("/x")


def test_plain_http_on_a_tls_port_is_a_tls_error() -> None:
    with FakeApi(lambda _: Reply()) as api:
        client = client_of(api.url.replace("http:", "https:"), attempts=1)
        with pytest.raises(ConnectError, match=r"https://.*TLS"):
            client.get("/x")


def test_no_answer_in_time_may_have_been_sent() -> None:
    release = threading.Event()
    with serving(lambda _: Reply(hang_until=release), read_seconds=0.1, attempts=1) as (_, client):
        with pytest.raises(AnswerLostError, match=r"no answer within 0\.1 s"):
            client.get("/x")
        release.set()


@pytest.mark.parametrize("timeouts", [Timeouts(read_seconds=0.2), Timeouts(total_seconds=0.2)])
def test_an_answer_that_arrives_byte_by_byte_ends_with_the_timeout(timeouts: Timeouts) -> None:
    over = threading.Event()

    def drips(_: Asked) -> Reply:
        return Reply(stream=(b" " for _ in range(200) if not over.wait(0.02)))

    with serving(drips, attempts=1) as (_, client):
        with pytest.raises(AnswerLostError, match="no answer within"):
            client.send("PUT", "/x", b"{}", timeouts=timeouts)
        over.set()


def test_a_wrong_token_is_one_line() -> None:
    with serving(lambda _: status(401, "Unauthorized")) as (api, client):
        with pytest.raises(ConnectError, match=r"rejects the credentials \(401\)") as caught:
            server_version(client)
        assert len(api.asked) == 1
    assert "\n" not in str(caught.value)


def test_forbidden_names_verb_and_resource_and_the_fix() -> None:
    with serving(lambda _: status(403, 'pods is forbidden: User "x" cannot list')) as (_, client):
        error = client.error(client.get("/x"), verb="list", resource="pods")
    assert "list pods (403)" in str(error)
    assert "ClusterRole" in str(error)
    assert "User" in str(error)


def test_a_secret_that_a_server_echoes_is_in_no_message() -> None:
    remember("the-secret-word")
    for reply in (status(400, "bad the-secret-word"), Reply(status=502, body=b"<p>the-secret-word</p>")):
        with serving(lambda _, reply=reply: reply, attempts=1) as (_, client):
            message = str(client.error(client.get("/x"), verb="get", resource="pods"))
        assert "***" in message
        assert "the-secret-word" not in message


def test_an_answer_that_is_no_json_is_unsafe() -> None:
    with serving(lambda _: Reply(body=b"<html>login</html>")) as (_, client), pytest.raises(UnsafeDataError):
        server_version(client)


def test_the_token_and_our_name_travel_in_every_request(tmp_path: Path) -> None:
    with connected(tmp_path, lambda _: Reply(body={"gitVersion": "v1.36.0"}), token="abc") as (api, client):
        assert server_version(client) == "v1.36.0"
        assert client.server == api.url
        assert api.asked[0].headers["Authorization"] == "Bearer abc"
        assert api.asked[0].headers["User-Agent"] == "rebalancer/1"


def test_a_token_file_is_read_again_when_the_server_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.kube.client.client.CREDENTIALS_MIN_AGE_SECONDS", 0.0)
    token = tmp_path / "token"
    token.write_text("old\n")

    def script(asked: Asked) -> Reply:
        return Reply(body={"gitVersion": "v1"}) if asked.headers["Authorization"] == "Bearer new" else status(401)

    with connected(tmp_path, script, tokenFile=str(token)) as (_, client):
        token.write_text("new\n")
        assert server_version(client) == "v1"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_write_that_was_refused_with_401_is_sent_once_more_with_new_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("rebalancer.kube.client.client.CREDENTIALS_MIN_AGE_SECONDS", 0.0)
    token = tmp_path / "token"
    token.write_text("old\n")

    def script(asked: Asked) -> Reply:
        return Reply(status=201 if asked.headers["Authorization"] == "Bearer new" else 401)

    with connected(tmp_path, script, tokenFile=str(token)) as (api, client):
        token.write_text("new\n")
        assert client.send(method, "/x", b'{"a": 1}').status == 201
        assert [asked.body for asked in api.asked] == [{"a": 1}] * 2
    with connected(tmp_path, lambda _: status(401), tokenFile=str(token)) as (api, client):
        assert client.send(method, "/x", b"{}").status == 401
        assert len(api.asked) == 2


def test_a_write_is_not_sent_again_when_the_credentials_were_read_just_now() -> None:
    with serving(lambda _: status(401)) as (api, client):
        assert client.send("POST", "/x", b"{}").status == 401
        assert len(api.asked) == 1


EXEC = "client.authentication.k8s.io/v1"


def by_plugin(folder: Path, script: str) -> dict[str, object]:
    """A user whose credentials come from this shell script."""
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    return {"exec": {"apiVersion": EXEC, "command": str(plugin), "interactiveMode": "Never"}}


def test_an_exec_plugin_is_called_and_its_failure_is_an_error(tmp_path: Path) -> None:
    answer = {"apiVersion": EXEC, "kind": "ExecCredential", "status": {"token": "t"}}
    user = by_plugin(tmp_path, f"echo '{json.dumps(answer)}'")
    with connected(tmp_path, lambda _: Reply(body={"gitVersion": "v1"}), **user) as (api, client):
        server_version(client)
        assert api.asked[0].headers["Authorization"] == "Bearer t"
    by_plugin(tmp_path, "exit 3")
    with pytest.raises(ConfigError, match="plugin"):
        connect(str(tmp_path / "k"), None, "x")


def test_bad_kubeconfigs_are_one_line_each(tmp_path: Path) -> None:
    good = kubeconfig(tmp_path / "good")
    broken = tmp_path / "broken"
    broken.write_text("a: [1")
    empty = tmp_path / "empty"
    empty.write_text("")
    for path, context, error in (
        (str(tmp_path / "none"), None, "no such kubeconfig"),
        (good, "two", "two"),
        (str(broken), None, "can't be used"),
        (str(empty), None, "empty"),
    ):
        with pytest.raises(ConfigError, match=error) as caught:
            connect(path, context, "x")
        assert "\n" not in str(caught.value)


ODD: dict[str, tuple[Any, str]] = {
    "a list": ([], "the file: expected a mapping"),
    "a number": (5, "the file: expected a mapping"),
    "clusters a number": ({"clusters": 5}, "clusters: expected a list"),
    "users a mapping": ({"users": {"a": 1}}, "users: expected a list"),
    "an entry without a name": ({"contexts": [{"context": {}}]}, r"contexts\[0\]\.name: expected text"),
    "an entry a number": ({"users": [7]}, r"users\[0\]: expected a mapping with name"),
    "a name a number": ({"users": [{"name": 7}]}, r"users\[0\]\.name: expected text"),
    "a cluster a text": ({"clusters": [{"name": "c", "cluster": "x"}]}, r"clusters\[0\]\.cluster: expected a mapping"),
    "a context a number": ({"current-context": 1}, "current-context: expected text"),
    "a token a number": ({"users": [{"name": "u", "user": {"token": 1}}]}, r"users\[0\]\.user\.token: expected text"),
    "arguments a number": (
        {"users": [{"name": "u", "user": {"exec": {"apiVersion": "v1", "command": "x", "args": 5}}}]},
        r"users\[0\]\.user\.exec\.args: expected a list",
    ),
    "a plugin without a command": (
        {"users": [{"name": "u", "user": {"exec": {"apiVersion": "v1"}}}]},
        r"users\[0\]\.user\.exec\.command: expected text",
    ),
    "a variable without a value": (
        {"users": [{"name": "u", "user": {"exec": {"apiVersion": "v1", "command": "x", "env": [{"name": "A"}]}}}]},
        r"exec\.env\[0\]\.value: expected text",
    ),
    "verification a text": (
        {"clusters": [{"name": "c", "cluster": {"insecure-skip-tls-verify": "yes"}}]},
        r"insecure-skip-tls-verify: expected true or false",
    ),
    "no base64": (
        {"clusters": [{"name": "c", "cluster": {"certificate-authority-data": "abcde"}}]},
        r"certificate-authority-data: expected base64",
    ),
}


@pytest.mark.parametrize("case", ODD.values(), ids=ODD.keys())
def test_an_odd_kubeconfig_is_one_line_with_the_key_and_what_was_expected(
    case: tuple[Any, str], tmp_path: Path
) -> None:
    change, error = case
    path = tmp_path / "k"
    kubeconfig(path)
    whole = json.loads(path.read_text()) | change if isinstance(change, dict) else change
    path.write_text(json.dumps(whole))
    with pytest.raises(ConfigError, match=error) as caught:
        connect(str(path), None, "x")
    assert str(caught.value).startswith(f"{path}: the kubeconfig can't be used: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("server", ["127.0.0.1:1", "host", "https://", "http://[::1", "https://h:99999", "ftp://h", ""])
def test_a_server_that_is_no_url_is_named_by_its_key_without_a_warning(
    server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path / "k", server=server)
    with pytest.raises(ConfigError, match=r"clusters\[0\]\.cluster\.server: expected a URL such as https://host:6443$"):
        connect(path, None, "x")
    assert capfd.readouterr() == ("", "")


def test_a_kubeconfig_that_is_no_yaml_does_not_print_the_token_in_it(tmp_path: Path) -> None:
    for text in ("users:\n- token: 's3cret\n  x", "token: !!float s3cret", "s3cret: !s3cret x", '"\\UFFFFFFFF"'):
        (tmp_path / "k").write_text(text)
        with pytest.raises(ConfigError, match="not YAML") as caught:
            connect(str(tmp_path / "k"), None, "x")
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no luck >&2; exit 3", "exec: process returned 3. no luck"),
        ("echo nonsense", "exec: failed to decode process output"),
        ('echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "x", "status": {}}\'', "missing token"),
    ],
)
def test_a_failing_plugin_is_one_line_of_ours_and_nothing_else(
    script: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # as it is outside of pytest, whose handlers would hide that the package gives the root logger one
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    path = kubeconfig(tmp_path / "k", user=by_plugin(tmp_path, script))
    with pytest.raises(ConfigError, match="returned no credentials: ") as caught:
        connect(path, None, "x")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers == []
    assert logging.getLogger().filters == []


@pytest.mark.parametrize(
    "script",
    [
        "echo 'refused: client_secret=s3same-street' >&2; exit 1",
        "echo 'issued k8s-aws-v1.s3same-street, then failed' >&2; exit 1",
        'echo "$2" | base64 >&2; exit 1',
        "echo called with $@ >&2; exit 1",
    ],
)
def test_a_secret_in_the_output_of_a_failing_plugin_is_not_printed(script: str, tmp_path: Path) -> None:
    user: Any = by_plugin(tmp_path, script)
    user["exec"]["args"] = ["--client-secret", "s3same-street"]
    with pytest.raises(ConfigError, match="returned no credentials: exec: process returned 1") as caught:
        connect(kubeconfig(tmp_path / "k", user=user), None, "x")
    assert "s3same" not in str(caught.value)
    assert "czNzYW1lLXN0cmVld" not in str(caught.value)
    assert "***" in str(caught.value)


def test_a_server_that_need_not_be_verified_is_not_warned_of() -> None:
    def load() -> Configuration:
        configuration = Configuration(host="https://127.0.0.1:1")
        configuration.verify_ssl = False
        return configuration

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Credentials(load).pool()
        warnings.warn(
            "Unverified HTTPS request is being made to host '127.0.0.1'", InsecureRequestWarning, stacklevel=1
        )


def test_a_broken_user_entry_does_not_print_its_token(tmp_path: Path) -> None:
    path = tmp_path / "k"
    kubeconfig(path)
    config = json.loads(path.read_text())
    config["users"] = [{"name": "u", "token": "s3cret"}]
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        connect(str(path), None, "x")
    assert "s3cret" not in str(caught.value)


def test_without_kubeconfig_outside_a_pod_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="--kubeconfig"):
        connect(None, None, "x")
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "k"))
    assert connect(None, None, "x").server == "http://127.0.0.1:1"


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigError, match="service account"):
        connect(None, None, "x")


def test_can_i_asks_the_server() -> None:
    with serving(lambda asked: Reply(status=201, body={"status": {"allowed": "eviction" in str(asked.body)}})) as (
        api,
        client,
    ):
        asks = needed_permissions(lease_namespace="rebalancer")
        allowed = [str(ask) for ask in asks if can_i(client, ask)]
        assert allowed == ["create pods/eviction"]
        attributes = api.asked[-1].body["spec"]["resourceAttributes"]
        assert attributes["namespace"] == "rebalancer"
        assert attributes["group"] == "coordination.k8s.io"
        assert can_i(client, Permission(verb="list", group="", resource="pods")) is False


def test_a_server_without_access_reviews_can_not_tell() -> None:
    with serving(lambda _: status(404)) as (_, client):
        assert can_i(client, Permission(verb="list", group="", resource="pods")) is None


@pytest.mark.parametrize(
    "answer", [status(403, "no"), status(500, "no"), Reply(body="odd"), Reply(body={"gitVersion": "?"})]
)
def test_a_version_that_is_not_told_stays_the_last_one(answer: Reply) -> None:
    now, found = [answer], []
    with serving(lambda _: now[0]) as (_, client):
        release = FollowedRelease(client)
        for now[0] in (answer, Reply(body={"gitVersion": "v1.37.2"}), answer):
            found.append(release.minor())
    # an answer counts, whatever it names
    assert found == [36, 37, 36 if answer.body == {"gitVersion": "?"} else 37]
