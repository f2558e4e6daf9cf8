"""The bundle: what travels to nodes so that they can run a user's builder again. Source, never pickled objects."""

import sys
from hashlib import sha256

import msgspec

from agiledart_executor.user_code.user_modules import SHIPPED, shipped_source
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_BUNDLE_FILES


class Bundle(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=150):
    """What a node needs to run a user's builder again. The order to submit it names its hash, so it carries no signature.

    Attributes:
        entry: `module:name`.
        files: path → source of the user's own modules; empty when the entry is a shipped example.
        parameters: settings in the form of `--set`, connectors with absolute paths.
        installed: shipped modules that the code uses → SHA-256 of their source.
        requires: other packages that the code imports.
        python: oldest Python whose grammar takes the files, `(major, minor)`.
        application: name that was signed for; empty: whatever name the topology has.
        software: version of AgileDart that made it; specification: the form of specifications that it used. Empty and 0: an older
            one, which did not say.
        paths: which ways rows may take between nodes, over what the topology says; empty: as that says.
    """

    entry: str
    files: dict[str, bytes]
    parameters: dict[str, str] = {}
    installed: dict[str, str] = {}
    requires: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)
    application: str = ""
    software: str = ""
    specification: int = 0
    paths: tuple[str, ...] = ()


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
