"""What the parts of an overlay node share: view, agreement, peer book, distances. It imports tables and wire."""
