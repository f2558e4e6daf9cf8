"""What the papers measured, measured here: one small module for each published figure or table.

`registry` lists them and runs one, `plotting` draws one. Every figure is computed by running the system:
the overlay and the composed node in the simulator, on a virtual clock, from a seed. May import the simulator, the node and all
below; nothing but the command line may import this package.
"""
