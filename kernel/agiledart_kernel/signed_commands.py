"""Signed commands: a user's request with the user's signature, so that the nodes that carry it out need not trust its sender.

A command names its network, verb, application, and its contents by hash. The agent that receives it, the scheduler and
every host verify it. A coordinator later takes decisions by itself, for example to restart or move an application. They
rest on the command that submitted the application: same code and limits, only other nodes. Callers pass in the
functions that sign and check signatures, as in `grants`. Source: the admission spec, section 5 (`agiledart-control/1`).
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
from agiledart_kernel.limits import MAX_CHAIN_LINKS, MAX_LINK_BYTES
from agiledart_kernel.name_patterns import OptionalApplicationName

SIGNED_COMMAND_CONTEXT: Final = b"agiledart-control/1\0"
NONCE_BYTES: Final = 16
MAX_SIGNED_COMMAND_BYTES: Final = 8 << 10
"""Largest signed command: a chain of six links, and about 300 bytes of the command itself."""

_Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Word = Annotated[str, msgspec.Meta(max_length=128)]
_SignedLink = Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES + MAX_LINK_BYTES)]


class CommandTerms(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Content of a command. Two commands with equal terms request the same.

    Args:
        verb: as in `permissions.VERBS`; `check` for the dry run of a submission.
        application: its name; empty for verbs about the network.
        contents: SHA-256 of contents that are too long for the command: of a submission its specification and bundle.
        arguments: everything else that matters, (name, text) in order of name.
    """

    verb: _Word
    application: OptionalApplicationName = ""
    contents: Annotated[tuple[_Hash, ...], msgspec.Meta(max_length=4)] = ()
    arguments: Annotated[tuple[tuple[_Word, _Word], ...], msgspec.Meta(max_length=8)] = ()

    def argument(self, name: str) -> str:
        """Return the text of an argument; "" where there is none."""
        return dict(self.arguments).get(name, "")


class SignedCommand(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Body of a signed command.

    Args:
        network: the authority's public key.
        wall_ms: time of the signature. Commands about one application count in the order of these times.
        nonce: makes two commands with equal terms distinct.
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
    """A command whose signature and chain are verified. `grant`: of its signer, at the time of the signature."""

    signed_command: SignedCommand
    grant: Grant

    @property
    def signer_label(self) -> str:
        """The signer for people: role and key, never a name that the signer gives itself."""
        return f"{self.grant.role} {self.grant.key.hex()[:16]}"


_DECODE_SIGNED: Final = msgspec.msgpack.Decoder(_SignedEnvelope)
_DECODE_COMMAND: Final = msgspec.msgpack.Decoder(SignedCommand)
_ENCODE: Final = msgspec.msgpack.Encoder()


def content_hash(content: bytes) -> bytes:
    """Return the hash by which a command names its contents."""
    return sha256(content).digest()


def sorted_arguments(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return arguments in order of their names, without empty ones."""
    return tuple(sorted((name, text) for name, text in pairs if text))


def command_hash(raw: bytes) -> bytes:
    """Return the hash that names a signed command."""
    return sha256(SIGNED_COMMAND_CONTEXT + raw).digest()


def sign_command(
    sign: Sign,
    chain: tuple[bytes, ...],
    network: bytes,
    terms: CommandTerms,
    wall_ms: int,
    draw: Callable[[int], bytes],
) -> bytes:
    """Return a signed command. `chain`: of the key that signs; `draw`: returns that many random bytes."""
    body = _ENCODE.encode(SignedCommand(network, terms, wall_ms, draw(NONCE_BYTES)))
    return _ENCODE.encode(_SignedEnvelope(body, sign(SIGNED_COMMAND_CONTEXT + body), chain))


def parse_signed_command(raw: bytes) -> SignedCommand:
    """Decode a signed command without checking the signature. Raises `Refused`."""
    return _decoded(raw)[1]


def signer_of(raw: bytes) -> tuple[str, bytes]:
    """Return the role and public key that a command names as its signer's, without checking them. Raises `Refused`."""
    link = decode_link(_decoded(raw)[0].chain[-1])
    return link.role, link.key


def scope_of_signer(raw: bytes) -> str:
    """Return the scope of the signer that a command names, without checking it. Raises `Refused`."""
    return decode_link(_decoded(raw)[0].chain[-1]).scope


def quota_of_signer(raw: bytes) -> Quota:
    """Return the quota of the signer that a command names, without checking it. Raises `Refused`."""
    return decode_link(_decoded(raw)[0].chain[-1]).quota


def verify_command(
    network: bytes, raw: bytes, check_signature: CheckSignature, banned: Collection[bytes] = ()
) -> VerifiedCommand:
    """Return a verified command of our network. Raises `Refused` with the first reason.

    The chain must have been valid at the time of the signature, since an application outlives its owner's membership.
    Bans count as of now.
    """
    signed, signed_command = _decoded(raw)
    if signed_command.network != network:
        raise Refused("another network")
    key = decode_link(signed.chain[-1]).key
    grant = verify_chain(network, signed.chain, key, signed_command.wall_ms // 1_000, check_signature, banned)
    if not check_signature(key, signed.signature, SIGNED_COMMAND_CONTEXT + signed.body):
        raise Refused("signature", "of the command")
    return VerifiedCommand(signed_command, grant)


def check_fresh(signed_command: SignedCommand, wall_ms: int, waited_ms: int = 0) -> None:
    """Raise `Refused` for a command signed too long ago, or in the future: an attacker replays it, or a clock is wrong.

    Args:
        wall_ms: our clock; 0: unknown, then nothing is checked.
        waited_ms: time for which the command is known to have been in transit.
    """
    if not wall_ms:
        return
    ahead = signed_command.wall_ms - wall_ms
    if ahead > SKEW_SECONDS * 1_000:
        raise Refused("not yet valid", f"the command was signed {ahead // 1_000} s in the future: compare the clocks")
    if -ahead > SKEW_SECONDS * 1_000 + waited_ms:
        raise Refused(
            "expired", f"the command was signed {-ahead // 1_000} s ago: compare the clocks, or sign it again"
        )


def _decoded(raw: bytes) -> tuple[_SignedEnvelope, SignedCommand]:
    if not raw:
        raise Refused("form", "the command is not signed")
    if len(raw) > MAX_SIGNED_COMMAND_BYTES:
        raise Refused("length", f"a command has at most {MAX_SIGNED_COMMAND_BYTES:,} bytes")
    try:
        signed = _DECODE_SIGNED.decode(raw)
        return signed, _DECODE_COMMAND.decode(signed.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused("form", str(error)[:200]) from None
