"""Applications of RIoTBench: `agiledart run agiledart_examples.riotbench:etl_city`.

The topologies and formulas are those of the paper [RIoTBench], the settings its public ones ("CITY percentile ranges"). Messages
are lines `milliseconds,SenML`; without a file, the generator `example:` makes them.
"""

from agiledart_examples.riotbench.etl import etl_city, etl_fit, etl_taxi
from agiledart_examples.riotbench.pred import pred_city, pred_taxi
from agiledart_examples.riotbench.stats import stats_cities, stats_city
from agiledart_examples.riotbench.train import train_city, train_taxi

__all__ = [
    "etl_city",
    "etl_fit",
    "etl_taxi",
    "pred_city",
    "pred_taxi",
    "stats_cities",
    "stats_city",
    "train_city",
    "train_taxi",
]
