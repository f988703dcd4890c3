"""What becomes of figures: the file that keeps them, tables, documents."""
