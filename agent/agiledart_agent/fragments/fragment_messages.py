"""What is said on links of the service `fragments`, one conversation for each request number of the dialler.

| dialler → holder | holder → dialler |
|---|---|
| PUT | GO, or REFUSED |
| CHUNK … | STORED when the last one is on the disk under its hash, or REFUSED |
| GET | PIECE …, or REFUSED |
| TAKE | PIECE …, or REFUSED |

The bytes have links of their own, and travel in pieces, so that probes and orders between agents do not wait behind them.
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
"""Bytes of a piece: a few milliseconds of a link, and little beside what a link may hold back."""

MAX_FRAGMENT_BYTES = 256 << 20
"""One fragment of the largest state that one instance should have in memory (1 GiB at m = 4)."""

Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Chunk = Annotated[bytes, msgspec.Meta(max_length=CHUNK_BYTES)]


class FragmentDescriptor(msgspec.Struct, frozen=True, array_like=True):
    """One fragment, so described that who has nothing but it knows what it is.

    Args:
        digest, length: of the element, and of it when sealed.
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
        """What makes it no fragment that anybody should keep; empty when it is sound."""
        if self.m > self.n or self.key.index >= self.n:
            return f"fragment {self.key.index} of {self.m} + {self.n - self.m}"
        return "" if 0 < self.size <= MAX_FRAGMENT_BYTES else f"{self.size:,} bytes, at most {MAX_FRAGMENT_BYTES:,}"


class PutFragment(Message, frozen=True, gc=False, tag=1):
    """Keep this fragment for me; its bytes follow when you say GO.

    `life`: of the run, in which I host it; 0: that of the fragment.
    """

    request: Count
    about: FragmentDescriptor
    attempt: Count = 0


class PutAccepted(Message, frozen=True, gc=False, tag=2):
    """Send it."""

    request: Count


class PutBytes(Message, frozen=True, gc=False, tag=3):
    """The next bytes of a fragment that is being PUT."""

    request: Count
    data: Chunk


class PutCompleted(Message, frozen=True, gc=False, tag=4):
    """It is on the disk."""

    request: Count


class GetFragment(Message, frozen=True, gc=False, tag=5):
    """Bytes `offset … offset + length` of a fragment; with `length` 0 all of them, if its hash is what it was.

    Args:
        digest: of the element: only those who know the run's register know it.
    """

    request: Count
    key: FragmentKey
    digest: Hash
    offset: Count
    length: Count


class FetchedBytes(Message, frozen=True, gc=False, tag=6):
    """Some of the bytes that were asked for. `left`: bytes that follow."""

    request: Count
    data: Chunk
    left: Count


class GetSnapshot(Message, frozen=True, gc=False, tag=8):
    """All bytes of what lies with you under this hash: an element that an instance of yours saved, one within a checkpoint that you
    keep, or a whole checkpoint.

    Args:
        run: whose element it is; of a checkpoint any.
        digest: of an element only those know it who know its register; a kept checkpoint goes to whom it is lent only.
    """

    request: Count
    run: RunId
    digest: Hash


class FragmentRefused(Message, frozen=True, gc=False, tag=7):
    """No; `reason` is one of `REASONS`, the text is for people."""

    request: Count
    reason: Annotated[str, msgspec.Meta(max_length=32)]
    text: Annotated[str, msgspec.Meta(max_length=400)]


REASONS = ("form", "not a host", "old attempt", "unknown run", "full", "disk", "hash", "missing", "busy")
"""Why a holder refuses."""

FragmentRequest = PutFragment | PutBytes | GetFragment | GetSnapshot
FragmentAnswer = PutAccepted | PutCompleted | FetchedBytes | FragmentRefused

REQUESTS: Codec[FragmentRequest] = Codec(FragmentRequest)
ANSWERS: Codec[FragmentAnswer] = Codec(FragmentAnswer)
