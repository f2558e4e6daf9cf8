"""Records and their containers: schemas, rows, columns, batches, positions, partitioning. The package knows no operator and no
graph."""
