"""The steps of sparse sums, among threads: each form gives the same, and is taken where it should.

`tests/host/test_sparse.py` has whole groups.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from afflux.group.reducers.sparse_sums import SparseSums
from afflux.group.reducers.topology import Topology
from afflux.sparse.agreement import count_rows
from afflux.sparse.cost_model import Costs
from afflux.sparse.index_forms import Rows, forms, random_union
from afflux.sparse.kinds import Kinds
from afflux.sparse.row_sums import all_reduce_coo
from afflux.sparse.sums import Way
from afflux_drivers.rows import list_words
from tests.support.host.local_sums import LocalGroup

RANKS = 3


def drawn(rank, rows, counts, width):
    source = torch.Generator().manual_seed(10 + rank)
    # Some come twice.
    numbers = torch.randint(rows, (counts[rank],), generator=source)
    shape = (rows,) if width is None else (rows, width)
    values = torch.randint(0, 3, (counts[rank], *shape[1:]), generator=source).float()
    # Elements are zero, rows are not.
    values.view(counts[rank], width or 1)[:, :1] += 1
    return torch.sparse_coo_tensor(numbers.unsqueeze(0), values, shape, check_invariants=False)


CASES = {
    # Rows, rows of each rank, width; the forms that the rule may take.
    "few among many rows": (20_000, (5, 0, 9), 70, {"lists"}),
    "fewer than one in 2,048": (20_000, (2, 1, 3), None, {"lists"}),
    "some rows": (5000, (300, 500, 400), 64, {"lists"}),
    "many elements": (5000, (1200, 1300, 1100), None, {"lists", "counts"}),
    "nearly all": (5000, (20_000, 9000, 15_000), 3, {"dense"}),
    "small": (100, (9, 8, 7), 3, {"dense", "lists"}),
}


@pytest.mark.parametrize("way", [Way.MEMORY, Way.STREAMS])
@pytest.mark.parametrize("forced", ["", "lists", "counts", "dense"])
@pytest.mark.parametrize("case", CASES)
def test_every_form_gives_the_sum(case, forced, way, monkeypatch):
    rows, counts, width, usual = CASES[case]
    kinds = [Kinds(RANKS) for _ in range(RANKS)]
    if forced:

        def choose(self, text, known, sums, indices, values, may_be_dense):
            return next(each for each in forms(known, indices, values) if each.name == forced)

        monkeypatch.setattr(Kinds, "choose", choose)

    def body(sums):
        own = drawn(sums.rank, rows, counts, width)
        result = all_reduce_coo(own, "sum", sums, kinds[sums.rank])
        assert result.is_coalesced()
        again = all_reduce_coo(own, "avg", sums, kinds[sums.rank])
        assert torch.equal(again.indices(), result.indices())
        torch.testing.assert_close(again.values() * RANKS, result.values())
        return result

    want = drawn(0, rows, counts, width)
    for rank in range(1, RANKS):
        want = want + drawn(rank, rows, counts, width)
    want = want.coalesce()
    for rank, result in enumerate(LocalGroup(RANKS, way).run(body)):
        assert torch.equal(result.indices(), want.indices())
        assert torch.equal(result.values(), want.values())
        for known in kinds[rank].statistics().values():
            assert set(known["calls"]) <= usual


def test_the_union_is_that_of_all_lists():
    """A rank that gathers another one's list gets what that one has, row by row, in three steps."""
    rows, counts = 4000, (40, 50, 60)
    group = LocalGroup(RANKS)

    def body(sums):
        own = drawn(sums.rank, rows, counts, 64)
        return all_reduce_coo(own, "sum", sums, Kinds(RANKS)).indices()[0]

    union = set()
    for rank in range(RANKS):
        union |= set(drawn(rank, rows, counts, 64).coalesce().indices()[0].tolist())
    for numbers in group.run(body):
        assert numbers.tolist() == sorted(union)
    # Counts, indices, values: each is one step.
    assert [name for name, _ in group.log] == ["all_reduce", "all_gather", "all_reduce"]


@pytest.mark.parametrize(("present", "form"), [(500, "dense"), (50, "lists")])
def test_overlap_is_learnt(present, form):
    """Ranks with the same rows have a small union: the next expectation is right."""
    kinds = [Kinds(RANKS) for _ in range(RANKS)]
    share = present / 1000

    def body(sums):
        same = torch.ones(present, 64).to_sparse(1)
        same.sparse_resize_((1000, 64), 1, 1)
        for _ in range(3):
            all_reduce_coo(same, "sum", sums, kinds[sums.rank])

    LocalGroup(RANKS).run(body)
    for each in kinds:
        (found,) = each.statistics().values()
        assert found["overlap"] == pytest.approx(share / (1 - (1 - share) ** 3))
        assert found["union"] == pytest.approx(share)
        assert set(found["calls"]) == {form}


def rows_of(density, ranks=4, rows=100_000, width=1):
    present = (round(rows * density),) * ranks
    union = rows * (1 - (1 - density) ** ranks)
    return Rows(rows, present, union, width, 4)


