import pytest

from afflux_drivers.worker.loss import LossSwitch


def fates(switch: LossSwitch) -> tuple[list[bool], list[bool]]:
    outward = [switch.loses_outward() for _ in range(1000)]
    return outward, [switch.loses_inward() for _ in range(1000)]


def test_seed_and_rank_fix_every_fate():
    assert fates(LossSwitch(0.1, 1, 2)) == fates(LossSwitch(0.1, 1, 2))
    outward, inward = fates(LossSwitch(0.1, 1, 2))
    assert outward != inward
    assert fates(LossSwitch(0.1, 1, 3))[0] != outward
    assert fates(LossSwitch(0.1, 2, 2))[0] != outward
    assert 60 < sum(outward) < 140


def test_directions_do_not_disturb_each_other():
    switch = LossSwitch(0.1, 1, 2)
    outward = []
    for _ in range(1000):
        outward.append(switch.loses_outward())
        switch.loses_inward()
    assert outward == fates(LossSwitch(0.1, 1, 2))[0]


@pytest.mark.parametrize("share", [1, -0.1, float("nan")])
def test_a_share_that_is_none_is_an_error(share):
    with pytest.raises(ValueError, match=str(share)):
        LossSwitch(share, 0, 0)
