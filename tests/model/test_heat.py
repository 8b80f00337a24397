"""The one figure, in words."""

import pytest

from rebalancer.model.notation.heat import Heat, heat_sentence, hot_hours


def heat(before: float | None, after: float, evictions: int) -> Heat:
    return Heat(before=before, after=after, evictions=evictions)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (heat(38.2, 3.4, 12), "Hot node-hours 38.2 -> 3.4 (-91%): 12 evictions, 0.34 for each hour relieved"),
        (heat(412.3, 206.1, 1), "Hot node-hours 412 -> 206 (-50%): 1 eviction, 0.0048 for each hour relieved"),
        (heat(2.0, 2.0, 0), "Hot node-hours 2 -> 2: no evictions"),
        # nothing was relieved, so no hour has a cost
        (heat(2.0, 3.0, 4), "Hot node-hours 2 -> 3 (+50%): 4 evictions"),
        (heat(0.0, 1.0, 1), "Hot node-hours 0 -> 1: 1 eviction"),
        (heat(None, 70.84, 3), "Hot node-hours 70.8: 3 evictions"),
    ],
)
def test_the_figure_in_words(of: Heat, said: str) -> None:
    assert heat_sentence(of) == said


def test_it_says_what_is_compared() -> None:
    assert hot_hours(heat(3.0, 1.0, 2), of="of the next hour") == "Hot node-hours of the next hour 3 -> 1 (-67%)"
    assert hot_hours(heat(None, 1.0, 2), of="against the weeks before") == "Hot node-hours 1"
