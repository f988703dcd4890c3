"""A small network, and a few steps of its training."""

import numpy as np
import torch

__all__ = ["network", "steps", "weights"]


def network(seed: int = 3) -> torch.nn.Module:
    """Return a small network, the same at every rank."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 300),
        torch.nn.BatchNorm1d(300),
        torch.nn.ReLU(),
        torch.nn.Linear(300, 5),
    )


def weights(model: torch.nn.Module) -> np.ndarray:
    """Return all weights in one array."""
    return torch.cat([each.detach().flatten() for each in model.parameters()]).numpy()


def steps(model: torch.nn.Module, rank: int, count: int = 6) -> np.ndarray:
    """Train on data that depends on the rank, and return the weights."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(count):
        x = torch.randn(16, 20, generator=generator)
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
    return weights(model)
