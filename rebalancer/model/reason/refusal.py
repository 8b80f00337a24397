"""A refusal: why something was not done, with its numbers and names."""

from dataclasses import dataclass

from rebalancer.model.reason.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something was not done: a code, and the sentence with its numbers and names."""

    code: Reason
    message: str
    next_at: float | None = None
    """Seconds since the epoch of the earliest retry, where only time lifts it and the time is known."""
    setting: str = ""
    """Policy key that holds it; empty = not known."""
    value: str = ""
    """A value of `setting` that would lift it; empty = not known."""

    @classmethod
    def of(cls, code: Reason, detail: str = "", *, next_at: float | None = None) -> "Refusal":
        """The code's sentence, with the particulars behind a colon."""
        return cls(code=code, message=f"{code.sentence}: {detail}" if detail else code.sentence, next_at=next_at)


def particulars(message: str, sentence: str) -> str:
    """The part of a refusal's message beyond its code's sentence: what holds for this pod or node alone."""
    return message.removeprefix(sentence).removeprefix(": ")
