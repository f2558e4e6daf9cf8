"""Workloads CITY, TAXI and FIT: fields, ranges and sizes of windows, as the public settings of the benchmark give them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Range = tuple[float, float]


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream.

    Attributes:
        name: of the stream, as the generator takes it.
        fields: observed fields, in the order of results.
        id_field: field of a message that names its sensor.
        ranges: least and greatest valid value of a field; fields without a range are not filtered.
        interpolation: valid values whose mean replaces an invalid one; 0: the value stays empty.
        average: values of a block average.
        inputs: attributes of the decision tree, in its order.
        regressors: attributes of the regression, in its order.
        target: field that the regression predicts.
        bloom: whether ids are filtered by those of the metadata.
        accumulated: values of a sensor's field that are plotted together.
        distinct_bits: logarithm of the buckets of the distinct count.
        units: unit of each field, for published messages; others are `per`.
    """

    name: str
    fields: tuple[str, ...]
    id_field: str
    ranges: Mapping[str, Range]
    interpolation: int
    target: str = ""
    inputs: tuple[str, ...] = ()
    regressors: tuple[str, ...] = ()
    average: int = 10
    bloom: bool = True
    accumulated: int = 20
    distinct_bits: int = 10
    units: Mapping[str, str] = field(default_factory=dict)


CITY = StreamSettings(
    name="city",
    fields=("temperature", "humidity", "light", "dust", "airquality_raw"),
    id_field="source",
    ranges={
        "temperature": (0.7, 35.1),
        "humidity": (20.3, 69.1),
        "light": (0.0, 5153.0),
        "dust": (83.36, 3322.67),
        "airquality_raw": (12.0, 49.0),
    },
    interpolation=5,
    target="airquality_raw",
    inputs=("temperature", "humidity", "light", "dust", "airquality_raw"),
    regressors=("temperature", "humidity", "light", "dust"),
    distinct_bits=5,
    units={"temperature": "far"},
)

TAXI = StreamSettings(
    name="taxi",
    fields=(
        "trip_time_in_secs",
        "trip_distance",
        "fare_amount",
        "surcharge",
        "mta_tax",
        "tip_amount",
        "tolls_amount",
        "total_amount",
    ),
    id_field="taxi_identifier",
    ranges={
        "trip_time_in_secs": (140.0, 3155.0),
        "trip_distance": (1.37, 29.86),
        "fare_amount": (6.0, 201.0),
        "tip_amount": (0.65, 38.55),
        "tolls_amount": (2.5, 18.0),
    },
    interpolation=0,
    target="fare_amount",
    inputs=("trip_time_in_secs", "trip_distance", "fare_amount"),
    regressors=("trip_time_in_secs", "trip_distance"),
    accumulated=10,
    units={
        "trip_time_in_secs": "second",
        "trip_distance": "meter",
        "surcharge": "percentage",
        "mta_tax": "percentage",
        "fare_amount": "dollar",
        "tip_amount": "dollar",
        "tolls_amount": "dollar",
        "total_amount": "dollar",
    },
)

FIT = StreamSettings(
    name="fit",
    fields=(
        *(f"acc_chest_{axis}" for axis in "xyz"),
        *("ecg_lead_1", "ecg_lead_2"),
        *(f"acc_ankle_{axis}" for axis in "xyz"),
        *(f"acc_arm_{axis}" for axis in "xyz"),
    ),
    id_field="subjectId",
    ranges={
        "acc_chest_x": (-13.931, 4.123),
        "acc_chest_y": (-4.6376, 5.2361),
        "acc_chest_z": (-8.1881, 7.8786),
        "ecg_lead_1": (-4.9314, 6.1371),
        "ecg_lead_2": (-6.786, 6.6604),
        "acc_ankle_x": (-5.0006, 8.1472),
        "acc_ankle_y": (-14.303, 1.5909),
        "acc_ankle_z": (-8.6234, 8.6958),
        "acc_arm_x": (-9.824, 5.5778),
        "acc_arm_y": (-10.059, 8.506),
        "acc_arm_z": (-6.6739, 9.5725),
    },
    interpolation=5,
    bloom=False,
    units={
        **{f"acc_{part}_{axis}": "m/s2" for part in ("chest", "ankle", "arm") for axis in "xyz"},
        "ecg_lead_1": "mV",
        "ecg_lead_2": "mV",
    },
)
