"""Every refusal has a code and a sentence."""

import re

import pytest

from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError, UnsafeDataError
from rebalancer.model.reason import SENTENCES, Reason, Refusal


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_sentence_in_plain_words(reason: Reason) -> None:
    sentence = SENTENCES[reason]
    assert sentence
    assert not sentence.endswith(".")
    assert sentence == sentence.strip()


def test_no_sentence_is_without_a_reason_and_none_stands_twice() -> None:
    assert set(SENTENCES) == set(Reason)
    assert len(set(SENTENCES.values())) == len(SENTENCES)


@pytest.mark.parametrize("reason", Reason)
def test_codes_are_one_camel_case_word_like_their_name(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason.value)
    assert reason.value.upper() == reason.name.replace("_", "")


def test_a_refusal_is_the_sentence_with_its_particulars() -> None:
    assert Refusal.of(Reason.POOL_FULL).message == SENTENCES[Reason.POOL_FULL]
    assert Refusal.of(Reason.LIMIT_NODE, "2 of 2").message == f"{SENTENCES[Reason.LIMIT_NODE]}: 2 of 2"


def test_each_branch_of_the_errors_has_its_exit_code() -> None:
    codes = {error: error.exit_code for error in (RebalancerError, UnsafeDataError, ConfigError, ConnectError)}
    assert codes == {RebalancerError: 1, UnsafeDataError: 3, ConfigError: 4, ConnectError: 5}
    assert all(issubclass(error, RebalancerError) for error in codes)
