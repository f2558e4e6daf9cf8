"""The same jobs as users of ours write them, and what starts them."""
