"""`make bench ONLY=scale`: a cold list and warm cycles over a served cluster, and the growth of each stage."""

import json
import urllib.parse
import urllib.request
from contextlib import nullcontext

import pytest

from bench import __main__ as benches
from bench.daemon import scale

NODES = 100


def test_scale_is_a_bench() -> None:
    assert f"bench.{benches.BENCHES['scale']}" == scale.__name__


@pytest.mark.parametrize("k", [0.0, 0.3, 1.1])
def test_the_exponent_is_that_of_the_cost(k: float) -> None:
    assert scale.exponent([500, 1_000, 5_000], [2.0 * n**k for n in (500, 1_000, 5_000)]) == pytest.approx(k)


def test_a_growth_over_its_aim_fails_the_bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Served:
        def __enter__(self) -> int:
            return 0

        def __exit__(self, *_: object) -> None:
            pass

    costs = iter([0.1, 0.1, 0.1, 0.4])  # cold and warm of each size
    figures = {"pods": 1.0, "hot": 1.0, "moves": 1.0}
    monkeypatch.setattr(scale, "served", lambda _: Served())
    monkeypatch.setattr(
        scale,
        "_fresh",
        lambda what, _: {scale.COLD if what == "cold" else scale.CYCLE: next(costs), **figures},
    )
    monkeypatch.setattr("sys.argv", ["bench", "--sizes", "500,1000"])
    assert scale.main() == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    growth = {each["figure"]: (each["value"], each["aim"], each["holds"]) for each in lines if each["aim"]}
    assert growth == {
        "growth of cold list and snapshot": (0.0, "<= 1.1", True),
        "growth of warm cycle with constant change": (2.0, "<= 0.3", False),
    }


def test_a_stage_over_its_aim_in_seconds_fails_the_bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"pods": 1.0, "hot": 1.0, "moves": 1.0, scale.COLD: 0.1, scale.CYCLE: 0.1}
    monkeypatch.setattr(scale, "served", lambda _: nullcontext(0))
    monkeypatch.setattr("sys.argv", ["bench", "--sizes", "500,5000"])
    many = iter([2.4, 2.6])  # at 5,000 nodes, of two runs
    for expected in (0, 1):
        per_size = iter([{}, {}, {}, {scale.MANY: next(many), scale.IDLE: 0.4}])
        monkeypatch.setattr(scale, "_fresh", lambda *_, rest=per_size: figures | next(rest))
        assert scale.main() == expected
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    hot = [
        (each["value"], each["aim"], each["holds"]) for each in rows if each["figure"] == f"{scale.MANY}, 5000 nodes"
    ]
    assert hot == [(2.4, "<= 2.5", True), (2.6, "<= 2.5", False)]
    assert not [each for each in rows if each["figure"] == f"growth of {scale.MANY}"]


def test_cycles_over_a_served_cluster_are_measured_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "CYCLES", 1)
    monkeypatch.setattr(scale, "LARGE", NODES)
    monkeypatch.setattr(scale, "MANY_HOT", NODES // 5)
    with scale.served(NODES) as port:
        found = scale.cold(port) | scale.warm(port)
        # a query that the server doesn't know
        query = urllib.parse.urlencode({"query": "max by (node) (node_memory_MemTotal_bytes)"})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/prometheus/api/v1/query?{query}") as answer:
            assert json.load(answer)["data"]["result"] == []
    assert (found["pods"], found["hot"]) == (NODES * 30, scale.HOT_NODES)
    stages = {
        scale.COLD,
        scale.CYCLE,
        scale.IDLE,
        scale.MANY,
        "changes",
        "warm snapshot",
        "usage",
        "loads",
        "find",
        "plan",
        "report",
    }
    assert found.keys() == {*stages, "pods", "hot", "moves"}
    assert all(found[stage] >= 0 for stage in stages)
    assert "Traceback" not in capfd.readouterr().err
