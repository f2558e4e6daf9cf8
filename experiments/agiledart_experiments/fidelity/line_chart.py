"""Line chart as SVG, for a page that needs no other file."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from agiledart_experiments.fidelity.fidelity_report import Curve

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 40
COLOURS = ("#1b6ca8", "#d1495b", "#2e7d32", "#8e5ea2", "#c77700", "#00838f", "#6d4c41", "#546e7a")
MOST_LABELS = 12


def line_chart(curves: Sequence[Curve], x_label: str, *, is_log: bool = False) -> str:
    """Return a chart of these curves as an SVG element; values to compare with are dashed.

    Words on the x axis stand in the order of their first appearance. A curve whose points hold two places each is drawn as
    separate segments, as a map.
    """
    if any(isinstance(point[0], list | tuple) for curve in curves for point in curve.points):
        return _map_of(curves)
    words = _words(curves)
    numbers = [[(_at(x, words, is_log=is_log), float(y)) for x, y in curve.points] for curve in curves]
    xs = [x for points in numbers for x, _ in points]
    ys = [y for points in numbers for _, y in points if math.isfinite(y)]
    if not xs or not ys:
        return ""
    low_x, high_x = min(xs), max(xs)
    low_y, high_y = min(0.0, *ys), max(ys)
    span_x, span_y = (high_x - low_x) or 1.0, (high_y - low_y) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * (x - low_x) / span_x
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low_y) / span_y

    parts = [_frame(low_y, high_y, x_label), *_x_marks(words, xs, place, is_log=is_log)]
    colours: dict[str, str] = {}
    for curve, points in zip(curves, numbers, strict=True):
        colour = colours.setdefault(curve.label, COLOURS[len(colours) % len(COLOURS)])
        parts.append(_line([place(x, y) for x, y in points], colour, is_dashed=curve.origin != "here"))
    legend = "".join(f'<span style="color:{colour}">{escape(label)}</span> ' for label, colour in colours.items())
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg><p class="legend">{legend}</p>'


def _words(curves: Sequence[Curve]) -> dict[Any, int]:
    """Return places of the x values that are words; empty when all are numbers."""
    values = [point[0] for curve in curves for point in curve.points]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return {}
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _at(x: Any, words: dict[Any, int], *, is_log: bool) -> float:
    if words:
        return float(words[x])
    return math.log10(x) if is_log and x > 0 else float(x)


def _line(points: list[tuple[float, float]], colour: str, *, is_dashed: bool) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 3"' if is_dashed else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in points[:40])
    return f'<polyline points="{path}" fill="none" stroke="{colour}"{dash}/>{dots}'


def _frame(low: float, high: float, x_label: str) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    return (
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#888"/>'
        f'<text x="{LEFT - 4}" y="{TOP + 8}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{LEFT - 4}" y="{bottom}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>'
    )


def _x_marks(words: dict[Any, int], xs: list[float], place: Any, *, is_log: bool) -> list[str]:
    if words:
        marks = [(float(at), str(word)) for word, at in words.items()][:MOST_LABELS]
    else:
        marks = [(x, f"{10**x if is_log else x:.4g}") for x in (min(xs), max(xs))]
    return [
        f'<text x="{place(x, 0)[0]:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{escape(text)}</text>'
        for x, text in marks
    ]


def _map_of(curves: Sequence[Curve]) -> str:
    """Return segments between two places each, north up."""
    segments = [(*point[0], *point[1]) for curve in curves for point in curve.points]
    longitudes = [value for s in segments for value in (s[0], s[2])]
    latitudes = [value for s in segments for value in (s[1], s[3])]
    west, south = min(longitudes), min(latitudes)
    across = (max(longitudes) - west) * math.cos(math.radians(south)) or 1.0
    scale = min(WIDTH / across, 2 * HEIGHT / ((max(latitudes) - south) or 1.0))
    top = (max(latitudes) - south) * scale

    def place(longitude: float, latitude: float) -> str:
        x = (longitude - west) * math.cos(math.radians(south)) * scale
        return f"{x:.1f} {top - (latitude - south) * scale:.1f}"

    path = "".join(f"M{place(s[0], s[1])}L{place(s[2], s[3])}" for s in segments)
    box = f"-4 -4 {across * scale + 8:.0f} {top + 8:.0f}"
    return f'<svg viewBox="{box}" role="img"><path d="{path}" fill="none" stroke="#555"/></svg>'
