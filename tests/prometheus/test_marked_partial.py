"""How a VictoriaMetrics cluster says that an answer is a part: `"isPartial": true`, and no warnings."""

from contextlib import closing
from typing import Any

import msgspec
import pytest

from rebalancer.model.measured.history import SLOTS
from rebalancer.prometheus.connection.client import PrometheusClient
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import Query
from tests.prometheus.builders import OWN, Asked, Reply, a_cluster, a_source, fake_prometheus, read, usual
from tests.prometheus.fakes import DAY, Clock, Past
from tests.prometheus.scenarios import HEALTHY, NODES, NOW, a_snapshot, reading

ASKED = Query(field="f", promql="up")


def warnings_of(*, ranged: bool, **fields: Any) -> tuple[str, ...]:
    """Of an answer with these fields beside its data."""
    data: dict[str, Any] = {"resultType": "matrix" if ranged else "vector", "result": []}
    with fake_prometheus(lambda _: (200, {"status": "success", "data": data, **fields})) as fake:
        settings = a_source(fake.url).prometheus
        assert settings is not None
        with closing(PrometheusClient(settings)) as client:
            answer = client.query_range(ASKED, start=0, end=60, step=30) if ranged else client.query(ASKED)
    return answer.warnings


@pytest.mark.parametrize("ranged", [False, True], ids=["instant", "range"])
def test_an_answer_that_is_marked_partial_has_a_warning(ranged: bool) -> None:
    assert warnings_of(ranged=ranged, isPartial=True) == (decode.MARKED_PARTIAL,)


@pytest.mark.parametrize("ranged", [False, True], ids=["instant", "range"])
def test_an_answer_that_is_marked_whole_has_none(ranged: bool) -> None:
    assert warnings_of(ranged=ranged, isPartial=False) == ()
    assert warnings_of(ranged=ranged) == ()


def test_the_mark_stands_beside_the_warnings() -> None:
    message = warnings_of(
        ranged=False, isPartial=True, warnings=["a store is down", "PromQL info: metric might not be"]
    )
    assert message == ("a store is down", decode.MARKED_PARTIAL)


@pytest.mark.parametrize("mark", ["true", 1, None], ids=repr)
def test_a_mark_of_another_kind_is_no_answer(mark: object) -> None:
    """Whether it means a part isn't guessed."""
    with pytest.raises(decode.BadAnswerError, match="isPartial"):
        decode.envelope(msgspec.json.encode({"status": "success", "isPartial": mark}))


@pytest.mark.parametrize("query", ["node:cpu", "node:time", "pod:cpu"])
def test_usage_of_which_a_part_is_missing_says_which_query(query: str) -> None:
    answers = usual({"a": 0.25, "b": 0.5})
    answers[query] = {**answers[query], "isPartial": True}
    field = {"node:cpu": "nodeCPU.query", "node:time": "nodeCPU.freshness", "pod:cpu": "podCPU.query"}[query]
    with fake_prometheus(answers) as fake:
        message = read(fake.url, a_cluster(NODES), **OWN).warnings
    # what was measured lately is asked for with the node's query too
    assert f"usage.prometheus.{field}: {decode.MARKED_PARTIAL}" in message


class Marked(Past):
    """Every answer with samples is a part; counts are whole."""

    def __call__(self, asked: Asked) -> Reply:
        status, body = super().__call__(asked)
        assert isinstance(body, dict)
        return status, {**body, "isPartial": asked.path.endswith("query_range")}


def test_a_day_of_which_a_part_is_missing_is_reported() -> None:
    with reading(Marked(lines=HEALTHY, clock=Clock(NOW))) as history:
        pull = history.pull(DAY, first=0, end=SLOTS, snapshot=a_snapshot())
        assert pull.advance()
        assert pull.warnings == (decode.MARKED_PARTIAL,)
        assert pull.onto(None) is not None
