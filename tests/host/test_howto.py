"""The scheme that a how-to shows does what the page says."""

import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from docs.generate.source_tree import ROOT


def test_a_scheme_of_ones_own_loses_nothing() -> None:
    page = (ROOT / "docs/howto/add_a_scheme.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```python\n(.*?)```", page, re.M | re.S)
    names: dict[str, type] = {}
    exec(compile(text, "add_a_scheme.md", "exec"), names)
    scheme = names["Steps"](step=0.25)
    group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=10))
    tensor = torch.randn(100, generator=torch.Generator().manual_seed(1))
    before, average = tensor.clone(), torch.empty(100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", lambda tensor, op, _: group.allreduce([tensor]).wait())
        scheme.take(tensor, average, None)
    assert torch.equal(average, (before / 0.25).round() * 0.25)
    assert torch.allclose(tensor + average, before)
    assert tensor.abs().max() <= 0.125
