"""Schemes of averaging that send less than everything: as hooks for DDP, and as functions.

    scheme = afflux.hooks.register(ddp, "gtopk:density=0.001+momentum:factor=0.9")

or, with AFFLUX_SCHEME in the environment, `afflux.hooks.register(ddp)`. For a tensor of one's own,
`afflux.hooks.scheme("bf16").average(tensor, "its name")`.
"""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from afflux.compressors.block_top_k import BlockTopK
from afflux.compressors.fixed_point import Int4, Int8, Int12
from afflux.compressors.global_top_k import GlobalTopK, TreeTopK
from afflux.compressors.half import BFloat16, Float16
from afflux.compressors.mstopk import MSTopK
from afflux.compressors.random_k import RandomK
from afflux.compressors.threshold import Threshold
from afflux.compressors.top_k import TopK
from afflux.compressors.whole import Whole
from afflux.group.settings.variables import Settings, SettingsError
from afflux.overlap.priorities import Priorities, priorities_hook
from afflux.scheme_words import scheme
from afflux.schemes.compressor import Compressor, Selector
from afflux.schemes.hooks import scheme_hook
from afflux.schemes.scheme import Scheme
from afflux.schemes.selected import Selected

__all__ = [
    "BFloat16",
    "BlockTopK",
    "Compressor",
    "Float16",
    "GlobalTopK",
    "Int4",
    "Int8",
    "Int12",
    "MSTopK",
    "Priorities",
    "RandomK",
    "Scheme",
    "Selected",
    "Selector",
    "Threshold",
    "TopK",
    "TreeTopK",
    "Whole",
    "priorities_hook",
    "register",
    "scheme",
    "scheme_hook",
]


def register(
    ddp: DistributedDataParallel, chosen: str | Scheme | Compressor | None = None
) -> Scheme | None:
    """Have a model's gradients averaged by a scheme.

    Args:
        ddp: The model, before its first step.
        chosen: A scheme, a compressor for one, or its words (see `scheme_words`). None for what
            AFFLUX_SCHEME says.

    Returns:
        The scheme; None if there is none in the environment either. Then DDP averages as ever.

    Raises:
        ValueError: There is no such scheme, or it is for a group of other ranks.
        SettingsError: AFFLUX_SCHEME says what there is not.
    """
    if chosen is None:
        text = Settings.from_environment().scheme
        if not text:
            return None
        try:
            made = scheme(text, ddp.process_group)
        except ValueError as error:
            raise SettingsError(f"AFFLUX_SCHEME: {error}") from error.__cause__
    elif isinstance(chosen, Scheme):
        made = chosen
        made.group = _same_ranks(made.group, ddp.process_group)
    elif isinstance(chosen, Compressor):
        made = Scheme(chosen, group=ddp.process_group)
    else:
        made = scheme(chosen, ddp.process_group)
    ddp.register_comm_hook(made, scheme_hook)
    return made


def _same_ranks(group: dist.ProcessGroup | None, of_model: dist.ProcessGroup) -> dist.ProcessGroup:
    """Return the group in which to average: that of the model, or another of the same ranks."""
    if group is None:
        return of_model
    ranks, wanted = map(dist.get_process_group_ranks, (group, of_model))
    if ranks != wanted:
        raise ValueError(f"the scheme averages over ranks {ranks}, the model is on {wanted}")
    return group
