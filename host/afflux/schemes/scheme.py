"""A scheme: a compressor, and what a rank keeps of what the compressor leaves."""

import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from afflux.schemes.compressor import Compressor
from afflux.schemes.density import checked_density
from afflux.schemes.memory import Memory

__all__ = ["Scheme"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Scheme:
    """A scheme for one model's gradients, and this rank's residuals.

    Args:
        compressor: Sends a part of each gradient in a step. Used for this scheme alone.
        feedback: Whether what is left is added to the next gradient of the same parameter; default:
            if the compressor is biased.
        momentum: If not 0, what is summed up at the rank is the gradients' momentum, and the
            optimiser must have none; elements that are given lose their momentum (Lin et al., "Deep
            Gradient Compression", ICLR 2018, section 3: momentum correction, and factor masking).
        warm_up: Densities of the first steps instead of the compressor's, one after the other, each
            for `warm_up_steps`. Deep Gradient Compression takes 0.25, 0.0625, 0.015625, 0.004 for
            an epoch each.
        warm_up_steps: How many steps each of these lasts.
        group: As for `register_comm_hook`; None for the default group.

    Raises:
        ValueError: A number is out of its range, or what it is for the compressor does not have.
    """

    def __init__(
        self,
        compressor: Compressor,
        *,
        feedback: bool | None = None,
        momentum: float = 0.0,
        warm_up: Sequence[float] = (),
        warm_up_steps: int = 0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        feedback = compressor.biased if feedback is None else feedback
        _check_numbers(momentum, warm_up, warm_up_steps)
        if compressor.density is None and (momentum or warm_up):
            raise ValueError(
                f"{compressor.word} gives all elements, or as many as their values have it: there "
                "is no density to warm up, and no momentum that would wait at a rank"
            )
        if momentum and not feedback:
            raise ValueError(f"momentum is {momentum}, without feedback: it is for what ranks keep")
        self.compressor = compressor
        self.group = group
        self.steps = 0
        self._density = compressor.density
        self._warm_up = tuple(warm_up)
        self._warm_up_steps = warm_up_steps
        self._momentum = momentum
        self._kept = Memory() if feedback else None
        self._velocity = Memory()
        self._in_step: set[str] = set()
        self._room = torch.empty(0)
        self._agreed = False
        self._text = (
            f"{compressor.text()}, feedback={feedback}, momentum={momentum}, "
            f"warm_up={list(warm_up)}, warm_up_steps={warm_up_steps}"
        )

    @property
    def density(self) -> float | None:
        """Share of the elements that is given in this step; None if it is all."""
        phase = self.steps // self._warm_up_steps if self._warm_up_steps else len(self._warm_up)
        return self._warm_up[phase] if phase < len(self._warm_up) else self._density

    def average_bucket(self, bucket: GradBucket) -> torch.Tensor:
        """Replace a bucket's gradients by their average over the ranks, and return it.

        Raises:
            ValueError: The gradients are neither float32, float16 nor bfloat16; or, in the first
                call, the ranks have different schemes.
            FloatingPointError: A gradient is not finite; the memory of this bucket stays as it was.
                Buckets of the same step before it have given theirs.
        """
        self._agree()
        parameters = bucket.parameters()
        if bucket.buffer().is_sparse:
            # Of an embedding the rows that there are: they are few, and are given whole.
            dist.all_reduce(bucket.buffer(), group=self.group)
            bucket.buffer().div_(dist.get_world_size(self.group))
        else:
            names = [id(each) for each in parameters]
            self._average(bucket.buffer(), names, [each.numel() for each in parameters])
        self.steps += bucket.is_last()
        return bucket.buffer()

    def average(self, tensor: torch.Tensor, name: str = "") -> torch.Tensor:
        """Replace a tensor by its average over the ranks, and return it; a collective.

        Args:
            tensor: Contiguous, float32, float16 or bfloat16.
            name: The memory is kept under this name. A name that comes again begins a step.

        Raises:
            ValueError: The tensor is not as it has to be, or had another size before; or, in the
                first call, the ranks have different schemes.
            FloatingPointError: An element is not finite; the memory stays as it was.
        """
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {name!r} {tuple(tensor.shape)} is not contiguous")
        self._agree()
        if name in self._in_step:
            self._in_step.clear()
            self.steps += 1
        self._in_step.add(name)
        self._average(tensor.view(-1), [name], [tensor.numel()])
        return tensor

    def state_dict(self, module: torch.nn.Module | None = None) -> dict[str, Any]:
        """Return what this rank keeps, to be saved for it with the model's parameters.

        Args:
            module: The model whose gradients were averaged, wrapped or not; None if `average` alone
                was called.

        Raises:
            ValueError: Something is kept for parameters that the model does not have.
        """
        names = {id(each): name for name, each in _parameters(module)}
        memories = {"velocity": self._velocity}
        if self._kept is not None:
            memories["kept"] = self._kept
        state: dict[str, Any] = {
            "steps": self.steps,
            "compressor": self.compressor.state_dict(),
            "kept": {},
            "velocity": {},
            "tensors": {},
        }
        for key, memory in memories.items():
            for piece, tensor in memory.pieces().items():
                if isinstance(piece, str):
                    state["tensors"].setdefault(piece, {})[key] = tensor
                elif piece in names:
                    state[key][names[piece]] = tensor
                else:
                    raise ValueError(
                        f"{len(tensor)} elements are kept for a parameter that the model does not "
                        "have"
                    )
        return state

    def load_state_dict(self, module: torch.nn.Module | None, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` has returned at this rank.

        Args:
            module: The model whose gradients will be averaged; None if there is none.
            state: The saved state.

        Raises:
            ValueError: The model has no parameter of a name or size that was saved.
        """
        parameters = dict(_parameters(module))
        memories = {"velocity": self._velocity}
        if self._kept is not None:
            memories["kept"] = self._kept
        restored: dict[str, dict[Hashable, torch.Tensor]] = {}
        for key in memories:
            pieces = restored[key] = {}
            for name, tensor in state[key].items():
                there = parameters.get(name)
                if there is None or there.numel() != tensor.numel():
                    raise ValueError(
                        f"{key} of {name} has {tensor.numel()} elements: the model has "
                        f"{'no such parameter' if there is None else there.numel()}"
                    )
                pieces[id(there)] = tensor
            for name, of_name in state["tensors"].items():
                if key in of_name:
                    pieces[name] = of_name[key]
        self.steps = state["steps"]
        self.compressor.load_state_dict(state["compressor"])
        for key, memory in memories.items():
            memory.restore(restored[key])
        self._agreed = False

    def _agree(self) -> None:
        """Check, once, that all ranks have the same scheme at the same step. A collective.

        Raises:
            ValueError: They have not; at all ranks.
        """
        if self._agreed:
            return
        text = f"{self._text}, step {self.steps}, {self.compressor.state_dict()}"
        number = zlib.crc32(text.encode()) >> 1
        both = torch.tensor([number, -number], dtype=torch.int32)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        if int(both.sum()):
            texts = [""] * dist.get_world_size(self.group)
            dist.all_gather_object(texts, text, group=self.group)
            listed = "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(texts))
            raise ValueError(f"the ranks have different schemes: {listed}")
        self._agreed = True

    def _average(
        self, gradients: torch.Tensor, names: Sequence[Hashable], sizes: Sequence[int]
    ) -> None:
        if gradients.dtype not in _DTYPES:
            raise ValueError(
                f"gradients are {gradients.dtype}: a scheme takes float32, float16, bfloat16"
            )
        if self.density is not None:
            self.compressor.density = self.density
        device = gradients.device if self.compressor.on_devices else "cpu"
        wide = gradients.to(device, torch.float32)
        if self._kept is None:
            self.compressor.take(wide.clone(), wide, self.group)
        else:
            self._average_with_memory(wide, names, sizes)
        if wide is not gradients:
            gradients.copy_(wide)

    def _average_with_memory(
        self, wide: torch.Tensor, names: Sequence[Hashable], sizes: Sequence[int]
    ) -> None:
        assert self._kept is not None
        kept = self._kept.of(names, sizes, wide.device)
        # If this step fails, because a gradient is not finite, what is kept stays as it was.
        if len(self._room) < len(kept) or self._room.device != kept.device:
            # Kept, as new memory costs more than what is done in it.
            self._room = torch.empty_like(kept)
        left = self._room[: len(kept)]
        if self._momentum:
            velocity = self._velocity.of(names, sizes, wide.device)
            moved = velocity * self._momentum + wide
            torch.add(kept, moved, out=left)
        else:
            torch.add(kept, wide, out=left)
        places = self.compressor.take(left, wide, self.group)
        kept.copy_(left)
        if self._momentum:
            moved[places] = 0.0
            velocity.copy_(moved)


def _check_numbers(momentum: float, warm_up: Sequence[float], warm_up_steps: int) -> None:
    for each in warm_up:
        checked_density(each)
    if warm_up_steps < 0 or not 0.0 <= momentum < 1.0 or not math.isfinite(momentum):
        raise ValueError(
            f"warm_up_steps is {warm_up_steps}, and momentum {momentum}: they must be from 0 on, "
            "and momentum below 1"
        )


def _parameters(module: torch.nn.Module | None) -> list[tuple[str, torch.nn.Parameter]]:
    """Return the parameters with their names, which DDP's wrapper does not change."""
    if module is None:
        return []
    inner = getattr(module, "module", module)
    return list((inner if isinstance(inner, torch.nn.Module) else module).named_parameters())
