"""A demonstration: one small training, through a simulated engine, the software one, and Gloo."""