@pytest.mark.parametrize("way", [Way.STREAMS, Way.AGGREGATOR, Way.MEMORY, Way.GLOO])
def test_from_sparse_to_dense_where_the_union_grows(way):
    """The switch is where the index and the union's values have as many bytes as all values."""
    costs, switched = Costs(4), []
    for thousandth in range(1, 1000):
        found = forms(rows_of(thousandth / 1000), way, way)
        names = [each.name for each in found]
        least = costs.least(found).name
        assert names == ["lists", "counts", "dense"]
        switched.append(least == "dense")
        sizes = {each.name: costs.bytes(each) for each in found}
        assert (least == "dense") == (sizes["dense"] < min(sizes["lists"], sizes["counts"]))
    first = switched.index(True)
    # Never back.
    assert all(switched[first:])
    # The union of four ranks is then 90 to 94 % of all rows, more than the half of SparCML's rule,
    # which has 4 bytes of index for each 4 of value; an index has a few bits here.
    assert 0.43 < first / 1000 < 0.51


def test_the_model_follows_what_is_measured():
    costs = Costs(4)
    found = forms(rows_of(0.01), Way.AGGREGATOR, Way.AGGREGATOR)
    assert costs.milliseconds(found[0]) is None
    costs.note(100, 300e-6)
    costs.note(1_250_000, 10e-3 + 300e-6)
    assert costs.told() == (300, 125_000)
    costs.hear([costs.told()] * 4)
    lists, counts, dense = found
    expected = 2 * 0.3 + costs.bytes(lists) / 125_000
    assert costs.milliseconds(lists) == pytest.approx(expected)
    assert costs.least(found) is lists
    # Where steps take long and bytes do not, the form with one step is the fastest.
    costs.hear([(50_000, 2_000_000_000)] * 4)
    assert costs.least(found) is dense
    assert costs.least((lists, counts)) is lists


def test_medians_of_what_ranks_tell_are_the_same_everywhere():
    costs = Costs(4)
    costs.hear([(0, 0), (100, 10), (300, 30), (200, 20)])
    assert (costs.latency_us, costs.rate) == (100, 10)


def test_aggregators_get_whole_rows_of_their_grid():
    """A row of the grid has as many blocks for each aggregator; less than one has them as it is."""
    tickets = [SimpleNamespace(slots=32, lanes=5)] * 4
    nothing: Any = None

    def over(tickets, topology="aggregator"):
        reducer: Any = SimpleNamespace(tickets=tickets, topology=Topology(topology, ""))
        return SparseSums(reducer, nothing, nothing, 0, 4, nothing)

    sums = over(tickets)
    row = 4 * 32 * 5 * 64
    assert sums.columns_shared
    assert [sums.capacity(size) for size in (5, row - 7, row, row + 1)] == [5, row, row, 2 * row]
    assert sums.capacity(10 * row + 1) % row == 0
    one = over(tickets[:1])
    assert not one.columns_shared
    assert one.capacity(10 * row + 1) % row != 0
    ranks = over((), "streams by host")
    assert ranks.columns_shared
    assert ranks.capacity(10 * row + 1) % row != 0


def test_counts_of_rows_beyond_a_word_are_told():
    group = LocalGroup(2)

    def body(sums):
        return count_rows((3 << 31) + 7 + sums.rank, sums, Kinds(2))

    assert group.run(body) == [[(3 << 31) + 7, (3 << 31) + 8]] * 2


def test_numbers_stay_whole():
    """Counts of rows are told in two words."""
    huge = np.iinfo(np.int64).max // 2
    tensor = torch.sparse_coo_tensor(
        torch.tensor([[3, huge - 1]]), torch.ones(2), (huge,), check_invariants=False
    )

    def body(sums):
        return all_reduce_coo(tensor, "sum", sums, Kinds(2))

    for result in LocalGroup(2).run(body):
        assert result.indices()[0].tolist() == [3, huge - 1]
        assert result.values().tolist() == [2, 2]


def test_statistics_beside_a_sum_of_a_new_kind():
    kinds = Kinds(2)

    class Latest(dict):
        # Without it, no method is asked for the keys.
        def __iter__(self):
            return iter(self.keys())

        def keys(self):
            # A sum in another thread begins.
            kinds.kind("third")
            return super().keys()

    kinds.kind("first").latest = Latest(form="lists")
    kinds.kind("second")
    assert set(kinds.statistics()) == {"first", "second"}
    assert set(kinds.statistics()) == {"first", "second", "third"}


def test_forms_are_compared_by_whole_numbers():
    """Ranks whose floats differ in the last bit choose the same form."""
    for way in (Way.STREAMS, Way.MEMORY):
        rows = rows_of(0.3, width=3)
        above = replace(rows, union=np.nextafter(rows.union, rows.all))
        costs = Costs(4)
        costs.hear([(97, 1237)] * 4)
        for one, other in zip(forms(rows, way, way), forms(above, way, way), strict=True):
            assert isinstance(costs.bytes(one), int)
            assert costs.bytes(one) == costs.bytes(other)


def test_few_among_more_rows_than_a_float_counts():
    assert random_union(1 << 60, (3, 0, 5)) == 8
    assert random_union(100, (50, 50)) == pytest.approx(75)


def test_gathered_lists_are_as_long_as_the_longest():
    rows = Rows(1_000_000, (1000, 10, 10), 1020.0, 64, 4)
    sizes = [4 * list_words(each, rows.all) for each in rows.present]
    for way in (Way.MEMORY, Way.GLOO):
        assert forms(rows, way, way)[0].index_bytes == 3 * sizes[0]
    for way in (Way.STREAMS, Way.AGGREGATOR):
        assert forms(rows, way, way)[0].index_bytes == sum(sizes)
