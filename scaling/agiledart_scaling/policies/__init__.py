"""The policies that are shipped, one file each: `secant` (the default), `paper` and `ds2`.

Pure; the contract is in `scaling_policy`.
"""
