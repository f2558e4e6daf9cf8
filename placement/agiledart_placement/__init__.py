"""Placement: choose the node for each instance of a stage.

The package only decides: a `PlacementRequest` goes in, a `Placement` comes out. Strategies are chosen by name
(`agiledart_placement.registry`), and one evaluator judges all of them. It may import the kernel only; it knows neither messages
nor time.
"""
