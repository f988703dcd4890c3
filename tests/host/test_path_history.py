"""Which way tensors take between hosts: the same at all ranks, whatever each has measured."""

import random

import pytest

from afflux.group.autotune.path_history import DENSE, PathHistory, Way
from afflux.group.autotune.rates import Rates

MIB = 1 << 20

# 1 MiB and 8 MiB: as fast if dense, shards much faster if sparse.
EVEN = Rates([(MIB, 0.010, 0.001, 0.010), (8 * MIB, 0.080, 0.008, 0.080)])
# A slow network; Gloo is twice as fast if dense.
SLOW = Rates([(MIB, 0.2, 0.001, 0.1)])
# Gloo is twice as fast if dense.
FAST = Rates([(MIB, 0.002, 0.0004, 0.001), (8 * MIB, 0.016, 0.003, 0.008)])


class Ranks:
    """The ledgers of some ranks, which tell each other what they would through the shards.

    Args:
        rates: The calibration's.
        size: Bytes of a tensor.
        chance: The part of measurements that differs between ranks.
    """

    def __init__(self, rates, size=16 * MIB, ranks=4, chance=None):
        self.each = [PathHistory(rates, size) for _ in range(ranks)]
        self.chance = chance or random.Random(1)
        self.asked = 0

    def call(self, density, took_us=(1000, 1000)):
        """Make a call whose result has this density; return the way that it takes.

        Of a sparse one each rank's tensor has about half of these blocks.
        """
        assert len({history.ask for history in self.each}) == 1
        if self.each[0].ask:
            self.asked += 1
            assert len({history.state for history in self.each}) == 1
            part = density if density == DENSE else density // 2
            coming = [part - (0 < part < DENSE) * self.chance.randrange(2) for _ in self.each]
            told = [(*history.news, own) for history, own in zip(self.each, coming, strict=True)]
            news = tuple(map(max, zip(*told, strict=True)))
            for history in self.each:
                history.told(news)
        assert len({(history.way, history.state, history.reason) for history in self.each}) == 1
        way = self.each[0].way
        for history in self.each:
            found = density
            if way is Way.GLOO and 0 < density < DENSE:
                # Not the same bits everywhere.
                found = min(DENSE, density + self.chance.randrange(3))
            history.done(way, took_us[way] + self.chance.randrange(200), found)
        return way

    def calls(self, count, density, took_us=(1000, 1000)):
        return [self.call(density, took_us) for _ in range(count)]


def test_rates_between_and_beyond_sizes():
    assert EVEN.gloo_s(MIB // 2) == EVEN.gloo_s(MIB) == 0.010
    assert EVEN.gloo_s(3 * MIB) == pytest.approx(0.030)
    assert EVEN.gloo_s(100 * MIB) == pytest.approx(1.0)
    assert EVEN.shards_s(8 * MIB, 0.5) == pytest.approx(0.044)
    assert Rates([(MIB, 0.1, 0.01, 0.1)]).gloo_s(10 * MIB) == pytest.approx(1.0)


def test_sparse_tensors_go_to_shards_though_dense_ones_do_not():
    ranks = Ranks(FAST)
    # The first is taken for dense; the second finds out.
    assert ranks.calls(4, 10) == [Way.GLOO, *[Way.SHARDS] * 3]
    assert "shards would take 6.25 ms, and Gloo 16 ms, 1.07 % of blocks" in ranks.each[0].reason
    assert ranks.asked == 1
    assert ranks.calls(3, 10) == [Way.SHARDS] * 3
    assert ranks.asked == 1
    assert Ranks(FAST).calls(5, DENSE) == [Way.GLOO] * 5


@pytest.mark.parametrize(("took_us", "faster"), [((9000, 5000), 1), ((5000, 9000), 0)])
def test_where_rates_leave_doubt_both_ways_are_tried(took_us, faster):
    ranks = Ranks(EVEN)
    ways = ranks.calls(10, DENSE, took_us)
    # 160 ms each: two of each way are enough.
    assert ways[:5] == [Way.SHARDS, Way.SHARDS, Way.GLOO, Way.SHARDS, Way.GLOO]
    assert ways[5:] == [Way(faster)] * 5
    assert "shards took" in ranks.each[0].reason
    # Before each of the trial's, and to know how the last one was; then before Gloo's.
    assert ranks.asked == (9 if faster else 5)


def test_equal_ways_leave_shards():
    ranks = Ranks(EVEN, chance=random.Random(3))
    assert ranks.calls(10, DENSE, (10_000, 10_000))[-1] is Way.SHARDS


def test_a_density_that_changes_changes_the_way():
    ranks = Ranks(FAST)
    assert ranks.calls(20, DENSE)[-1] is Way.GLOO
    # Found out within some calls, as ranks do not compare notes at each.
    assert ranks.calls(4, 10)[-1] is Way.SHARDS
    # At once, as a result of shards is the same everywhere.
    assert ranks.calls(2, DENSE) == [Way.SHARDS, Way.GLOO]


def test_where_calls_take_long_the_change_is_found_out_at_once():
    ranks = Ranks(SLOW)
    ranks.calls(3, DENSE)
    assert ranks.calls(2, 10) == [Way.GLOO, Way.SHARDS]


def test_chance_does_not_change_the_way():
    ranks = Ranks(EVEN)
    ranks.calls(1, 100)
    before = ranks.each[0].reason
    ranks.calls(50, 140)
    assert ranks.each[0].reason == before


@pytest.mark.parametrize("rates", [SLOW, EVEN])
def test_tensors_of_one_size_and_several_densities_go_their_ways(rates):
    """As the gradients of an embedding and of the layer that scores words: a bucket each."""
    ranks = Ranks(rates)
    took = {10: (5_000, 100_000), DENSE: (200_000, 100_000)}
    steps = [[ranks.call(density, took[density]) for density in (DENSE, 10)] for _ in range(20)]
    assert steps[10:] == [[Way.GLOO, Way.SHARDS]] * 10
    # The same size, and one density again.
    assert ranks.calls(3, 10, took[10]) == [Way.SHARDS] * 3


def test_a_density_that_changes_seldom_is_not_looked_at_before_each_call():
    ranks = Ranks(SLOW)
    for _ in range(4):
        ranks.calls(100, 10)
        before = ranks.asked
        ranks.calls(100, 100)
        assert ranks.asked == before


def test_small_tensors_are_not_looked_at_before_each_call():
    ranks = Ranks(FAST, size=MIB)
    for _ in range(20):
        ranks.calls(2, DENSE)
        ranks.calls(2, 10)
    assert ranks.asked < 40


def test_where_there_is_no_choice_ranks_compare_now_and_then():
    ranks = Ranks(Rates([(MIB, 0.010, 0.009, 0.001)]), size=MIB)
    assert ranks.calls(64, 10) == [Way.GLOO] * 64
    assert ranks.asked <= 4


@pytest.mark.parametrize("seed", range(20))
def test_ranks_never_differ(seed):
    chance = random.Random(seed)
    points, size = [], chance.randrange(64 << 10, 2 * MIB)
    for _ in range(chance.randrange(1, 4)):
        dense, gloo = chance.uniform(0.001, 0.1), chance.uniform(0.001, 0.1)
        points.append((size, dense, dense * chance.random(), gloo))
        size *= chance.randrange(2, 9)
    ranks = Ranks(Rates(points), chance.randrange(32 << 10, 64 * MIB), chance=chance)
    for _ in range(20):
        took_us = (chance.randrange(1, 10**6), chance.randrange(1, 10**6))
        ranks.calls(chance.randrange(1, 40), chance.randrange(DENSE + 1), took_us)
