"""Messages of the service `fragments`: one conversation for each request number of the dialer.

| dialer → replica node | replica node → dialer |
|---|---|
| PUT | GO, or REFUSED |
| CHUNK … | STORED when the last one is on the disk under its hash, or REFUSED |
| GET | PIECE …, or REFUSED |
| TAKE | PIECE …, or REFUSED |

The bytes have links of their own, and travel in pieces, so that probes and commands between agents do not wait behind
them.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.codec import Codec
from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_recovery.limits import MAX_FRAGMENTS
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import RunId

CHUNK_BYTES = 256 << 10
"""Bytes of a piece: a few milliseconds of a link, and little beside the buffer of a link."""

MAX_SMALL_PUTS = 16
"""Fragments of one piece that may be on their way over a link at a time. Each takes two round trips, and a host of many instances
would save them one after the other over a slow link. Of larger fragments, which fill the link, one at a time is on its way."""

MAX_FRAGMENT_BYTES = 256 << 20
"""Largest fragment: of the largest state that one instance should have in memory (1 GiB at m = 4)."""

Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Chunk = Annotated[bytes, msgspec.Meta(max_length=CHUNK_BYTES)]


class FragmentDescriptor(msgspec.Struct, frozen=True, array_like=True):
    """Complete description of one fragment, independent of any other knowledge.

    Args:
        digest: hash of the snapshot; length: of the sealed snapshot.
        m, n: any m of the n fragments rebuild it.
        hash: SHA-256 of this fragment.
    """

    key: FragmentKey
    digest: Hash
    length: Count
    m: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAGMENTS)]
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAGMENTS)]
    hash: Hash

    @property
    def size(self) -> int:
        """Bytes of the fragment."""
        return -(-self.length // self.m)

    def fault(self) -> str:
        """Return why no node should store this fragment; empty when it is valid."""
        if self.m > self.n or self.key.index >= self.n:
            return f"fragment {self.key.index} of {self.m} + {self.n - self.m}"
        return "" if 0 < self.size <= MAX_FRAGMENT_BYTES else f"{self.size:,} bytes, at most {MAX_FRAGMENT_BYTES:,}"


class PutFragment(Message, frozen=True, gc=False, tag=1):
    """Request to store a fragment. The dialer sends its bytes after `PutAccepted`.

    `attempt`: of the run, in which the dialer hosts it; 0: that of the fragment.
    """

    request: Count
    about: FragmentDescriptor
    attempt: Count = 0


class PutAccepted(Message, frozen=True, gc=False, tag=2):
    """Acceptance of a fragment: send its bytes."""

    request: Count


class PutBytes(Message, frozen=True, gc=False, tag=3):
    """The next bytes of a fragment that is being stored."""

    request: Count
    data: Chunk


class PutCompleted(Message, frozen=True, gc=False, tag=4):
    """Report that the fragment is on the disk."""

    request: Count


class GetFragment(Message, frozen=True, gc=False, tag=5):
    """Request for bytes `offset … offset + length` of a fragment; with `length` 0 for all of them, if its hash still matches.

    Args:
        digest: of the snapshot: only nodes that know the run's register know it.
    """

    request: Count
    key: FragmentKey
    digest: Hash
    offset: Count
    length: Count


class FetchedBytes(Message, frozen=True, gc=False, tag=6):
    """Some of the requested bytes. `left`: bytes that follow."""

    request: Count
    data: Chunk
    left: Count


class GetSnapshot(Message, frozen=True, gc=False, tag=8):
    """Request for all bytes under a hash: a snapshot of an instance, one within a kept checkpoint, or a whole checkpoint.

    Args:
        run: the run of the snapshot; of a checkpoint any.
        digest: hash. Only nodes that know a run's register know it for a snapshot; a kept checkpoint needs a transfer
            grant.
    """

    request: Count
    run: RunId
    digest: Hash


class FragmentRefused(Message, frozen=True, gc=False, tag=7):
    """Refusal. `reason` is one of `REASONS`, the text is for people."""

    request: Count
    reason: Annotated[str, msgspec.Meta(max_length=32)]
    text: Annotated[str, msgspec.Meta(max_length=400)]


REASONS = ("form", "not a host", "old attempt", "unknown run", "full", "disk", "hash", "missing", "busy")
"""Reasons of a replica node for a refusal."""

FragmentRequest = PutFragment | PutBytes | GetFragment | GetSnapshot
FragmentAnswer = PutAccepted | PutCompleted | FetchedBytes | FragmentRefused

REQUESTS: Codec[FragmentRequest] = Codec(FragmentRequest)
ANSWERS: Codec[FragmentAnswer] = Codec(FragmentAnswer)
