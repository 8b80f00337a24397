"""Limits of services by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from rebalancer.constraints.moves.scopes import service_limits
from rebalancer.model.reason import Reason
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.limits import Limits
from tests.builders import a_policy, some_limits
from tests.constraints.test_admission import WEB, a_move, door, entries

DAY = {"evictions": [{"max": 1, "per": "1d"}]}


def policy(services: dict[str, Any], **service: Any) -> RebalancerPolicy:
    return a_policy(limits={**some_limits(), "service": service, "services": services})


def test_a_service_may_be_limited_to_one_eviction_a_day_by_its_name() -> None:
    limits = {**some_limits(), "services": {"shop/web": DAY}}
    refusal = door(limits, entries=entries(WEB, 80_000)).refuses(a_move())
    assert refusal is not None
    assert refusal.code is Reason.LIMIT_SERVICE
    assert refusal.message.startswith("service shop/web: 1 of 1 in 1d, next at ")
    assert door(limits, entries=entries(WEB, 87_000)).refuses(a_move()) is None
    other = {**some_limits(), "services": {"shop/api": DAY}}
    assert door(other, entries=entries(WEB, 80_000)).refuses(a_move()) is None


def test_a_field_takes_the_place_of_that_of_every_service_and_the_others_stay() -> None:
    of = policy({"shop/web": {"inFlight": 3}, "shop/*": DAY}, inFlight=1, spacing="30s")
    web, api, elsewhere = (service_limits(of, name) for name in ("shop/web", "shop/api", "search/query"))
    assert (web.in_flight, web.spacing, web.evictions) == (3, 30.0, ())
    assert (api.in_flight, api.spacing, [rate.max for rate in api.evictions]) == (1, 30.0, [1])
    assert elsewhere == of.limits.service


def test_no_limit_by_name_lifts_that_of_every_service() -> None:
    of = policy({"batch/*": {"inFlight": None, "evictions": []}}, inFlight=1, **DAY)
    limits = service_limits(of, "batch/render")
    assert limits.in_flight is None
    assert limits.evictions == ()


def test_the_first_glob_in_the_file_wins() -> None:
    of = policy({"*/web": {"inFlight": 2}, "shop/web": {"inFlight": 5}})
    assert service_limits(of, "shop/web").in_flight == 2


def test_the_ledger_is_read_for_as_long_as_the_longest_of_them() -> None:
    assert policy({"shop/web": {"evictions": [{"max": 2, "per": "7d"}]}}).longest_window == 7 * 86_400.0


def test_a_name_without_a_namespace_is_refused() -> None:
    with pytest.raises(ValidationError, match="expected namespace/name, for example shop/cart"):
        Limits.model_validate({"services": {"web": DAY}})
