import pytest

from afflux_drivers._native import GRANULARITY_S, INITIAL_S, RoundTrip


def test_follows_rfc_6298():
    trip = RoundTrip(cap_s=10)
    assert trip.timeout_s == INITIAL_S
    trip.sample(0.0, 1.0)
    assert (trip.smoothed_s, trip.timeout_s) == (1.0, 1.0 + 4 * 0.5)
    trip.sample(3.0, 5.0)
    # RTTVAR = 3/4 * 0.5 + 1/4 * |1 - 2|; SRTT = 7/8 * 1 + 1/8 * 2.
    assert trip.smoothed_s == pytest.approx(1.125)
    assert trip.timeout_s == pytest.approx(1.125 + 4 * 0.625)


def test_bounds():
    trip = RoundTrip(cap_s=0.5)
    for _ in range(100):
        trip.sample(0.0, 2**-13)
    assert trip.timeout_s == pytest.approx(2**-13 + GRANULARITY_S)
    trip.sample(0.0, 100.0)
    assert trip.timeout_s == 0.5


def test_a_bound_lowers_the_estimate_but_never_raises_it():
    trip = RoundTrip(cap_s=1)
    trip.sample_bound(0.0, 0.1)
    assert trip.smoothed_s == 0.1, "better than none"
    before = trip.timeout_s
    trip.sample_bound(1.0, 1.2)
    assert (trip.smoothed_s, trip.timeout_s) == (0.1, before)
    trip.sample_bound(2.0, 2.02)
    assert trip.smoothed_s == pytest.approx(0.1 - 0.08 / 8)


def test_a_bound_within_the_estimate_ends_the_doubling():
    trip = RoundTrip(cap_s=1)
    trip.sample(0.0, 0.1)
    before = trip.timeout_s
    trip.expired(0.2, now=0.5)
    assert trip.timeout_s == 2 * before
    # Slower than the estimate: it may be too short indeed.
    trip.sample_bound(1.0, 1.0 + before + 0.01)
    assert trip.timeout_s == 2 * before
    trip.sample_bound(2.0, 2.0 + before - 0.01)
    assert trip.timeout_s == before


def test_overdue_is_less_patient_than_the_timeout():
    trip = RoundTrip(cap_s=1)
    for i in range(100):
        trip.sample(i, i + 0.001)
    assert trip.overdue_after_s == pytest.approx(0.002)
    assert trip.timeout_s == pytest.approx(0.001 + GRANULARITY_S)
    trip.sample(100, 100.5)
    assert trip.overdue_after_s == trip.timeout_s, "the variation decides both"


def test_a_flight_doubles_once_and_a_sample_ends_it():
    trip = RoundTrip(cap_s=1)
    trip.sample(-0.2, -0.1)
    before = trip.timeout_s
    for sent_at in (0.0, 0.01, 0.02):
        trip.expired(sent_at, now=0.4)
    assert trip.timeout_s == 2 * before
    trip.expired(0.5, now=1.5)
    assert trip.timeout_s == 1
    trip.sample(1.5, 1.6)
    assert trip.timeout_s < 2 * before


def test_a_lost_packet_does_not_make_the_path_slow():
    trip = RoundTrip(cap_s=1)
    trip.sample(0.0, 0.1)
    trip.sample(0.3, 0.4)
    before = trip.timeout_s
    trip.expired(0.2, now=0.6)
    assert trip.timeout_s == before
    trip.expired(0.35, now=0.8)
    assert trip.timeout_s == 2 * before


def test_packets_without_blocks_count_only_a_while_after_those_with():
    """A slow aggregator answers them far sooner: their samples would ask for the others early."""
    trip = RoundTrip(cap_s=10)
    trip.sample_short(0.0, 0.002)
    assert trip.smoothed_s == 0.002, "better than none"
    trip.sample(1.0, 1.02)
    smoothed, timeout = trip.smoothed_s, trip.timeout_s
    for now in (1.05, 1.5, 2.0):
        trip.sample_short(now - 0.001, now)
        trip.sample_bound(now - 0.001, now)
    assert (trip.smoothed_s, trip.timeout_s) == (smoothed, timeout)
    trip.sample_short(2.02, 2.021)
    assert trip.smoothed_s < smoothed
    trip.sample_bound(2.03, 2.031)
    assert trip.smoothed_s == pytest.approx(0.875 * (0.875 * smoothed + 0.001 / 8) + 0.001 / 8)
