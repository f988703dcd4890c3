"""How a rank notices that another one is gone, and what then ends an operation."""
