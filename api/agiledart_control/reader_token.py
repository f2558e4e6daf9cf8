"""Token for programs that read sink logs: Spark takes it as a file."""

from pathlib import Path
from typing import Final

from agiledart_control.polling import Ask
from agiledart_node.wire.commands import CreateToken

TOKEN_SECONDS: Final = 3_600


def write_reader_token(ask: Ask, log: str, path: Path) -> Path:
    """Write a token that permits reading one log ("": all) for an hour into a file of mode 0600, and return its path."""
    response = ask(
        CreateToken(
            role="reader",
            uses=1_000,
            expires=TOKEN_SECONDS,
            member_for=TOKEN_SECONDS,
            scope=f"sink:{log}" if log else "",
        )
    )
    path.touch(mode=0o600)
    path.write_text(str(response["token"]))
    return path
