"""The memory of a scheme for each gradient, from one step to the next."""

from collections.abc import Hashable, Mapping, Sequence

import torch

__all__ = ["Memory"]


class Memory:
    """Tensors of zeros beside flat tensors, which follow the pieces of these.

    DDP forms its buckets anew after the first step. A parameter's memory then moves on to the
    bucket that has it.
    """

    def __init__(self) -> None:
        self._flat: dict[tuple[Hashable, ...], torch.Tensor] = {}
        self._pieces: dict[Hashable, torch.Tensor] = {}

    def of(
        self, names: Sequence[Hashable], sizes: Sequence[int], device: torch.device
    ) -> torch.Tensor:
        """Return the tensor for these pieces, one after the other: always the same one, float32.

        Args:
            names: Of the pieces.
            sizes: Their elements.
            device: Where the tensor is.

        Raises:
            ValueError: A piece had another size before.
        """
        key = tuple(names)
        known = self._flat.get(key)
        if known is not None and len(known) == sum(sizes) and known.device == device:
            return known
        made = torch.zeros(sum(sizes), dtype=torch.float32, device=device)
        pieces = dict(zip(key, made.split(list(sizes)), strict=True))
        for name, piece in pieces.items():
            before = self._pieces.get(name)
            if before is not None and len(before) != len(piece):
                raise ValueError(f"{name} had {len(before)} elements before, and has {len(piece)}")
        for name, piece in pieces.items():
            if name in self._pieces:
                piece.copy_(self._pieces[name])
            self._pieces[name] = piece
        self._flat = {
            other: tensor for other, tensor in self._flat.items() if not set(other) & set(key)
        }
        self._flat[key] = made
        return made

    def pieces(self) -> dict[Hashable, torch.Tensor]:
        """Return copies of what is kept, by the pieces' names."""
        return {name: tensor.clone() for name, tensor in self._pieces.items()}

    def restore(self, pieces: Mapping[Hashable, torch.Tensor]) -> None:
        """Replace all that is kept."""
        self._flat.clear()
        self._pieces = {name: tensor.clone().view(-1) for name, tensor in pieces.items()}
