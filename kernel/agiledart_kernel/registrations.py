"""Signed statements about a token beside its chain: how often it may be used, and that a key was registered as one of its uses.

A *token record*, signed by the key that signed the invitation, says how many keys may use the token and until when. A
*receipt* says that a key was registered at the ring; the agent that registered the key signs it. The holder shows its
receipt to the peers it meets next. Callers pass in the functions that sign and check signatures, as in `grants`.
Source: the admission spec, sections 4 and 5 (`agiledart-token-record/1`, `agiledart-receipt/1`); decision 0004.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import SIGNATURE_BYTES, CheckSignature, Grant, Sign, decode_link, verify_chain
from agiledart_kernel.limits import MAX_CHAIN_LINKS, MAX_LINK_BYTES, MAX_RECEIPT_BYTES, MAX_TOKEN_RECORD_BYTES

RECORD_CONTEXT: Final = b"agiledart-token-record/1\0"
RECEIPT_CONTEXT: Final = b"agiledart-receipt/1\0"
_CLOSED_CONTEXT: Final = b"agiledart-token-closed/1\0"
MAX_USES: Final = 10_000

REFUSALS: Final = ("unregistered", "used up", "token expired", "revoked")
"""Why a key with a good chain is not admitted. `unregistered`: no node could confirm in time that it was registered."""

_Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_SignedLink = Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES + MAX_LINK_BYTES)]


class TokenRecord(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Properties of a token that its chain cannot hold; signed by the invitation's signer.

    Args:
        token: `link_hash` of the invitation.
        uses: number of keys that it may make members.
        join_before: seconds since 1970 after which it admits no more.
        member_for: longest membership, in seconds from joining.
    """

    token: _Hash
    uses: Annotated[int, msgspec.Meta(ge=1, le=MAX_USES)]
    join_before: _Seconds
    member_for: _Seconds


class RegistrationReceipt(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Statement that a key was registered.

    Args:
        network: the authority's public key.
        token: `link_hash` of the invitation.
        key: the key that used it.
        number: number of the use, from 1.
        wall_seconds: time of the registration, by the clock of the agent that registered the key.
    """

    network: _Hash
    token: _Hash
    key: _Hash
    number: Annotated[int, msgspec.Meta(ge=1, le=2 * MAX_USES)]
    wall_seconds: _Seconds


class _SignedReceipt(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    body: Annotated[bytes, msgspec.Meta(max_length=256)]
    signature: Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
    chain: Annotated[tuple[_SignedLink, ...], msgspec.Meta(min_length=1, max_length=MAX_CHAIN_LINKS)]


_ENCODE: Final = msgspec.msgpack.Encoder()
_DECODE_RECORD: Final = msgspec.msgpack.Decoder(TokenRecord)
_DECODE_RECEIPT: Final = msgspec.msgpack.Decoder(RegistrationReceipt)
_DECODE_SIGNED: Final = msgspec.msgpack.Decoder(_SignedReceipt)


def member_key(grant: Grant) -> bytes:
    """Return the key that used the token of this grant: its holder's, or for an executor its agent's.

    The grant must have an invitation.
    """
    return grant.keys[grant.links.index(grant.invitation) + 1]


def closed_token_target(token: bytes) -> bytes:
    """Return the target of a ban that closes a token: it admits no more members, and its earlier members stay."""
    return sha256(_CLOSED_CONTEXT + token).digest()


def sign_token_record(sign: Sign, record: TokenRecord) -> bytes:
    """Return a record in its wire form: signature, then body."""
    body = _ENCODE.encode(record)
    return sign(RECORD_CONTEXT + body) + body


def decode_token_record(raw: bytes) -> TokenRecord:
    """Decode a signed record without checking the signature. Raises `Refused`."""
    if not SIGNATURE_BYTES < len(raw) <= MAX_TOKEN_RECORD_BYTES:
        raise Refused("length", "a token's record has 65 to 256 bytes")
    try:
        return _DECODE_RECORD.decode(memoryview(raw)[SIGNATURE_BYTES:])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused("form", str(error)[:200]) from None


def verify_token_record(raw: bytes, token: bytes, signer: bytes, check_signature: CheckSignature) -> TokenRecord:
    """Return the verified record of a token. Raises `Refused`.

    Args:
        token: `link_hash` of the invitation.
        signer: the key that signed the invitation.
    """
    record = decode_token_record(raw)
    if record.token != token:
        raise Refused("order", "the record is of another token")
    if not check_signature(signer, raw[:SIGNATURE_BYTES], RECORD_CONTEXT + raw[SIGNATURE_BYTES:]):
        raise Refused("signature", "of the token's record")
    return record


def inviter(network: bytes, grant: Grant) -> bytes:
    """Return the key that signed the invitation of this grant."""
    at = grant.links.index(grant.invitation)
    return grant.keys[at - 1] if at else network


def sign_receipt(sign: Sign, chain: tuple[bytes, ...], receipt: RegistrationReceipt) -> bytes:
    """Return a receipt in its wire form. `chain`: of the agent whose key signs."""
    body = _ENCODE.encode(receipt)
    return _ENCODE.encode(_SignedReceipt(body, sign(RECEIPT_CONTEXT + body), chain))


def verify_receipt(
    network: bytes, raw: bytes, check_signature: CheckSignature, banned: Collection[bytes] = ()
) -> tuple[RegistrationReceipt, Grant]:
    """Return a receipt of our network, and the grant of the agent that signed it. Raises `Refused`.

    The chain must have been valid at the time of the receipt, since the signer may have left since. Bans count as of
    now. The caller checks whether the signer itself was ever registered.
    """
    if len(raw) > MAX_RECEIPT_BYTES:
        raise Refused("length", f"a receipt has at most {MAX_RECEIPT_BYTES:,} bytes")
    try:
        signed = _DECODE_SIGNED.decode(raw)
        receipt = _DECODE_RECEIPT.decode(signed.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused("form", str(error)[:200]) from None
    if receipt.network != network:
        raise Refused("another network")
    key = decode_link(signed.chain[-1]).key
    grant = verify_chain(network, signed.chain, key, receipt.wall_seconds, check_signature, banned)
    if grant.role != "agent" or grant.scope or key == receipt.key:
        raise Refused("role", "receipts are of agents, for others")
    if not check_signature(key, signed.signature, RECEIPT_CONTEXT + signed.body):
        raise Refused("signature", "of the receipt")
    return receipt, grant
