"""The webhook under bodies that nobody would send: no 5xx, nothing but the inbox is touched, and it goes on."""

import copy
import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.model.decisions.alerts import Alert
from tests.web.fakes import Clients, Daemon, a_payload, an_alert

EXAMPLES, MUTANTS = 400, 18
PATH = "/api/v1/alerts"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1.5, 1e308, float("nan"), float("inf"), "", "4", "firing", "resolved", "\0", "\ud800",
    "\U0010ffff", "x" * 5000, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59Z",
    "2026-02-30T00:00:00Z", [], {}, [[]], {"": ""}, {"alertname": "NodeCPUHigh"}, {"\0": "\0"}, [None] * 100,
    {str(each): "" for each in range(70)},
)  # fmt: skip
ODD_BYTES = (
    b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"NaN", b"-Infinity", b"1e999", b"9" * 400,
    b"[" * 3000, b'{"a":' * 3000, b'"', b"\\", b",", b"}", b"]", b"\xef\xbb\xbf", b"\r\n",
    b'"version":"4",', b'"alerts":[],', b"//",
)  # fmt: skip
VALID = (
    a_payload(),
    a_payload(an_alert(status="resolved", endsAt="2026-11-21T05:00:00Z"), an_alert(fingerprint="")),
)


class NothingElse(Daemon):
    """A daemon that may only to take alerts."""

    def trigger(self, *_: object) -> None:
        raise AssertionError("a cycle was requested")


def mutant(dice: random.Random) -> bytes:
    """A valid payload with a few things wrong."""
    body = dice.choice(VALID)
    if dice.random() < 0.5:
        body = _with_odd_values(json.loads(body), dice)
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(body) + 1)
        match dice.randrange(5):
            case 0:
                body = body[:at]
            case 1:
                body = body[:at] + dice.choice(ODD_BYTES) + body[at:]
            case 2:
                body = body[:at] + dice.randbytes(dice.randrange(4)) + body[at + dice.randrange(8) :]
            case 3:  # a piece twice: keys, commas, brackets
                body = body[:at] + body[max(0, at - dice.randrange(80)) :]
            case 4:
                body = body.decode("utf-8", "replace").encode(dice.choice(("utf-16", "utf-32", "utf-7", "utf-8-sig")))
    return body


def _with_odd_values(payload: Any, dice: random.Random) -> bytes:
    for _ in range(dice.randrange(1, 3)):
        where = payload
        while True:
            keys = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not keys:
                break
            key = dice.choice(keys)
            if isinstance(where[key], dict | list) and dice.random() < 0.8:
                where = where[key]
                continue
            if dice.random() < 0.2:
                del where[key]
            else:
                where[key] = copy.deepcopy(dice.choice(ODD_VALUES))
            break
    return json.dumps(payload, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")


def in_a_payload(value: Any, dice: random.Random) -> bytes:
    """A random value at a place that is read."""
    field = dice.choice(("status", "labels", "annotations", "startsAt", "endsAt", "fingerprint", "alerts", "version"))
    if field in ("alerts", "version"):
        return a_payload(**{field: value})
    return a_payload(an_alert(**{field: value}))


def test_no_body_breaks_the_webhook(clients: Clients) -> None:
    daemon = NothingElse()
    client = clients(daemon.app())
    statuses: dict[int, int] = {}

    def deliver(body: bytes) -> None:
        before = len(daemon.inbox.alerts)
        answer = client.post(PATH, body)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        assert answer.status in (200, 400), (answer.status, body[:500])
        if answer.status == 400:
            assert len(answer.error) < 400
            assert len(daemon.inbox.alerts) == before
        for alert in daemon.inbox.alerts[before:]:
            _check(alert)
        daemon.inbox.alerts.clear()
        daemon.inbox.known.clear()

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(raw=st.binary(max_size=200), value=JSON, dice=st.randoms(use_true_random=True))
    def bodies(raw: bytes, value: Any, dice: random.Random) -> None:
        deliver(raw)
        deliver(in_a_payload(value, dice))
        for _ in range(MUTANTS):
            deliver(mutant(dice))

    bodies()

    assert sum(statuses.values()) >= EXAMPLES * (MUTANTS + 2)
    assert min(statuses[200], statuses[400]) > sum(statuses.values()) / 20, statuses
    assert daemon.triggered == []
    deep = b"[" * (1 << 20)
    for body in (deep, b'{"version":"4","x":' + deep, b'{"version":"4","alerts":[{"labels":' + b'{"a":' * 100_000):
        deliver(body)
    assert client.post(PATH, a_payload()).json["opened"] == 1
    assert client.get("/livez").status == 200


def _check(alert: Alert) -> None:
    """What the inbox is given can be stored and is within its bounds."""
    assert 0 < alert.starts_at < 300_000_000_000
    assert alert.ends_at is None or alert.ends_at < 300_000_000_000
    assert 1 <= len(alert.fingerprint) <= 64
    for text in (*alert.labels, *alert.labels.values(), *alert.annotations, *alert.annotations.values()):
        assert "\0" not in text
        assert len(text.encode()) <= 4 * 4096
    assert alert.name == "NodeCPUHigh"
