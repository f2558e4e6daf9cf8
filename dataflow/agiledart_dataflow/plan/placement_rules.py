"""Rules about the nodes of a step, and expected figures of its rows; a builder states them with `place` and `expect`.

Both are options of the step, so they are part of the digest that a user's command signs. The graph is cut where rules change; all
steps of a stage have the same ones.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Final, TypeVar

import msgspec

from agiledart_kernel.errors import TopologyError
from agiledart_kernel.labels import MAX_LABEL, MAX_LABELS, is_label
from agiledart_kernel.spans import parse_span

PLACE: Final = "place"
"""Option of a step with rules about its nodes."""

EXPECT: Final = "expect"
"""Option of a step with expected figures."""

AT_LABEL: Final = "label:"
"""Prefix of `at=` that selects a node by its label."""

KINDS: Final = ("node", "host", "zone")
"""Places that two steps with `apart_from` may not share."""

MAX_NAMES: Final = 64
"""Nodes, or steps, in one rule."""

MAX_EXPECTED: Final = 1e12
"""Bound of expected figures."""


class PlacementRules(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rules about the nodes of a step or a stage.

    Attributes:
        labels: that a node must have, all of them.
        zone: only nodes of this zone; "": any.
        on: only these nodes, by name; empty: any.
        together_with: steps on whose nodes it must run, pairwise by instance number.
        apart_from: (`node`, `host` or `zone`, step) that no instance of both may share.
    """

    labels: tuple[str, ...] = ()
    zone: str = ""
    on: tuple[str, ...] = ()
    together_with: tuple[str, ...] = ()
    apart_from: tuple[tuple[str, str], ...] = ()

    def broken_by(self, name: str, zone: str, labels: Sequence[str]) -> str:
        """Return the rule that forbids a node, in words; "": these rules allow it. Rules about other steps are not looked at."""
        missing = [label for label in self.labels if label not in labels]
        if missing:
            return f"needs the label {missing[0]}"
        if self.zone and zone != self.zone:
            return f"only zone {self.zone}"
        if self.on and name not in self.on:
            return f"only on {', '.join(self.on)}"
        return ""


NO_RULES: Final = PlacementRules()


class ExpectedFigures(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Expected figures of a step, used until measurements exist. None: not stated.

    Attributes:
        ms: time for one row on a core of the reference speed.
        rows_per_s: rows that a source emits.
        selectivity: rows out for each row in.
        bytes: of a row that leaves the step.
        slo_ms: time that a row may take: of a sink from its reading on, of another step in this step alone.
    """

    ms: float | None = None
    rows_per_s: float | None = None
    selectivity: float | None = None
    bytes: float | None = None
    slo_ms: float | None = None


NO_FIGURES: Final = ExpectedFigures()

T = TypeVar("T", PlacementRules, ExpectedFigures)


def rules_from(
    step: str,
    steps: Sequence[str],
    *,
    labels: Sequence[str],
    zone: str,
    on: Sequence[str],
    together_with: Sequence[str],
    apart_from: Sequence[str],
) -> PlacementRules:
    """Return the rules that a builder gave a step. Raises `ValueError` with the mistake in words.

    Args:
        steps: names of the topology's steps.
        apart_from: `STEP`, `host:STEP` or `zone:STEP`.
    """
    for name, texts in (("labels", labels), ("on", on), ("together_with", together_with), ("apart_from", apart_from)):
        if isinstance(texts, str):
            raise ValueError(f"{name} is a list of names, as [{texts!r}], not one text")
        if len(texts) > (MAX_LABELS if name == "labels" else MAX_NAMES):
            raise ValueError(
                f"{name} has {len(texts)} names, at most {MAX_LABELS if name == 'labels' else MAX_NAMES} are possible"
            )
    for label in labels:
        if not isinstance(label, str) or not is_label(label):
            raise ValueError(f"{label!r} cannot be a label: 1 to {MAX_LABEL} letters, digits and - _ .")
    apart = []
    for text in apart_from:
        kind, colon, other = str(text).partition(":")
        apart.append((kind, other) if colon and kind in KINDS else ("node", str(text)))
    for other in (*together_with, *(name for _, name in apart)):
        if other not in steps:
            near = get_close_matches(other, steps, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no step {other!r}.{hint} Steps so far: {', '.join(steps)}")
        if other == step:
            raise ValueError(f"{step!r} cannot be together with or apart from itself")
    both = [other for kind, other in apart if other in together_with]
    if both:
        raise ValueError(f"{step!r} cannot be together with {both[0]!r} and apart from it")
    return PlacementRules(
        tuple(sorted(dict.fromkeys(labels))),
        zone,
        tuple(sorted(dict.fromkeys(on))),
        tuple(sorted(dict.fromkeys(together_with))),
        tuple(sorted(dict.fromkeys(apart))),
    )


def figures_from(**figures: float | None) -> ExpectedFigures:
    """Return the expected figures that a builder gave. Raises `ValueError` with the mistake in words."""
    for name, value in figures.items():
        if value is not None and not (
            isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_EXPECTED
        ):
            raise ValueError(f"{name} is {value!r}; expected is a number from 0")
    return ExpectedFigures(**{name: None if value is None else float(value) for name, value in figures.items()})


def slo_ms_of(slo: timedelta | str | None) -> float | None:
    """Return the milliseconds of a builder's service level, such as `"500ms"`. Raises `ValueError` with the mistake in words."""
    if slo is None:
        return None
    try:
        span = parse_span(slo) if isinstance(slo, str) else slo
    except ValueError:
        span = None
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise ValueError(f'slo is {slo!r}; it is a time above 0 with its unit, as "500ms" or timedelta(seconds=2)')
    return span / timedelta(milliseconds=1)


def with_slo(options: tuple[tuple[str, str], ...], slo_ms: float) -> tuple[tuple[str, str], ...]:
    """Return the options of a step with a service level, unless they have one."""
    figures = figures_of(dict(options))
    if figures.slo_ms is not None:
        return options
    others = [option for option in options if option[0] != EXPECT]
    return tuple(sorted((*others, (EXPECT, written(msgspec.structs.replace(figures, slo_ms=slo_ms))))))


def written(value: PlacementRules | ExpectedFigures) -> str:
    """Return rules or figures as the text of an option."""
    return msgspec.json.encode(value).decode()


def rules_of(options: Mapping[str, str]) -> PlacementRules:
    """Return the rules among the options of a step. Raises `TopologyError` for a text that no builder writes."""
    return _read(options, PLACE, NO_RULES)


def figures_of(options: Mapping[str, str]) -> ExpectedFigures:
    """Return the expected figures among the options of a step. Raises `TopologyError` as `rules_of`."""
    return _read(options, EXPECT, NO_FIGURES)


def _read(options: Mapping[str, str], name: str, default: T) -> T:
    text = options.get(name)
    if not text:
        return default
    try:
        return msgspec.json.decode(text, type=type(default))
    except msgspec.MsgspecError:
        raise TopologyError(f"the option {name} of a step is not readable: {text[:80]!r}") from None
