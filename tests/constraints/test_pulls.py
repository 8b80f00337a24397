"""Bytes of images that replacements still have to pull, together, in the pool where they land."""

import math
from typing import Any

import pytest

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.moves.limits import describe_check, refusal_for
from rebalancer.model.decisions.limits import Check, Denied, LedgerEntry, Pause, Scope
from rebalancer.model.notation.figures import size
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.limits import ReplacementLimits
from tests.builders import GIB, NOW, some_limits
from tests.constraints.test_admission import a_move, door, open_eviction

PULLS = Scope("pulls", "test/general")


def a_limit(at_most: Any = "20Gi", **standing: Any) -> EvictionAdmission:
    return door({**some_limits(), "replacements": {"perNode": 1000, "pullBytesPerPool": at_most}}, **standing)


def flying(amount: float) -> tuple[LedgerEntry, ...]:
    return (LedgerEntry(PULLS, NOW - 60, True, amount),)


def test_it_is_limited_unless_the_policy_says_otherwise() -> None:
    assert ReplacementLimits().pull_bytes_per_pool == 20 * GIB
    assert door(some_limits()).refuses(a_move(pull=21 * GIB)) is not None
    assert a_limit(None).refuses(a_move(pull=1000 * GIB)) is None


def test_a_plan_counts_its_own_moves_and_gives_back_what_did_not_happen() -> None:
    at = a_limit()
    first, second = a_move(0, pull=12 * GIB), a_move(1, pull=8 * GIB)
    assert at.reserve(first) is None
    assert at.reserve(second) is None  # exactly full
    refusal = at.refuses(a_move(2, pull=1.0))
    assert refusal is not None
    assert refusal.code is Reason.LIMIT_IMAGE_PULLS
    at.cancel_reservation(first)
    assert at.refuses(a_move(2, pull=12 * GIB)) is None
    assert at.refuses(a_move(2, pull=12 * GIB + 1)) is not None


@pytest.mark.parametrize(
    ("held", "pull", "message"),
    [
        (18.2 * GIB, 3.1 * GIB, "pool general: 18.2Gi of 20Gi being pulled, this one needs 3.1Gi"),
        (0.0, 25 * GIB, "pool general: this one needs 25Gi, only 20Gi may be pulled at once"),
        (0.0, math.nan, ""),
        (0.0, math.inf, ""),
    ],
    ids=["the limit is used up", "larger than the limit", "not known", "not finite"],
)
def test_the_refusal_names_the_numbers_as_people_write_them(held: float, pull: float, message: str) -> None:
    refusal = a_limit(entries=flying(held) if held else ()).refuses(a_move(pull=pull))
    assert refusal is not None
    assert refusal.code is Reason.LIMIT_IMAGE_PULLS
    assert refusal.message == message or not message


def test_a_move_that_pulls_nothing_is_never_in_the_way() -> None:
    at = a_limit(entries=flying(30 * GIB))  # the limit was lowered meanwhile
    assert at.refuses(a_move(pull=0.0)) is None
    assert a_limit(0).refuses(a_move(pull=0.0)) is None
    assert a_limit(0).refuses(a_move(pull=1.0)) is not None


def test_each_pool_counts_what_lands_in_it_wherever_it_comes_from_until_it_has_landed() -> None:
    held = flying(15 * GIB)
    at = a_limit(entries=held)
    assert at.refuses(a_move(pull=10 * GIB)) is not None
    assert at.refuses(a_move(pull=10 * GIB, to="batch")) is None
    assert a_limit(entries=held, landed=(open_eviction(pull=15 * GIB),)).refuses(a_move(pull=20 * GIB)) is None


def test_the_limit_of_every_pool_is_shown_with_what_is_on_its_way() -> None:
    at = a_limit(entries=flying(15 * GIB))
    (check,) = (each for each in at.rules.every_check({PULLS}) if each.kind == "bytes")
    assert (check.scope, at.view.used(check), describe_check(check)) == (PULLS, 15 * GIB, "20Gi being pulled")


def test_the_ledgers_denial_and_pause_read_like_the_plans() -> None:
    check = Check(scope=PULLS, kind="bytes", at_most=int(20 * GIB), amount=3.1 * GIB)
    refusal = refusal_for(Denied(check=check, used=int(18.2 * GIB), next_at=None))
    assert refusal.code is Reason.LIMIT_IMAGE_PULLS
    assert refusal.message == "pool general: 18.2Gi of 20Gi being pulled, this one needs 3.1Gi"
    pause = Pause(scope=Scope("pool", "test/general"), reason="release day", created_by="ana", until=NOW + 60)
    seen = door(pauses=(pause,)).refuses(a_move())
    assert refusal_for(Denied.by(pause)) == seen
    assert seen is not None
    assert seen.code is Reason.PAUSED


@pytest.mark.parametrize(
    ("written", "amount"),
    [("20Gi", 20 * GIB), ("500Mi", 500 * 2**20), ("1G", 1e9), ("1e9", 1e9), (0, 0), (1024, 1024), (None, None)],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(written: Any, amount: float | None) -> None:
    read = ReplacementLimits.model_validate({"pullBytesPerPool": written})
    assert read.pull_bytes_per_pool == amount
    again = ReplacementLimits.model_validate(read.model_dump(mode="json", by_alias=True))
    assert again == read


@pytest.mark.parametrize("written", ["20GB", "-1Gi", -1, "", True, 1.5, "9Ei", ["1Gi"]])
def test_what_is_no_quantity_of_bytes_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match="expected a quantity of bytes such as 500Mi or 20Gi"):
        ReplacementLimits.model_validate({"pullBytesPerPool": written})


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "0"), (1023, "1023"), (1024, "1Ki"), (1536, "1.5Ki"), (18.24 * GIB, "18.2Gi"), (20 * GIB, "20Gi")],
)
def test_bytes_are_shown_short(amount: float, shown: str) -> None:
    assert size(amount) == shown
