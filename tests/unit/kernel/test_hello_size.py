"""Cost of a link at its beginning: a HELLO with receipts fits into its frame, whatever its fields may hold."""

from agiledart_kernel.frames import Hello, encode_hello
from agiledart_kernel.grants import SIGNATURE_BYTES
from agiledart_kernel.limits import (
    MAX_CHAIN_LINKS,
    MAX_HELLO_BYTES,
    MAX_LINK_BYTES,
    MAX_RECEIPT_BYTES,
    MAX_TOKEN_RECORD_BYTES,
)
from agiledart_kernel.registrations import RegistrationReceipt, TokenRecord, sign_receipt, sign_token_record
from tests.keys import HOUR, NOW, Authority, key_of, public_of

NET = Authority()


def test_the_largest_hello_is_accepted() -> None:
    largest = Hello(
        service="s" * 16,
        chain=(b"c" * (SIGNATURE_BYTES + MAX_LINK_BYTES),) * MAX_CHAIN_LINKS,
        incarnation=2**63 - 1,
        name="n" * 64,
        zone="z" * 64,
        host="h" * 64,
        software="v" * 32,
        token=b"t" * MAX_TOKEN_RECORD_BYTES,
        receipt=b"r" * MAX_RECEIPT_BYTES,
        welcome=b"w" * MAX_RECEIPT_BYTES,
    )
    assert len(encode_hello(largest)) <= MAX_HELLO_BYTES


def test_an_ordinary_hello_with_both_receipts_is_a_quarter_of_that() -> None:
    chain, sign = NET.member("pi2"), key_of("pi2").sign
    receipt = sign_receipt(sign, chain, RegistrationReceipt(NET.network, b"t" * 32, public_of("pi"), 7, NOW))
    token = sign_token_record(sign, TokenRecord(b"t" * 32, 20, NOW + HOUR, HOUR))
    hello = Hello(service="overlay", chain=NET.member("pi"), name="pi", token=token, receipt=receipt, welcome=receipt)
    size = len(encode_hello(hello))
    print(f"{size:,} bytes")
    assert size <= MAX_HELLO_BYTES // 4
