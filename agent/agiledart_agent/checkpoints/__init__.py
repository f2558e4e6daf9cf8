"""Checkpoints that outlive their runs: one file each, on the nodes that keep it, and in transfer from and to users."""
