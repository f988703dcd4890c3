"""MSTopK: how near its search comes to the largest elements."""

import torch

from afflux.compressors.mstopk_search import mstopk, search
from afflux.compressors.selection import largest


def test_the_search_of_mstopk_finds_nearly_the_largest():
    tensor = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    exact = set(largest(tensor, 200).tolist())
    for passes in (1, 5, 10, 30):
        found = search(tensor.abs(), 200, passes)
        assert found.above <= 200 <= found.at_least
        places = mstopk(tensor, 200, passes=passes, generator=torch.Generator().manual_seed(2))
        assert len(places) == 200 and (places.diff() > 0).all()
        assert len(exact - set(places.tolist())) <= 200 - found.above
    assert found.above >= 199
    for count in (1, 500, 20_000):
        assert len(mstopk(torch.ones(20_000), count)) == count
        assert len(mstopk(torch.zeros(20_000), count)) == count
