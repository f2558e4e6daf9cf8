"""Carries out connectors: files, standard output, generators, lists.

`opening.open_source` and `opening.open_sink` find the implementation of a kind and import it only then. Readers and writers meet
the protocols of `agiledart_dataflow.plan.connectors`; they are the only part of the data path that does I/O, and the only one that
reads a wall clock.
"""
