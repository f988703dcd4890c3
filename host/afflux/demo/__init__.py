"""A demonstration: one small training, through the simulated engine, the software one, and Gloo."""
