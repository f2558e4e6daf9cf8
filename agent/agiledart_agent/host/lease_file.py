"""File with the terms of the lease of this machine, which its start data have brought."""

from pathlib import Path
from typing import Annotated

import msgspec

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_node.wire.lease_messages import LeaseTerms

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Seconds = Annotated[int, msgspec.Meta(ge=1, le=10 * 365 * 86_400)]


class LeaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file; `LeaseTerms` explains the fields."""

    lease_id: _Name
    gate: _Name
    unit_s: _Seconds
    grace_s: _Seconds = 900
    silence_s: _Seconds = 300
    host_id: str = ""


def lease_terms(path: str) -> LeaseTerms | None:
    """Return the terms in a file; None: no file is set, so the machine is not leased. Raises ConfigurationError."""
    if not path:
        return None
    try:
        terms = msgspec.json.decode(Path(path).read_bytes(), type=LeaseFile)
    except OSError as error:
        raise ConfigurationError(f"agent.lease_file: {path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"agent.lease_file: {path}: {error}") from None
    return LeaseTerms(
        terms.lease_id,
        terms.gate,
        terms.host_id,
        terms.unit_s * SECOND,
        terms.grace_s * SECOND,
        terms.silence_s * SECOND,
    )
