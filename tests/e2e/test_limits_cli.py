"""What people see and set of limits, windows, lists, levels and pauses: through the command line, in the lab."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab
from tests.e2e.scenarios import HOT, MOVED, the_lab
from tests.programs.cli import Result, policy_for, rebalancer, write_policy


def plan(policy: Path, kubeconfig: Path, cwd: Path) -> Result:
    return rebalancer("plan", "-f", policy, "--kubeconfig", kubeconfig, "-o", "json", cwd=cwd)


def run(policy: Path, kubeconfig: Path, cwd: Path) -> Result:
    return rebalancer("run", "--once", "--no-wait", "-f", policy, "--kubeconfig", kubeconfig, "-o", "json", cwd=cwd)


def codes(result: Result) -> dict[str, str]:
    """service -> why its pod on the hot node stays."""
    return {
        f"{each['namespace']}/{each['pod'].split('-')[0]}": each["code"]
        for each in result.document["refusals"]
        if each["pod"] and each["node"] == HOT
    }


def messages(result: Result, code: str) -> set[str]:
    return {each["message"] for each in result.document["refusals"] if each["code"] == code}


def in_hours(hours: float) -> datetime:
    """A moment from now, at a full minute."""
    return (datetime.now(UTC) + timedelta(hours=hours)).replace(second=0, microsecond=0)


def window(kind: str, start: datetime, duration: str, **fields: str) -> dict[str, str]:
    return {"kind": kind, "schedule": f"{start.minute} {start.hour} * * *", "duration": duration, **fields}


# ---- limits, pauses


def test_limits_are_counted_shown_and_paused(tmp_path: Path) -> None:
    limits = {
        "cluster": {"evictions": [{"max": 5, "per": "1h"}], "inFlight": 4},
        "node": {"evictions": [{"max": 2, "per": "10m"}]},
        "service": {"inFlight": 1, "evictions": [{"max": 1, "per": "1h"}]},
        "pool": {"evictions": [{"max": "50%", "per": "2h"}]},
    }
    with the_lab(tmp_path) as lab:
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, limits=limits))
        kubeconfig = tmp_path / "kubeconfig"

        def lines() -> dict[tuple[str, str, str], dict[str, Any]]:
            shown = rebalancer("limits", "-f", policy, "--kubeconfig", kubeconfig, "-o", "json", cwd=tmp_path)
            assert shown.code == 0, shown.err
            assert shown.document["schemaVersion"] == "1"
            return {(each["scope"], each["key"], each["limit"]): each for each in shown.document["limits"]}

        def figures(kind: str, key: str, limit: str) -> tuple[int, int]:
            line = lines()[kind, key, limit]
            return line["used"], line["left"]

        # nothing has happened: what always is there, with all of it left, and no file was made for it
        assert {key: (line["used"], line["left"]) for key, line in lines().items()} == {
            ("cluster", "test", "5 in 1h"): (0, 5),
            ("cluster", "test", "4 in flight"): (0, 4),
            ("pool", "test/all", "2 in 2h"): (0, 2),
            ("pulls", "test/all", "20Gi being pulled"): (0, 20 * 2**30),
        }
        assert not (tmp_path / "rebalancer.db").exists()

        # a pause of the pool stops the run
        paused = rebalancer("pause", "pool/all", "-f", policy, "--reason", "big sale", "--for", "2h", cwd=tmp_path)
        assert paused.code == 0, paused.err
        assert "paused: pool all, for 2h" in paused.err
        status = rebalancer("status", "-f", policy, "-o", "json", cwd=tmp_path).document
        (pause,) = status["pauses"]
        assert (pause["scope"], pause["key"], pause["reason"]) == ("pool", "test/all", "big sale")
        assert pause["until"] == pytest.approx(datetime.now(UTC).timestamp() + 7200, abs=60)
        stopped = run(policy, kubeconfig, tmp_path)
        assert stopped.code == 0, stopped.err
        assert stopped.document["evictions"] == []
        assert {codes(stopped)[name] for name in MOVED} == {"Paused"}
        assert all("pool all until" in message and "big sale" in message for message in messages(stopped, "Paused"))
        assert lab.log.evictions() == ()
        table = rebalancer("status", "-f", policy, cwd=tmp_path)
        assert "big sale" in table.out
        assert "pool all" in table.out

        # a pause of something else doesn't end with it; a pool that the policy doesn't have is refused
        assert "not paused" in rebalancer("resume", "cluster", "-f", policy, cwd=tmp_path, cold=True).err
        assert rebalancer("pause", "pool/other", "-f", policy, "--reason", "x", cwd=tmp_path).code == 4
        assert "1 pause ended" in rebalancer("resume", "pool/all", "-f", policy, cwd=tmp_path).err
        went = run(policy, kubeconfig, tmp_path)
        assert went.code == 0, went.err
        assert sorted(each["service"] for each in went.document["evictions"]) == MOVED
        assert len(lab.log.evictions(code=201)) == 2

        # what went is counted at every scope
        assert figures("cluster", "test", "5 in 1h") == (2, 3)
        assert figures("pool", "test/all", "2 in 2h") == (2, 0)
        assert figures("node", f"test/{HOT}", "2 in 10m") == (2, 0)
        for name in MOVED:
            assert figures("service", name, "1 in 1h") == (1, 0)
            assert lines()["service", name, "1 in 1h"]["nextAt"] == pytest.approx(
                datetime.now(UTC).timestamp() + 3600, abs=60
            )
        shown = rebalancer("limits", "-f", policy, "--kubeconfig", kubeconfig, cwd=tmp_path, cold=True)
        assert "pool all" in shown.out
        assert "2 in 2h" in shown.out
        assert "being pulled" not in shown.out
        assert "Nothing is used of" in shown.out
        all_of_them = rebalancer("limits", "-f", policy, "--kubeconfig", kubeconfig, "-o", "wide", cwd=tmp_path)
        (pulls,) = (line for line in all_of_them.out.splitlines() if "being pulled" in line)
        assert pulls.split() == ["pool", "all", "20Gi", "being", "pulled", "0", "20Gi", "now"]

        # they land by themselves: in flight no more, but still in their windows
        lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 2, seconds=60, what="both replaced")
        assert figures("cluster", "test", "4 in flight") == (0, 4)
        assert figures("cluster", "test", "5 in 1h") == (2, 3)


def test_status_shows_what_is_in_flight(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url))
        assert "No pauses" in rebalancer("status", "-f", policy, cwd=tmp_path, cold=True).out
        went = run(policy, tmp_path / "kubeconfig", tmp_path).document["evictions"]
        document = rebalancer("status", "-f", policy, "-o", "json", cwd=tmp_path).document
        assert document["pauses"] == document["backoffs"] == []
        assert {(each["namespace"], each["pod"], each["node"], each["late"]) for each in document["inFlight"]} == {
            (each["namespace"], each["pod"], each["node"], False) for each in went
        }
        assert went[0]["pod"] in rebalancer("status", "-f", policy, cwd=tmp_path).out
        # one is closed by hand
        record = str(document["inFlight"][0]["id"])
        resolved = rebalancer("resolve", "eviction", record, "--reason", "given up", "-f", policy, cwd=tmp_path)
        assert (resolved.code, document["inFlight"][0]["pod"] in resolved.out + resolved.err) == (0, True)
        left = rebalancer("status", "-f", policy, "-o", "json", cwd=tmp_path).document["inFlight"]
        assert record not in [str(each["id"]) for each in left]
        assert len(left) == len(document["inFlight"]) - 1
        again = rebalancer("resolve", "eviction", record, "--reason", "given up", "-f", policy, cwd=tmp_path)
        assert again.code == 4
        assert "expected the ID of an eviction in flight" in again.error


@pytest.mark.parametrize("scope", ["pool", "cluster/other", "service/"])
def test_a_scope_that_is_none_is_refused(scope: str, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, policy_for("http://127.0.0.1:1"))
    result = rebalancer("pause", scope, "-f", policy, "--reason", "x", cwd=tmp_path)
    assert result.code == 4
    assert repr(scope) in result.error
    assert not (tmp_path / "rebalancer.db").exists()


def test_a_service_is_paused_by_namespace_and_name(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, policy_for(lab.prometheus_url))
    paused = rebalancer("pause", "service/shop/web", "-f", policy, "--reason", "x", cwd=tmp_path, cold=True)
    assert paused.code == 0
    result = plan(policy, kubeconfig, tmp_path)
    assert codes(result)["shop/web"] == "Paused"
    assert {each["service"] for each in result.document["evictions"]} == {"shop/api"}


def test_a_pause_for_a_time_that_is_none(tmp_path: Path) -> None:
    policy = write_policy(tmp_path, policy_for("http://127.0.0.1:1"))
    result = rebalancer("pause", "cluster", "-f", policy, "--reason", "x", "--for", "soon", cwd=tmp_path)
    assert result.code == 4
    assert "--for" in result.error


# ---- windows


def test_windows_say_whether_they_are_open_and_when_next(tmp_path: Path) -> None:
    opens = in_hours(3)
    policy = policy_for(
        "http://127.0.0.1:1",
        windows={"cluster": [window("Allow", opens, "1h", name="at night")], "global": [window("Deny", opens, "30m")]},
    )
    path = write_policy(tmp_path, policy)
    document = rebalancer("windows", "-f", path, "-o", "json", cwd=tmp_path).document
    all_of_them, here = document["windows"]
    assert (all_of_them["scope"], all_of_them["open"], all_of_them["until"]) == ("global", True, opens.timestamp())
    assert (here["scope"], here["key"], here["open"]) == ("cluster", "test", False)
    assert here["until"] == here["nextOpen"] == opens.timestamp()
    assert here["reason"]
    table = rebalancer("windows", "-f", path, cwd=tmp_path, cold=True)
    assert "closed until" in table.out
    assert f"{opens:%H:%M} UTC" in table.out


def test_without_windows_it_says_so(tmp_path: Path) -> None:
    result = rebalancer("windows", "-f", write_policy(tmp_path, policy_for("http://127.0.0.1:1")), cwd=tmp_path)
    assert result.code == 0
    assert "no change windows" in result.err


@pytest.mark.parametrize("where", ["global", "cluster", "pool", "level"])
def test_under_a_closed_window_nothing_is_planned_and_the_next_opening_is_named(
    lab: Lab, kubeconfig: Path, tmp_path: Path, where: str
) -> None:
    opens = in_hours(3)
    closed = [window("Allow", opens, "1h")]
    policy = policy_for(lab.prometheus_url)
    if where in ("global", "cluster"):
        policy["windows"] = {where: closed}
    elif where == "pool":
        policy["pools"][0]["windows"] = closed
    else:
        policy["serviceLevels"] = {"default": "usual", "levels": [{"name": "usual", "windows": closed}]}
    result = plan(write_policy(tmp_path, policy), kubeconfig, tmp_path)
    assert result.code == 0, result.err
    assert result.document["evictions"] == []
    assert {codes(result)[name] for name in MOVED} == {"WindowClosed"}
    for message in messages(result, "WindowClosed"):
        assert f"{opens:%H:%M}" in message
        assert where in message


def test_an_open_window_lets_everything_go(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    policy = policy_for(lab.prometheus_url, windows={"cluster": [window("Allow", in_hours(-1), "3h")]})
    result = plan(write_policy(tmp_path, policy), kubeconfig, tmp_path)
    assert sorted(each["service"] for each in result.document["evictions"]) == MOVED


@pytest.mark.parametrize(
    ("command", "fields", "wrong"),
    [
        (["policy", "validate"], {"schedule": "61 22 * * *"}, "schedule"),
        (["windows"], {"schedule": "0 22 * *"}, "schedule"),
        (["plan"], {"timeZone": "Europe/Bonn"}, "timeZone"),
        (["windows"], {"timeZone": "+02:00"}, "timeZone"),
        (["policy", "validate"], {"duration": "0s"}, "duration"),
    ],
)
def test_a_wrong_window_is_refused_with_file_line_and_field(
    tmp_path: Path, command: list[str], fields: dict[str, str], wrong: str
) -> None:
    good = {"kind": "Allow", "schedule": "0 22 * * *", "duration": "8h", "timeZone": "Europe/Berlin"}
    path = write_policy(tmp_path, policy_for("http://127.0.0.1:1", windows={"cluster": [good, {**good, **fields}]}))
    line = max(
        number
        for number, text in enumerate(path.read_text().splitlines(), start=1)
        if text.strip().startswith(f"{wrong}:")
    )
    flag = [path] if command[0] == "policy" else ["-f", path]
    result = rebalancer(*command, *flag, cwd=tmp_path)
    assert result.code == 4
    assert f"{path}:{line}: windows.cluster[1].{wrong}: " in result.error
    assert "expected" in result.error


# ---- lists and levels


LISTS: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "a deny list": ({"lists": {"deny": [{"services": ["shop/we*"]}]}}, "DenyListed", {"shop/api"}),
    "deny wins over allow": (
        {"lists": {"allow": [{"services": ["shop/web"]}], "deny": [{"nodes": [HOT]}]}},
        "DenyListed",
        set(),
    ),
    "on no allow list": ({"lists": {"allow": [{"services": ["shop/api"]}]}}, "NotAllowListed", {"shop/api"}),
    "a level that is never moved": (
        {
            "serviceLevels": {
                "services": {"gold": ["shop/web"]},
                "default": "usual",
                "levels": [{"name": "gold", "evict": False}, {"name": "usual"}],
            }
        },
        "LevelForbids",
        {"shop/api"},
    ),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_and_levels_keep_a_service(lab: Lab, kubeconfig: Path, tmp_path: Path, case: str) -> None:
    sections, code, evicted = LISTS[case]
    result = plan(write_policy(tmp_path, policy_for(lab.prometheus_url, **sections)), kubeconfig, tmp_path)
    assert {codes(result)[name] for name in MOVED if name not in evicted} == {code}
    assert {each["service"] for each in result.document["evictions"]} == evicted
    if case == "a deny list":
        assert all("shop/we*" in message for message in messages(result, code))


def test_a_level_has_limits_of_its_own(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    levels = {"default": "usual", "levels": [{"name": "usual", "limits": {"inFlight": 1}}]}
    policy = policy_for(lab.prometheus_url, serviceLevels=levels)
    waits_for = "level usual: 1 of 1 in flight"
    waits = plan(write_policy(tmp_path, policy), kubeconfig, tmp_path)
    assert [each["waitsFor"] for each in waits.document["evictions"]] == [None, waits_for]
    result = plan(write_policy(tmp_path, {**policy, "planner": {"patience": "0s"}}), kubeconfig, tmp_path)
    assert len(result.document["evictions"]) == 1
    assert any(waits_for in message for message in messages(result, "LimitLevel"))
