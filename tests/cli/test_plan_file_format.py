"""The format of plan files: what is written is read again, and any alteration is an error."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.cli.output.plan_file import digest_of, plan_file_schema, plan_file_text, read_plan_file
from rebalancer.model.decisions.plan_file import PlanFile, PlannedEviction, PlannedTarget
from rebalancer.model.errors import ConfigError
from tests.builders import NOW

SAME_FILE = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)


def an_eviction(number: int) -> PlannedEviction:
    landings = (
        PlannedTarget(node="n2", probability=0.75, cpu_share_planned=0.5, cpu_share_planned_p99=0.625),
        PlannedTarget(node="n3", probability=0.25, cpu_share_planned=0.25, cpu_share_planned_p99=None),
    )
    return PlannedEviction(
        namespace="shop",
        pod=f"web-{number}",
        uid=f"uid-{number}",
        node="n1",
        pool="general",
        service="Deployment/shop/web",
        strategy="LowNodeUtilization",
        reason="CPU is 91%, over 75%; ü",
        detail="",
        cpu_millicores=750.5,
        target_nodes=landings[: number % 3],
        replacement_first=number == 1,
    )


def a_plan(**fields: Any) -> PlanFile:
    given: dict[str, Any] = {
        "id": "c0ffee",
        "version": "0.1.0",
        "cluster": "test",
        "cluster_uid": "uid-of-kube-system",
        "policy_hash": "sha256:00",
        "taken_at": NOW,
        "expires_at": NOW + 3600,
        "evictions": tuple(map(an_eviction, range(4))),
    }
    return PlanFile(**{**given, **fields})


PLAN = a_plan()
TEXT = plan_file_text(PLAN)


def read(folder: Path, text: str) -> PlanFile:
    path = folder / "plan.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return read_plan_file(path)


def outcome(folder: Path, text: str) -> PlanFile | int:
    """The plan, or the number of lines of the error."""
    try:
        return read(folder, text)
    except ConfigError as error:
        return len(str(error).splitlines())


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == PLAN
    # as another program may write it
    assert read(tmp_path, json.dumps(json.loads(TEXT), sort_keys=True)) == PLAN
    jsonschema.validate(json.loads(TEXT), plan_file_schema())


def test_a_file_without_the_way_of_its_moves_has_ordinary_evictions(tmp_path: Path) -> None:
    document = json.loads(TEXT)
    del document["digest"]
    assert [each.pop("replacementFirst") for each in document["evictions"]] == [False, True, False, False]
    found = read(tmp_path, json.dumps({**document, "digest": digest_of(document)}))
    assert not any(each.replacement_first for each in found.evictions)


def test_a_pod_whose_cpu_is_not_known_is_read_again(tmp_path: Path) -> None:

    (only,) = read(
        tmp_path, plan_file_text(a_plan(evictions=(replace(an_eviction(1), cpu_millicores=math.nan),)))
    ).evictions
    assert math.isnan(only.cpu_millicores)


@SAME_FILE
@given(at=st.integers(0, len(TEXT) - 1), cut=st.integers(0, 40), put=st.text(max_size=8))
def test_an_edit_of_the_text_is_an_error_or_changes_nothing(at: int, cut: int, put: str, tmp_path: Path) -> None:
    assert outcome(tmp_path, TEXT[:at] + put + TEXT[at + cut :]) in (PLAN, 1)


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all values of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([way] if way else []), *(each for key, one in inner for each in places(one, (*way, key)))]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)
)


@SAME_FILE
@given(data=st.data())
def test_an_altered_value_is_an_error(data: st.DataObject, tmp_path: Path) -> None:
    document = json.loads(TEXT)
    way = data.draw(st.sampled_from(places(document)))
    holder = document
    for key in way[:-1]:
        holder = holder[key]
    how = data.draw(st.sampled_from(("set", "remove", "exchange")))
    before = json.dumps(document, sort_keys=True)
    if how == "remove":
        del holder[way[-1]]
    elif how == "exchange" and isinstance(holder, list):
        holder.reverse()
    else:
        holder[way[-1]] = data.draw(VALUES)
    if json.dumps(document, sort_keys=True) == before:
        return
    assert outcome(tmp_path, json.dumps(document)) == 1


@SAME_FILE
@given(data=st.data())
def test_a_value_of_another_type_is_one_line_even_with_its_digest(data: st.DataObject, tmp_path: Path) -> None:
    document = json.loads(TEXT)
    del document["digest"]
    way = data.draw(st.sampled_from(places(document)))
    holder = document
    for key in way[:-1]:
        holder = holder[key]
    if data.draw(st.booleans()):
        del holder[way[-1]]
    else:
        holder[way[-1]] = data.draw(VALUES)
    found = outcome(tmp_path, json.dumps({**document, "digest": digest_of(document)}))
    assert found == 1 or isinstance(found, PlanFile)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"schemaVersion": "1", "digest": 1}', "\x00"])
def test_another_file_is_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plan\.json: (expected a file|altered)"):
        read(tmp_path, text)


def test_a_later_version_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected schemaVersion 1, got '2'"):
        read(tmp_path, TEXT.replace('"schemaVersion": "1"', '"schemaVersion": "2"'))
