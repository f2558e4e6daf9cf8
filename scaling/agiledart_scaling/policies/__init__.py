"""Shipped scaling policies, one file each: `secant` (the default), `paper` and `ds2`.

Pure; the contract is in `scaling_policy`.
"""
