"""How benchmarks report: the file of figures, and the tables and plots made from it."""
