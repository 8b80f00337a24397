"""Every refusal has a code and a sentence."""

import re

import pytest

from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError, UnsafeDataError
from rebalancer.model.reason import BlockedReason, Code, MissReason, Reason, Refusal
from rebalancer.model.records.effect import Outcome


@pytest.mark.parametrize("code", [*Reason, *BlockedReason, *MissReason, *Outcome])
def test_every_code_has_a_sentence_in_plain_words(code: Code) -> None:
    assert code.sentence
    assert not code.sentence.endswith(".")
    assert code.sentence == code.sentence.strip()


def test_no_sentence_stands_twice() -> None:
    assert len({reason.sentence for reason in Reason}) == len(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_codes_are_one_camel_case_word_like_their_name(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason.value)
    assert reason.value.upper() == reason.name.replace("_", "")


def test_a_refusal_is_the_sentence_with_its_particulars() -> None:
    assert Refusal.of(Reason.POOL_FULL).message == Reason.POOL_FULL.sentence
    assert Refusal.of(Reason.LIMIT_NODE, "2 of 2").message == f"{Reason.LIMIT_NODE.sentence}: 2 of 2"


def test_each_branch_of_the_errors_has_its_exit_code() -> None:
    codes = {error: error.exit_code for error in (RebalancerError, UnsafeDataError, ConfigError, ConnectError)}
    assert codes == {RebalancerError: 1, UnsafeDataError: 3, ConfigError: 4, ConnectError: 5}
    assert all(issubclass(error, RebalancerError) for error in codes)
