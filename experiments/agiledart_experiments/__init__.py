"""Experiments that reproduce the papers' measurements: one small module for each published figure or table.

`registry` lists the experiments and runs one; `plotting` draws one. Every figure is computed by running the system: the overlay
and the composed node in the simulator, on a virtual clock, from a seed. This package may import the simulator, the node and all
packages below them; only the command line may import this package.
"""
