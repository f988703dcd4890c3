"""Build-time parameters: their sizes, and what is refused."""

import pytest

from afflux_hdl.engine.parameters import Parameters


@pytest.mark.parametrize(
    "name, value",
    [
        ("bus_bits", 48),
        ("bus_bits", 1024),
        ("workers", 0),
        ("workers", 65),
        ("lanes", 0),
        ("lanes", 17),
        ("jobs", 0),
        ("jobs", 257),
        ("slots", 1),
        ("slots", 24),
        ("slots", 65536),
    ],
)
def test_values_out_of_range_are_named(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} .*{value}"):
        Parameters(**{name: value})


@pytest.mark.parametrize("bus_bits", [32, 64, 128, 256, 512])
def test_beats_of_a_frame(bus_bits: int) -> None:
    parameters = Parameters(bus_bits=bus_bits)
    assert parameters.frame_beats_max * parameters.bus_bytes == 128 + 16 * 512, "partial sums"
    assert parameters.block_beats % 2 == 0, "banks alternate by beat"
    assert parameters.buffer_beats & (parameters.buffer_beats - 1) == 0
    assert parameters.buffer_beats >= 3 * parameters.payload_beats_max
