"""`agiledart model`: files that are no models are refused before an agent is asked."""

from pathlib import Path

import pytest

from agiledart_cli.verbs import model_verb
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_MODEL_BYTES
from agiledart_node.wire.transfer_commands import MAX_UPLOAD_CHUNK_BYTES, UploadModel


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "model.onnx cannot be read: No such file or directory"),
        (b"", "model.onnx is empty: export the model again"),
        (
            b"\x80\x04\x95",
            "model.onnx is a pickle, which no node opens. Convert the model to ONNX:  pip install skl2onnx",
        ),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        model_verb._read(path)


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)
    with pytest.raises(ConfigurationError, match="more than the 67,108,864 bytes that a model may have"):
        model_verb._read(path)


def test_the_file_is_sent_in_pieces_from_where_the_agent_is() -> None:
    data = bytes(2 * MAX_UPLOAD_CHUNK_BYTES + 10)
    offsets: list[int] = []

    class Agent:
        have = 0

        def ask(self, command: UploadModel) -> dict[str, object]:
            offsets.append(command.offset)
            assert (command.name, command.size) == ("rooms", len(data))
            if len(offsets) != 2:  # one piece was lost: the agent says how far it is
                self.have = max(self.have, command.offset + len(command.data))
            else:
                self.have = command.offset + 5
            return {"have": self.have, "is_whole": self.have == len(data)}

    model_verb._upload(Agent(), "rooms", "ab" * 32, data)  # type: ignore[arg-type]
    assert offsets == [0, MAX_UPLOAD_CHUNK_BYTES, MAX_UPLOAD_CHUNK_BYTES + 5, 2 * MAX_UPLOAD_CHUNK_BYTES + 5]
