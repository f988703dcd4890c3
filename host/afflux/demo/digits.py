"""The data and the network that the demonstration trains."""

import numpy as np
import torch
from sklearn.datasets import load_digits

__all__ = ["build_network", "held_out", "training"]

_HELD_OUT = 360
_SPLIT_SEED = 20


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    # Pixels are 0 to 16.
    return (images / 16.0).astype(np.float32), labels.astype(np.int64), order


def training() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (1437, 64) float32 in 0–1, and labels (1437,) int64."""
    images, labels, order = _arrays()
    chosen = order[_HELD_OUT:]
    return torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen])


def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (360, 64) and labels (360,) that training never sees."""
    images, labels, order = _arrays()
    chosen = order[:_HELD_OUT]
    return torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen])


def build_network(seed: int) -> torch.nn.Module:
    """Build a perceptron of 50,698 parameters with the starting weights of `seed`."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )
