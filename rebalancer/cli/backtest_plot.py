"""A backtest as one SVG picture: a node's days against their forecasts, and every predictor's loss."""

from html import escape

from rebalancer.forecast.backtest import HIGH_SHARE, Backtest

WIDTH, HEIGHT, LEFT, TOP = 860, 300, 60, 40
COLOURS = ("#2563eb", "#dc2626")
BAR = 22


def picture(result: Backtest) -> str:
    """The SVG document."""
    bars_top = TOP + HEIGHT + 70
    height = bars_top + BAR * len(result.scores) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 40}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_days(result),
        *_losses(result, bars_top),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _days(result: Backtest) -> list[str]:
    example = result.example
    simple = result.best_simple.predictor
    lines = {name: example.forecasts[name] for name in (result.default, simple)}
    top = max(1.0, float(example.actual.max()), *(float(line.max()) for line in lines.values()))
    step = WIDTH / max(len(example.days), 1)

    def x(place: int) -> float:
        return LEFT + step * (place + 0.5)

    def y(share: float) -> float:
        return TOP + HEIGHT * (1 - share / top)

    out = [_text(LEFT, TOP - 16, f"{example.node}: P95 of each day (bars) and its forecasts, share of capacity")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        colour = "#f59e0b" if share == HIGH_SHARE else "#e5e7eb"
        out.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="{colour}"/>')
        out.append(_text(8, y(share) + 4, f"{share:.0%}"))
    for place, (day, share) in enumerate(zip(example.days, example.actual.tolist(), strict=True)):
        out.append(
            f'<rect x="{x(place) - step * 0.3:.1f}" y="{y(share):.1f}" width="{step * 0.6:.1f}" '
            f'height="{HEIGHT * share / top:.1f}" fill="#9ca3af"/>'
        )
        out.append(_text(x(place) - 6, TOP + HEIGHT + 16, str(day)))
    for place, ((name, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
        points = " ".join(f"{x(at):.1f},{y(share):.1f}" for at, share in enumerate(line.tolist()))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(_text(LEFT + 180 * place, TOP + HEIGHT + 36, name, colour))
    return out


def _losses(result: Backtest, top: int) -> list[str]:
    scores = sorted(result.scores, key=lambda each: each.errors.pinball)
    most = max(score.errors.pinball for score in scores) or 1.0
    out = [_text(LEFT, top - 10, "Pinball loss at 0.9 with margin, share of a node's mean CPU")]
    for row, score in enumerate(scores):
        colour = COLOURS[0] if score.predictor == result.default else COLOURS[1] if score.simple else "#9ca3af"
        wide = (WIDTH - 240) * score.errors.pinball / most
        out.append(
            f'<rect x="{LEFT + 140}" y="{top + BAR * row}" width="{wide:.1f}" height="{BAR - 6}" fill="{colour}"/>'
        )
        out.append(_text(LEFT, top + BAR * row + 13, score.predictor))
        out.append(_text(LEFT + 148 + wide, top + BAR * row + 13, f"{score.errors.pinball:.4f}"))
    return out


def _text(x: float, y: float, text: str, colour: str = "#111827") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(text)}</text>'
