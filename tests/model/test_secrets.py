"""What is taken out of texts."""

import pytest

from rebalancer.model.errors import ConnectError
from rebalancer.model.secrets import redacted, remember


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
