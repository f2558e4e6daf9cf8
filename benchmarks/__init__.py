"""Figures of this machine: run one with `make bench`. Ratios against a limit measured in the same run, never a gate."""
