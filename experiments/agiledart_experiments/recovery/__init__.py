"""What recovery costs and buys: the papers' figures, on emulated links with real data."""
