"""A first model: the temperature that people feel, from temperature and humidity; trained on invented measurements.

    python -m agiledart_examples.felt_temperature felt.onnx

The measurements follow the formula of the humidex (temperature and vapour pressure) with an error of half a degree. The model is a
regression on temperature, humidity: simple, and good to about a degree between 15 and 35 °C.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from agiledart.onnx_export import onnx_model
from agiledart.scoring import ModelDocument
from agiledart_examples.riotbench.model_training import least_squares
from agiledart_kernel.randomness import RandomStream

MEASUREMENTS = 500
FEATURES = ("celsius", "humidity")


def humidex(celsius: float, humidity: float) -> float:
    """Return the felt temperature in °C of air with this temperature and relative humidity in percent."""
    saturation_hpa = 6.112 * 10 ** (7.5 * celsius / (237.7 + celsius))
    return celsius + 5 / 9 * (saturation_hpa * humidity / 100 - 10)


def measurements(seed: int = 1, count: int = MEASUREMENTS) -> tuple[list[list[float]], list[float]]:
    """Return temperature and humidity of each measurement, and what people felt."""
    draw = RandomStream(seed, "felt-temperature")
    air = [[15 + 20 * draw.uniform(), 20 + 60 * draw.uniform()] for _ in range(count)]
    return air, [humidex(*row) + draw.uniform() - 0.5 for row in air]


def trained_model(seed: int = 1) -> ModelDocument:
    """Return the model."""
    *coefficients, intercept = least_squares(*measurements(seed))
    return ModelDocument(1, "felt", "1", "linear", FEATURES, intercept, tuple(coefficients))


def main(words: Sequence[str]) -> int:
    """Write the model to the file that the only argument names; return the exit code."""
    if len(words) != 1:
        sys.stderr.write(__doc__)
        return 2
    model = trained_model()
    Path(words[0]).write_bytes(onnx_model(model))
    weights = " + ".join(
        f"{weight:.3f} · {name}" for weight, name in zip(model.coefficients, model.features, strict=True)
    )
    sys.stdout.write(f"wrote {words[0]}: felt = {weights} {model.intercept:+.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
