"""Example topologies, written with the public API only: `agiledart run agiledart_examples.debs2015:frequent_routes`.

`agiledart demo` and the tutorials use them. May import `agiledart`, never an internal package.
"""
