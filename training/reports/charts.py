"""Line charts as SVG text."""

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 520, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 34
_COLORS = ("#1f6feb", "#d1570a", "#1a7f37", "#8250df", "#bf3989", "#57606a")


def line_chart(
    series: Mapping[str, Sequence[float]], *, percent: bool = False, marked: int = 0
) -> str:
    """Draw values by epoch.

    Args:
        series: Values of epoch 1, 2 and so on, by name. What is no finite number
            leaves a gap.
        percent: Whether the values are shares, 0 to 1, to be shown in percent.
        marked: An epoch to mark by an upright line; 0: none.

    Returns:
        An `<svg>` element with its legend.
    """
    epochs = max(len(values) for values in series.values())
    finite = [v for values in series.values() for v in values if math.isfinite(v)]
    ticks = _ticks(min(finite, default=0.0), max(finite, default=1.0))
    low, high = ticks[0], ticks[-1]
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(epoch: float) -> float:
        return _LEFT + width * (0.5 if epochs == 1 else (epoch - 1) / (epochs - 1))

    def y(value: float) -> float:
        return _TOP + height * (1 - (value - low) / (high - low))

    right, foot = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in ticks:
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{right}"/>')
        text = f"{100 * tick:.4g}%" if percent else f"{tick:.4g}"
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">'
            f"{text}</text>"
        )
    for epoch in _epoch_ticks(epochs):
        parts.append(
            f'<text x="{x(epoch):.1f}" y="{foot + 16}" text-anchor="middle">'
            f"{epoch}</text>"
        )
    parts.append(
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 3}" text-anchor="middle">'
        "epoch</text>"
    )
    if marked:
        parts.append(
            f'<path class="mark" d="M{x(marked):.1f} {_TOP}V{foot}">'
            f"<title>best epoch: {marked}</title></path>"
        )
    keys = []
    for number, (name, values) in enumerate(series.items()):
        color = _COLORS[number % len(_COLORS)]
        points = [(x(e), y(v)) if math.isfinite(v) else None for e, v in _count(values)]
        parts.append(
            f'<path fill="none" stroke="{color}" stroke-width="2" d="{_path(points)}"/>'
        )
        if epochs <= 60:
            parts += [
                f'<circle cx="{p[0]:.1f}" cy="{p[1]:.1f}" r="3" fill="{color}"/>'
                for p in points
                if p
            ]
        keys.append(f'<span><i style="background:{color}"></i>{escape(name)}</span>')
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(", ".join(series))}">{"".join(parts)}</svg>'
        f'<div class="keys">{"".join(keys)}</div>'
    )


def _count(values: Sequence[float]) -> list[tuple[int, float]]:
    return list(enumerate(values, start=1))


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    steps, command = [], "M"
    for point in points:
        if point is None:
            command = "M"
            continue
        steps.append(f"{command}{point[0]:.1f} {point[1]:.1f}")
        command = "L"
    return "".join(steps)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers around a range, at most 6 steps."""
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        high = low + (abs(low) or 1.0)
    raw = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * n for n in range(first, last + 1)]


def _epoch_ticks(epochs: int) -> list[int]:
    ticks = [round(tick, 6) for tick in _ticks(1, epochs)]
    return [int(tick) for tick in ticks if tick % 1 == 0 and 1 <= tick <= epochs]
