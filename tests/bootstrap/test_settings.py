"""Settings from the environment."""

import pytest

from rebalancer.bootstrap.process.settings import Settings


def test_the_newline_at_the_end_of_a_secret_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REBALANCER_DATABASE", "postgresql://user@host/name\n")
    assert Settings().database == "postgresql://user@host/name"


def test_what_is_given_wins_over_the_environment_and_the_environment_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REBALANCER_DATABASE", "postgresql://user@host/name")
    monkeypatch.setenv("REBALANCER_LEASE_NAME", "other")
    found = Settings(database="sqlite:///given.db")
    assert (found.database, found.lease_name, found.history_dir) == (
        "sqlite:///given.db",
        "other",
        "rebalancer-history",
    )


def test_the_pods_own_fields_have_no_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "rebalancer-0")
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    monkeypatch.setenv("POD_UID", "u-1")
    monkeypatch.setenv("REBALANCER_POD_NAME", "another")
    found = Settings()
    assert (found.own_pod, found.pod_uid) == (("kube-system", "rebalancer-0"), "u-1")


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), ("false", False)])
def test_a_switch_is_read_from_text(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv("REBALANCER_INSECURE_NO_AUTH", text)
    assert Settings().insecure_no_auth is value
