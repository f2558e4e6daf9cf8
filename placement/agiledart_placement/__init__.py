"""Placement: which node runs which instance of a stage.

Pure decisions and nothing else: a `PlacementRequest` goes in, a `Placement` comes out. Strategies are chosen by name
(`agiledart_placement.strategy.strategy_named`). May import the kernel only; knows neither messages nor time.
"""
