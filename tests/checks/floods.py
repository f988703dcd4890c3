"""`python -m tests.checks.floods`: floods of frames of every size, at both widths.

The long version of `tests/sim/test_engine_floods.py`; ends with a traceback if anything is lost.
"""

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.flood_checks import FLOOD_BEATS, check_flood, check_mixed_flood

MIXTURES = 40


def main() -> None:
    for bus_bits, build in BUILDS.items():
        for beats in FLOOD_BEATS:
            with open_engine(bus_bits) as engine:
                check_flood(engine, build, bus_bits, beats)
        for seed in range(100, 100 + MIXTURES):
            with open_engine(bus_bits) as engine:
                check_mixed_flood(engine, build, bus_bits, seed)
        print(f"{bus_bits} bits: {len(FLOOD_BEATS)} sizes and {MIXTURES} mixtures, nothing lost")


if __name__ == "__main__":
    main()
