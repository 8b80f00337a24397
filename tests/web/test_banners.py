"""Banners on every page: which parts of the policy are in dry run."""

from collections.abc import Callable

import pytest

from tests.web.fakes import Answer
from tests.web.scenarios import HandMade
from tests.web.test_dashboard import get, page_of, views

__all__ = ["get", "views"]


def test_parts_in_dry_run_are_a_banner_where_the_others_act(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.parts_in_dry_run = "pools a and b"
    [banner] = page_of(get("/")).all("p", class_="banner")
    assert banner.text == "Dry run in pools a and b: their evictions are planned and recorded, and not made."


@pytest.mark.parametrize("parts", ["", "pool a"])
def test_a_dry_run_of_everything_has_one_banner(parts: str, views: HandMade, get: Callable[[str], Answer]) -> None:
    views.parts_in_dry_run, views.dry_run = parts, True
    [banner] = page_of(get("/")).all("p", class_="banner")
    assert banner.text.startswith("Dry run: this daemon")
