"""A lab whose time passes only during a sleep by its clock."""

from rebalancer.lab import Lab, node, scenario, workload
from tests.lab.conftest import Client

START = 1_790_000_000.0


def start(**fields: object) -> Lab:
    web = workload("web", namespace="shop", replicas=2, start_seconds=20.0, **fields)
    return Lab.start(scenario(nodes=[node("a")], workloads=[web]), stepped=True, start_time=START)


def events(lab: Lab, *names: str) -> list[tuple[str, float]]:
    return [(each.event, each.at - START) for each in lab.log.entries() if each.event in names]


def test_time_stands_still_until_a_sleep() -> None:
    with start() as lab:
        assert lab.clock.now() == START
        lab.clock.sleep(12.5)
        assert lab.clock.now() == START + 12.5
        lab.clock.sleep(0)
        assert lab.clock.now() == START + 12.5


def test_what_is_due_meanwhile_happens_at_its_moment_and_in_order() -> None:
    with start() as lab:
        lab.clock.sleep(9.0)
        assert events(lab, "started", "ready") == []
        lab.clock.sleep(3600.0)
        assert events(lab, "started", "ready") == [("started", 10.0)] * 2 + [("ready", 20.0)] * 2


def test_what_follows_from_it_happens_meanwhile_too() -> None:
    """A Job's pods finish, and the next ones take their place, over and over."""
    with start(kind="Job", completions=100, run_seconds=30.0) as lab:
        lab.clock.sleep(200.0)
        finished = sorted({at for _, at in events(lab, "finished")})
    # each pod runs for 30 s from its start, ten seconds after it was made
    assert finished == [40.0, 80.0, 120.0, 160.0, 200.0]


def test_usage_follows_it() -> None:
    with start(cpu=8.0) as lab:
        lab.clock.sleep(3600.0)
        shares = [lab.truth.node_cpu_share_instant(START + at)["a"] for at in (5.0, 15.0)]
    assert shares == [0.3 / 16, 16.0 / 16]


def test_the_moment_of_a_prometheus_answer_is_never_in_the_future() -> None:
    """Queries that follow are asked at the moment that the first one's answer names."""
    with Lab.start(scenario(nodes=[node("a")]), stepped=True, start_time=START + 0.0006) as lab:
        ask = Client(lab.prometheus_url)
        query = "/api/v1/query?query=instance:node_cpu_utilisation:rate5m"
        (first,) = ask(query).body["data"]["result"]
        at = first["value"][0]
        assert at == START
        (again,) = ask(f"{query}&time={at}").body["data"]["result"]
        assert again == first
