"""Hand-over of state to the next generation: preloaded ahead of time, completed when the previous instances have stopped."""
