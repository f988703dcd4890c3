"""A network of several hosts on one machine, and benchmarks between its hosts, beside Gloo."""
