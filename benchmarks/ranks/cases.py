"""The cases of `make bench-host`, and their targets."""

from dataclasses import dataclass

__all__ = ["CASES", "DDP_OVERHEAD_WANTED", "RANKS", "Case"]

RANKS = (2, 4, 8)

DDP_OVERHEAD_WANTED = 0.05
"""Share of a DDP step that the process group may add to the engine's own."""


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        name: Value of "case" in its rows.
        title: Its name in tables.
        bytes: Size of each rank's float32 tensor.
        density: Share of its blocks that are not zero.
        reachable: Whether other ranks can reach it.
        iterations, warmup: Calls in a run.
        wanted: Times as fast as Gloo, by number of ranks.
        floor_key: The floor that it is compared with.
        floor_wanted: How many times its floor it may take; None: any number.
    """

    name: str
    title: str
    bytes: int
    density: float
    reachable: bool
    iterations: int
    warmup: int
    wanted: dict[int, float]
    floor_key: str = "floor_s"
    floor_wanted: float | None = None

    def options(self, quick: bool) -> list[str]:
        """Return the options of `afflux bench`; a quick run only shows that it works."""
        size = min(self.bytes, 64 << 10) if quick else self.bytes
        found = ["-b", str(size), "-e", str(size), "--density", str(self.density)]
        found += ["-n", "2" if quick else str(self.iterations)]
        found += ["-w", "1" if quick else str(self.warmup)]
        found += ["--compare", "gloo", "--repeats", "2" if quick else "5", "--no-out-of-place"]
        return [*found, "--reachable"] if self.reachable else found


CASES = (
    Case("dense", "100 MB dense", 10**8, 1.0, False, 3, 1, {2: 3.5, 4: 3.0, 8: 2.7}),
    Case(
        "dense_reachable", "100 MB dense, reachable", 10**8, 1.0, True, 3, 1,
        {2: 6.0, 4: 7.0, 8: 8.0}, "floor_s", 2.0,
    ),
    Case("sparse", "100 MB, 1 % of blocks", 10**8, 0.01, False, 2, 1, {2: 6.0, 4: 4.5, 8: 4.0}),
    Case(
        "sparse_reachable", "100 MB, 1 % of blocks, reachable", 10**8, 0.01, True, 2, 1,
        {2: 8.0, 4: 10.0, 8: 12.0}, "read_floor_s", 1.5,
    ),
    Case("256K", "256 KB", 256 << 10, 1.0, False, 100, 10, {2: 4.0, 4: 8.0, 8: 8.0}),
    Case("4K", "4 KB", 4 << 10, 1.0, False, 300, 20, {2: 15.0, 4: 50.0, 8: 50.0}),
)  # fmt: skip
