"""Answers that are JSON in form only: nested far deeper than a decoder goes."""

from contextlib import closing

import pytest

from rebalancer.model.errors import ConnectError
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.connection.client import PrometheusClient
from tests.prometheus.builders import OWN, a_cluster, fake_prometheus, read

DEEP = b"[" * 100_000 + b"]" * 100_000
ENVELOPE = b'{"status":"success","data":%s}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"status":"success","unknown":%s}' % DEEP,
        ENVELOPE % DEEP,
        ENVELOPE % b'{"resultType":"vector","unknown":%s,"result":[]}' % DEEP,
        ENVELOPE % b'{"resultType":"vector","result":[{"metric":{},"unknown":%s}]}' % DEEP,
    ],
    ids=["envelope", "data", "result", "series"],
)
def test_an_answer_nested_100000_deep_is_one_clear_error(body: bytes) -> None:
    with fake_prometheus(lambda _: (200, body)) as fake, pytest.raises(ConnectError) as caught:
        read(fake.url, a_cluster({"a": ["10.0.0.1"]}), **OWN)
    assert str(caught.value).startswith(f"Prometheus at {fake.url}: ")
    assert "nested too deeply" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_version_nested_100000_deep_is_one_clear_error() -> None:
    with (
        fake_prometheus(lambda _: (200, ENVELOPE % b'{"version":%s}' % DEEP)) as fake,
        closing(PrometheusClient(Prometheus(url=fake.url))) as client,
        pytest.raises(ConnectError, match="nested too deeply"),
    ):
        client.version()


def test_an_error_answer_nested_100000_deep_still_has_its_status() -> None:
    with (
        fake_prometheus(lambda _: (500, b'{"status":"error","error":%s}' % DEEP)) as fake,
        pytest.raises(ConnectError, match="answered 500"),
    ):
        read(fake.url, a_cluster({"a": ["10.0.0.1"]}), **OWN)
