"""Base of the response schemas of the control API."""

import msgspec


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object that rejects unknown fields."""
