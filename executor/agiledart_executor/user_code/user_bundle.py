"""The bundle: what travels to nodes so that they can run a user's builder again. Source, never pickled objects."""

import sys
from hashlib import sha256

import msgspec

from agiledart_executor.user_code.user_modules import SHIPPED, shipped_source
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_BUNDLE_FILES

SIGNING_CONTEXT = b"agiledart-bundle/1"
"""Keeps a bundle's signature from being taken for any other. Source: spec of admission, section 5."""


class Bundle(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=150):
    """What a node needs to run a user's builder again.

    Attributes:
        entry: `module:name`.
        files: path → source of the user's own modules; empty when the entry is a shipped example.
        parameters: settings in the form of `--set`, connectors with absolute paths.
        installed: shipped modules that the code uses → SHA-256 of their source.
        requires: other packages that the code imports.
        python: oldest Python whose grammar takes the files, `(major, minor)`.
        application: name that was signed for; empty: whatever name the topology has.
        signer: public key of the submitter, empty when the agent took the bundle over its own socket.
        signature: of `signed_text`, by that key.
    """

    entry: str
    files: dict[str, bytes]
    parameters: dict[str, str] = {}
    installed: dict[str, str] = {}
    requires: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)
    application: str = ""
    signer: bytes = b""
    signature: bytes = b""

    def content_hash(self) -> str:
        """SHA-256, in hex, of everything that decides which topology the bundle builds."""
        digest = sha256()
        parts = [self.entry.encode()]
        for name in sorted(self.files):
            parts += [b"file", name.encode(), self.files[name]]
        for kind, table in ((b"set", self.parameters), (b"installed", self.installed)):
            for name in sorted(table):
                parts += [kind, name.encode(), table[name].encode()]
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()

    def signed_text(self, network: bytes) -> bytes:
        """The bytes that a submitter signs: context, network, application and content, each with its length."""
        parts = (SIGNING_CONTEXT, network, self.application.encode(), bytes.fromhex(self.content_hash()))
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


_CODEC: Codec[Bundle] = Codec(Bundle)


def encode_bundle(bundle: Bundle) -> bytes:
    """The wire form of a bundle."""
    return _CODEC.encode(bundle)


def decode_bundle(raw: bytes) -> Bundle:
    """The bundle that these bytes stand for. Raises `RemoteProtocolError`."""
    return _CODEC.decode(raw)


def check_bundle(bundle: Bundle) -> None:
    """Raise `OperationFailed` when this node lacks what a bundle needs, in the user's words."""
    if not bundle.files and bundle.entry.partition(":")[0] not in bundle.installed:
        raise OperationFailed(f"The bundle holds no source of {bundle.entry}.")
    if len(bundle.files) > MAX_BUNDLE_FILES:
        raise OperationFailed(f"The bundle has {len(bundle.files)} files, a node takes {MAX_BUNDLE_FILES}.")
    if tuple(bundle.python) > sys.version_info[:2]:
        needed, here = ".".join(map(str, bundle.python)), ".".join(map(str, sys.version_info[:2]))
        raise OperationFailed(f"The code is written for Python {needed} or newer, this node has {here}.")
    for module, digest in sorted(bundle.installed.items()):
        if module.partition(".")[0] != SHIPPED:
            raise OperationFailed(f"{module} is not one of the shipped examples, so it has to travel with the bundle.")
        source = shipped_source(module)
        if source is None or sha256(source).hexdigest() != digest:
            state = "does not have" if source is None else "has another version of"
            raise OperationFailed(
                f"This node {state} {module}. Install the same AgileDart on all nodes, "
                f"or copy the file and submit the copy."
            )
