"""Interface of a format: a `Decoder` makes the rows of one payload (a line, a message), or raises what is wrong with it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from agiledart_connectors.codecs.malformed_examples import (
    FORM,
    MalformedError,
    MalformedExamples,
    MalformedPart,
    PartlyMalformedError,
    bounded_repr,
    refuse,
)


class Decoder(Protocol):
    """One format for rows of one type."""

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        """The rows of a payload, usually one.

        Raises:
            MalformedError: the payload makes no row.
            PartlyMalformedError: it holds several records, and some of them make no row.
        """
        ...

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        """The rows of many lines, one for each that is not blank; None where any is in doubt, or there is no quicker way."""
        ...


def decoded(
    decoder: Decoder,
    payloads: Sequence[bytes],
    wall_ns: int,
    malformed: dict[str, int],
    examples: MalformedExamples,
    place: Callable[[int], str],
) -> list[Any]:
    """Return the rows of payloads; count malformed payloads and parts of such, and describe the first of each reason."""
    rows: list[Any] = []
    for index, payload in enumerate(payloads):
        try:
            rows += decoder.rows(payload, wall_ns)
        except PartlyMalformedError as error:
            rows += error.rows
            for part in error.parts:
                refuse(malformed, part.error, examples, partial(_place_of_part, place, index, part), part.record)
        except MalformedError as error:
            refuse(malformed, error, examples, partial(place, index), payload)
        except RecursionError:
            deep = MalformedError(FORM, f"nested too deeply: {bounded_repr(payload)}")
            refuse(malformed, deep, examples, partial(place, index), payload)
        except Exception as error:  # noqa: BLE001  a format's fault with one payload costs that payload alone
            text = f"cannot be read ({type(error).__name__}: {error}): {bounded_repr(payload)}"
            refuse(malformed, MalformedError(FORM, text), examples, partial(place, index), payload)
    return rows


def _place_of_part(place: Callable[[int], str], index: int, part: MalformedPart) -> str:
    return place(index) + part.place
