"""Orders: what a user wants done, signed with the user's key, so that whoever carries it out need not believe who brought it.

An order names its network, verb, application, and what it is about by hash. The agent that is asked, the scheduler and every host
check it. What a coordinator decides by itself later (to bring an application back, to move it) rests on the order with which it
was submitted: the same code and limits, other places only. Signatures are made and checked by functions handed in, as in `grants`.
Source: the admission spec, section 5 (`agiledart-control/1`).
"""

from collections.abc import Callable, Collection, Iterable
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import (
    SIGNATURE_BYTES,
    SKEW_SECONDS,
    CheckSignature,
    Grant,
    Quota,
    Sign,
    decode_link,
    verify_chain,
)
from agiledart_kernel.limits import MAX_APPLICATION_NAME, MAX_CHAIN_LINKS, MAX_LINK_BYTES

SIGNED_COMMAND_CONTEXT: Final = b"agiledart-control/1\0"
NONCE_BYTES: Final = 16
MAX_SIGNED_COMMAND_BYTES: Final = 8 << 10
"""A chain of six links, and about 300 bytes of the order itself."""

_Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Word = Annotated[str, msgspec.Meta(max_length=128)]
_SignedLink = Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES + MAX_LINK_BYTES)]


class CommandTerms(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What is to be done; two orders with equal terms want the same.

    Args:
        verb: as in `permissions.VERBS`; `check` for the dry run of a submission.
        application: its name; empty for verbs about the network.
        contents: SHA-256 of what the order is about and is too long to stand here: of a submission its specification and bundle.
        arguments: everything else that matters, (name, text) in order of name.
    """

    verb: _Word
    application: Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)] = ""
    contents: Annotated[tuple[_Hash, ...], msgspec.Meta(max_length=4)] = ()
    arguments: Annotated[tuple[tuple[_Word, _Word], ...], msgspec.Meta(max_length=8)] = ()

    def argument(self, name: str) -> str:
        """The text of an argument; "" where there is none."""
        return dict(self.arguments).get(name, "")


class SignedCommand(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The signed body.

    Args:
        network: the authority's public key.
        wall_ms: when it was given; orders about one application count in the order of these.
        nonce: makes two equal wishes two orders.
    """

    network: _Hash
    terms: CommandTerms
    wall_ms: Annotated[int, msgspec.Meta(ge=0, le=2**52)]
    nonce: Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class _SignedEnvelope(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    body: Annotated[bytes, msgspec.Meta(max_length=2_048)]
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
    chain: Annotated[tuple[_SignedLink, ...], msgspec.Meta(min_length=1, max_length=MAX_CHAIN_LINKS)]


class VerifiedCommand(msgspec.Struct, frozen=True, gc=False):
    """An order that its holder may believe. `grant`: of who gave it, at the time at which it was given."""

    signed_command: SignedCommand
    grant: Grant

    @property
    def signer_label(self) -> str:
        """The giver for people: role and key, never a name that it gives itself."""
        return f"{self.grant.role} {self.grant.key.hex()[:16]}"


_DECODE_SIGNED: Final = msgspec.msgpack.Decoder(_SignedEnvelope)
_DECODE_COMMAND: Final = msgspec.msgpack.Decoder(SignedCommand)
_ENCODE: Final = msgspec.msgpack.Encoder()


def content_hash(content: bytes) -> bytes:
    """How an order names what it is about."""
    return sha256(content).digest()


def sorted_arguments(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Arguments in their order, without empty ones."""
    return tuple(sorted((name, text) for name, text in pairs if text))


def command_hash(raw: bytes) -> bytes:
    """The name of a signed order."""
    return sha256(SIGNED_COMMAND_CONTEXT + raw).digest()


def sign_command(
    sign: Sign,
    chain: tuple[bytes, ...],
    network: bytes,
    terms: CommandTerms,
    wall_ms: int,
    draw: Callable[[int], bytes],
) -> bytes:
    """A signed order. `chain`: of the key that signs; `draw`: so many random bytes."""
    body = _ENCODE.encode(SignedCommand(network, terms, wall_ms, draw(NONCE_BYTES)))
    return _ENCODE.encode(_SignedEnvelope(body, sign(SIGNED_COMMAND_CONTEXT + body), chain))


def parse_signed_command(raw: bytes) -> SignedCommand:
    """What a signed order says, unchecked; raises `Refused`."""
    return _decoded(raw)[1]


def signer_of(raw: bytes) -> tuple[str, bytes]:
    """Role and public key that an order names as its giver's, unchecked; raises `Refused`."""
    link = decode_link(_decoded(raw)[0].chain[-1])
    return link.role, link.key


def scope_of_signer(raw: bytes) -> str:
    """What alone the giver that an order names may use, unchecked; raises `Refused`."""
    return decode_link(_decoded(raw)[0].chain[-1]).scope


def quota_of_signer(raw: bytes) -> Quota:
    """How much the giver that an order names may have, unchecked; raises `Refused`."""
    return decode_link(_decoded(raw)[0].chain[-1]).quota


def verify_command(
    network: bytes, raw: bytes, check_signature: CheckSignature, banned: Collection[bytes] = ()
) -> VerifiedCommand:
    """An order of our network; raises `Refused` with the first reason.

    Its chain counts at the time at which it was given: an application outlives its owner's membership. Bans count now.
    """
    signed, signed_command = _decoded(raw)
    if signed_command.network != network:
        raise Refused("another network")
    key = decode_link(signed.chain[-1]).key
    grant = verify_chain(network, signed.chain, key, signed_command.wall_ms // 1_000, check_signature, banned)
    if not check_signature(key, signed.signature, SIGNED_COMMAND_CONTEXT + signed.body):
        raise Refused("signature", "of the order")
    return VerifiedCommand(signed_command, grant)


def check_fresh(signed_command: SignedCommand, wall_ms: int, waited_ms: int = 0) -> None:
    """Raise `Refused` for an order that was given long ago, or will be: somebody found it, or a clock is wrong.

    Args:
        wall_ms: the clock; 0: unknown, then nothing is said.
        waited_ms: for which it is known to have been under way.
    """
    if not wall_ms:
        return
    ahead = signed_command.wall_ms - wall_ms
    if ahead > SKEW_SECONDS * 1_000:
        raise Refused("not yet valid", f"the order was given {ahead // 1_000} s from now: compare the clocks")
    if -ahead > SKEW_SECONDS * 1_000 + waited_ms:
        raise Refused("expired", f"the order was given {-ahead // 1_000} s ago: compare the clocks, or give it again")


def _decoded(raw: bytes) -> tuple[_SignedEnvelope, SignedCommand]:
    if not raw:
        raise Refused("form", "the order is not signed")
    if len(raw) > MAX_SIGNED_COMMAND_BYTES:
        raise Refused("length", f"an order has at most {MAX_SIGNED_COMMAND_BYTES:,} bytes")
    try:
        signed = _DECODE_SIGNED.decode(raw)
        return signed, _DECODE_COMMAND.decode(signed.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused("form", str(error)[:200]) from None
