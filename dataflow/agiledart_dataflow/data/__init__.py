"""Records and what holds them: schemas, rows, columns, batches, positions, partitioning. It knows no operator and no graph."""
