"""Format `senml`: packs of measurements (RFC 8428). Base values are resolved, so that each record stands alone, and fills a
row by the names `name`, `unit`, `time` and `value` (also `string`, `boolean`, `data`, `sum`), or the RFC's `n`, `u`, `t`, `v`.
"""

import time
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.decoder_options import PLAIN_OPTIONS, DecoderOptions
from agiledart_connectors.codecs.encodings import payload_text
from agiledart_connectors.codecs.json_decoder import JsonDecoder
from agiledart_connectors.codecs.malformed_examples import (
    FORM,
    TYPE,
    MalformedError,
    MalformedPart,
    PartlyMalformedError,
    bounded_repr,
)

_NAMES: Final = {"n": "name", "u": "unit", "v": "value", "vs": "string", "vb": "boolean", "vd": "data", "s": "sum"}

_RELATIVE: Final = 2**28
"""Times below it count from now (section 4.5.3)."""


class SenmlDecoder:
    """Packs → rows.

    Args:
        row_type: of the rows.
        clock: seconds since 1970, for times relative to now.
        options: the encoding.
    """

    def __init__(self, row_type: Any, clock: Any = time.time, options: DecoderOptions = PLAIN_OPTIONS) -> None:
        self._rows = JsonDecoder(row_type)
        self._clock, self._encoding = clock, options.encoding

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        return None

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        payload = payload_text(payload, self._encoding).encode()
        try:
            pack = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedError(FORM, f"is no JSON ({error}): {bounded_repr(payload)}") from None
        if not isinstance(pack, list):
            raise MalformedError(FORM, f"is no SenML pack, which is an array of objects: {bounded_repr(payload)}")
        rows: list[Any] = []
        parts: list[MalformedPart] = []
        base: dict[str, Any] = {}
        for number, given in enumerate(pack):
            try:
                record = self._resolved(base, given)
                if record is not None:
                    rows += self._rows.rows(msgspec.json.encode(record), wall_ns)
            except MalformedError as error:
                parts.append(MalformedPart(f"[{number}]", msgspec.json.encode(given), error))
        if len(parts) == len(pack) == 1:
            raise parts[0].error
        if parts:
            raise PartlyMalformedError(rows, parts)
        return rows

    def _resolved(self, base: dict[str, Any], given: Any) -> dict[str, Any] | None:
        """Return a record with its base values (section 4.6), None for one that only gives such. Raises `MalformedError`."""
        if not isinstance(given, dict):
            raise MalformedError(FORM, f"is no record of SenML, which is an object: {bounded_repr(given)}")
        if unknown := [name for name in given if name.endswith("_")]:
            raise MalformedError(FORM, f"{unknown[0]}: a label that must be understood, and is not")
        before = dict(base)
        base |= {name: value for name, value in given.items() if name.startswith("b")}
        record = {name: value for name, value in given.items() if not name.startswith("b")}
        try:
            self._add_base(base, record)
        except (TypeError, OverflowError):
            base.clear()
            base |= before  # the neighbours are resolved without what is wrong here
            raise MalformedError(TYPE, f"base values do not go with {bounded_repr(given)}") from None
        if len(record) > 2 or "v" in record:
            return record | {_NAMES[name]: value for name, value in record.items() if name in _NAMES}
        return None

    def _add_base(self, base: dict[str, Any], record: dict[str, Any]) -> None:
        record["n"] = base.get("bn", "") + record.get("n", "")
        at = base.get("bt", 0) + record.get("t", 0)
        record["t"] = record["time"] = at + self._clock() if at < _RELATIVE else at
        if "bu" in base:
            record.setdefault("u", base["bu"])
        if "v" in record or ("bv" in base and not {"vs", "vb", "vd"} & set(record)):
            record["v"] = base.get("bv", 0) + record.get("v", 0)
        if "s" in record or "bs" in base:
            record["s"] = base.get("bs", 0) + record.get("s", 0)
