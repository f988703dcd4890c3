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


def test_environment(monkeypatch):
    monkeypatch.delenv("AFFLUX_TEST_LOSS", raising=False)
    monkeypatch.delenv("AFFLUX_TEST_SEED", raising=False)
    assert LossSwitch.from_environment(0) is None
    monkeypatch.setenv("AFFLUX_TEST_LOSS", "0")
    assert LossSwitch.from_environment(0) is None
    monkeypatch.setenv("AFFLUX_TEST_LOSS", "0.25")
    monkeypatch.setenv("AFFLUX_TEST_SEED", "9")
    switch = LossSwitch.from_environment(4)
    assert switch is not None
    assert fates(switch) == fates(LossSwitch(0.25, 9, 4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AFFLUX_TEST_LOSS", "much"),
        ("AFFLUX_TEST_LOSS", "1"),
        ("AFFLUX_TEST_LOSS", "-0.1"),
        ("AFFLUX_TEST_LOSS", "nan"),
        ("AFFLUX_TEST_SEED", "1.5"),
    ],
)
def test_environment_that_makes_no_sense(monkeypatch, name, value):
    monkeypatch.setenv("AFFLUX_TEST_LOSS", "0.1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        LossSwitch.from_environment(0)
