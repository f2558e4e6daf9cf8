"""What instances of a term to come take over of those before them: built ahead, and completed when they have stopped."""
