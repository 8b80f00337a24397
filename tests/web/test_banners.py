"""Banners on every page: which parts of the policy don't act."""

from collections.abc import Callable

import pytest

from tests.web.fakes import Answer
from tests.web.scenarios import HandMade
from tests.web.test_dashboard import get, page_of, views

__all__ = ["get", "views"]


def test_parts_that_do_not_act_are_a_banner_where_others_do(views: HandMade, get: Callable[[str], Answer]) -> None:
    views.parts_in = {"DryRun": "pools a and b", "Approve": "pool c"}
    dry_run, approval = page_of(get("/")).all("p", class_="banner")
    assert dry_run.text == "Dry run in pools a and b: their evictions are planned and recorded, and not made."
    assert approval.text == "Approval needed in pool c: their evictions are proposed, and not made."


@pytest.mark.parametrize("parts", ["", "pool a"])
def test_a_dry_run_of_everything_has_one_banner(parts: str, views: HandMade, get: Callable[[str], Answer]) -> None:
    views.parts_in, views.dry_run = {"DryRun": parts}, True
    [banner] = page_of(get("/")).all("p", class_="banner")
    assert banner.text.startswith("Dry run: this daemon")
