"""Checkpoints that outlive their runs: one file each, on the nodes that keep it, and on its way from and to users."""
