"""A backtest as an SVG plot: the loss of each predictor, the days of one node, and forecasts against actuals."""

from html import escape
from pathlib import Path

import numpy as np

from rebalancer.cli.common import write_file
from rebalancer.forecast.backtest.backtest import Backtest

WIDTH, HEIGHT, LEFT, TOP = 860, 300, 60, 40
SQUARE = 360
COLOURS = ("#2563eb", "#dc2626")
GREY, LIGHT = "#9ca3af", "#e5e7eb"
BAR = 22


def write_picture(result: Backtest, path: Path) -> None:
    """Writes SVG, or an HTML page for `.html`. Raises ConfigError for a path that cannot be written."""
    text = picture(result)
    if path.suffix == ".html":
        text = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Backtest</title>\n{text}</html>\n'
    write_file(path, text)


def picture(result: Backtest) -> str:
    """The SVG document."""
    days_top = TOP + BAR * len(result.total.scores) + 50
    square_top = days_top + HEIGHT + 90
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 40}" height="{square_top + SQUARE + 50}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_losses(result, TOP),
        *_days(result, days_top),
        *_scatter(result, square_top),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _losses(result: Backtest, top: int) -> list[str]:
    scores = sorted(result.total.scores, key=lambda each: each.errors.pinball)
    most = max(score.errors.pinball for score in scores) or 1.0
    out = [
        _text(
            LEFT,
            top - 10,
            "Pinball loss at 0.9 with margin, share of a node's mean CPU; blue: the default, red: baselines",
        )
    ]
    for row, score in enumerate(scores):
        colour = COLOURS[0] if score.predictor == result.default else COLOURS[1] if score.simple else GREY
        wide = (WIDTH - 240) * score.errors.pinball / most
        out.append(
            f'<rect x="{LEFT + 140}" y="{top + BAR * row}" width="{wide:.1f}" height="{BAR - 6}" fill="{colour}"/>'
        )
        out.append(_text(LEFT, top + BAR * row + 13, score.predictor))
        out.append(_text(LEFT + 148 + wide, top + BAR * row + 13, f"{score.errors.pinball:.4f}"))
    return out


def _days(result: Backtest, top: int) -> list[str]:
    example = result.example
    lines = {name: example.forecasts[name] for name in dict.fromkeys((result.default, result.best_simple.predictor))}
    most = max(1.0, *(float(np.nanmax(line, initial=0.0)) for line in (example.actual, *lines.values())))
    step = WIDTH / max(len(example.days), 1)

    def x(place: int) -> float:
        return LEFT + step * (place + 0.5)

    def y(share: float) -> float:
        return top + HEIGHT * (1 - share / most)

    out = [_text(LEFT, top - 16, f"{example.node}: P95 of each day (bars) and its forecasts, share of capacity")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        out.append(_line(LEFT, y(share), LEFT + WIDTH, y(share), LIGHT))
        out.append(_text(8, y(share) + 4, f"{share:.0%}"))
    if example.high <= most:
        out.append(_line(LEFT, y(example.high), LEFT + WIDTH, y(example.high), "#f59e0b"))
    for place, (day, share) in enumerate(zip(example.days, example.actual.tolist(), strict=True)):
        if np.isfinite(share):
            out.append(
                f'<rect x="{x(place) - step * 0.3:.1f}" y="{y(share):.1f}" width="{step * 0.6:.1f}" '
                f'height="{HEIGHT * share / most:.1f}" fill="{GREY}"/>'
            )
        label = day[-5:]  # of a date the month and the day
        out.append(_text(x(place) - 3 * len(label), top + HEIGHT + 16, label))
    for place, ((name, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
        known = [(at, share) for at, share in enumerate(line.tolist()) if np.isfinite(share)]
        points = " ".join(f"{x(at):.1f},{y(share):.1f}" for at, share in known)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(_text(LEFT + 180 * place, top + HEIGHT + 36, name, colour))
    return out


def _scatter(result: Backtest, top: int) -> list[str]:
    most = max(1.0, float(result.scatter.max(initial=0.0)))
    out = [
        _text(LEFT, top - 16, f"{result.default}: forecast (up) against actual P95 (right), share of capacity;"),
        _text(LEFT, top - 2, "above the line the forecast was high enough"),
        f'<rect x="{LEFT}" y="{top + 6}" width="{SQUARE}" height="{SQUARE}" fill="none" stroke="{LIGHT}"/>',
        _line(LEFT, top + 6 + SQUARE, LEFT + SQUARE, top + 6, "#f59e0b"),
        _text(LEFT - 8, top + SQUARE + 22, "0%"),
        _text(LEFT + SQUARE - 20, top + SQUARE + 22, f"{most:.0%}"),
        _text(8, top + 16, f"{most:.0%}"),
    ]
    for actual, said in result.scatter.T.tolist():
        colour = COLOURS[0] if said >= actual else COLOURS[1]
        x, y = LEFT + SQUARE * actual / most, top + 6 + SQUARE * (1 - said / most)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}" fill-opacity="0.5"/>')
    return out


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str = "#111827") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(text)}</text>'
