"""What is taken out of texts."""

import base64
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from rebalancer.model.errors import ConnectError
from rebalancer.model.secrets import redacted, redacted_output, remember


def test_known_secrets_are_taken_out_the_longest_first() -> None:
    remember("opensesame", "opensesame-and-more\n", "abc")
    assert redacted("it was opensesame-and-more, opensesame, abc") == "it was ***, ***, abc"
    assert str(ConnectError("proxy said opensesame")) == "proxy said ***"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Bearer abc.def-ghi_123", "Authorization: Bearer ***"),
        ("'authorization': 'Basic dXNlcjpwYXNzd29yZA=='", "'authorization': 'Basic ***'"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln ended", "token *** ended"),
        ("http://ana:hunter2@proxy:3128 failed", "http://***@proxy:3128 failed"),
        ("expected postgresql://<user>:<password>@<host>/<database>", None),
        ("postgresql://u:***@db/x: refused", None),
        ("bearer token wrong or expired", None),
    ],
)
def test_what_looks_like_credentials_is_taken_out(text: str, left: str | None) -> None:
    assert redacted(text) == (text if left is None else left)


TOKEN = "Key/with+Signs=and.Dots~42"


@pytest.mark.parametrize("before", ["", "x", "xy", "user:", "Bearer "])
@pytest.mark.parametrize("after", ["", "!", "!!", ":rest of it"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_in_base64_is_taken_out_wherever_it_stands(
    before: str, after: str, encode: Callable[[bytes], bytes]
) -> None:
    remember(TOKEN)
    text = encode(f"{before}{TOKEN}{after}".encode()).decode().strip()
    shown = redacted(f"proxy said {text} to that")
    assert "***" in shown
    for part in shown.removeprefix("proxy said ").removesuffix(" to that").split("***"):
        # of its neighbours alone
        assert len(part) <= len(encode(max(before, after, key=len).encode())) + 1


@pytest.mark.parametrize(
    "form",
    [
        quote(TOKEN, safe=""),
        quote(TOKEN),
        quote_plus(TOKEN).lower(),
        "".join(f"%{each:02X}" for each in TOKEN.encode()),
        TOKEN.upper(),
        TOKEN.lower(),
        quote(TOKEN, safe="").upper(),
        quote(base64.b64encode(TOKEN.encode()).decode(), safe=""),
        base64.b64encode(TOKEN.encode()).decode().lower(),
    ],
)
def test_a_secret_that_is_echoed_in_another_form_is_taken_out(form: str) -> None:
    remember(TOKEN)
    assert redacted(f"proxy said {form}, and 100% more") == "proxy said ***, and 100% more"


def test_a_secret_of_other_letters_is_taken_out() -> None:
    remember("pässwörd")
    assert redacted(f"said {quote('pässwörd')}, PÄSSWÖRD") == "said ***, ***"


def test_a_short_secret_takes_no_other_words_with_it_in_base64() -> None:
    remember("zyx1")
    assert redacted(base64.b64encode(b"zyx1").decode()) == base64.b64encode(b"zyx1").decode()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("login failed: client_secret=hunter2 is wrong", "login failed: client_secret=*** is wrong"),
        ('{"access_token": "abc"}', '{"access_token": "***"}'),
        ("password: swordfish", "password: ***"),
        ("issued k8s-aws-v1.aHR0cHM6Ly9zdHMuYW1hem9uYXdz now", "issued *** now"),
        ("exec: process returned 1. no such profile: default", None),
        ("token expired, run the login command", None),
    ],
)
def test_of_another_programs_output_what_may_be_a_secret_is_taken_out(text: str, left: str | None) -> None:
    assert redacted_output(text) == (text if left is None else left)


def test_a_text_of_megabytes_is_redacted_in_a_moment() -> None:
    remember(*(f"{TOKEN}-{number}" for number in range(20)))
    text = "a line of a log with words and 100% of them harmless\n" * 20_000
    began = time.process_time()
    assert redacted(text) == text
    assert time.process_time() - began < 2.0
