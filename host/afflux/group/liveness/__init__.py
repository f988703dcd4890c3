"""Detection of a rank that is gone, and the end of operations that wait for it."""
