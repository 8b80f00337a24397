"""Names with their kind, as kubectl prints them."""

import pytest

from rebalancer.model.notation.kinds import KINDS, kind_of, plain_name


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("pod/web-1", "web-1"),
        ("pods/web-1", "web-1"),
        ("po/web-1", "web-1"),
        ("no/gen-1", "gen-1"),
        ("deploy/web", "web"),
        ("deployment.apps/web", "web"),
        ("Deployments.apps/web", "web"),
        ("sts/db", "db"),
        ("pod/shop/web-1", "shop/web-1"),
        (" web-1 ", "web-1"),
        ("shop/web-1", "shop/web-1"),
        ("pod/", "pod/"),
    ],
)
def test_a_name_with_its_kind_is_that_name(typed: str, plain: str) -> None:
    assert plain_name(typed) == plain


def test_only_the_kinds_that_are_meant_are_left_out() -> None:
    assert plain_name("deploy/web", ["pod"]) == "deploy/web"
    assert kind_of("services") is None
    assert {kind_of(word) for words in KINDS.values() for word in words} == KINDS.keys()
