"""`python -m afflux.demo`: train the same network through three backends and compare.

Four ranks, each a process under torchrun, train a small network on the handwritten digits that
come with scikit-learn: through the engine's RTL in simulation, through the software engine, and
through Gloo. The first two must agree to the bit, whatever the network loses. With
`--aggregator board` the first is a complete simulated board, from RGMII pins to RGMII pins: its
MAC, clock crossings and node, and jobs that its controller makes by management packets.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from afflux.demo.launch import Run, train
from afflux.demo.report import checks, table
from afflux.torchrun import RanksFailed

__all__ = ["main"]


_SIMULATED = {"rtl": "rtl://", "board": "board://"}


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 0.5:
        raise argparse.ArgumentTypeError(f"must be a share of packets, 0 to 0.5, not {text}")
    return share


def _progress(name: str, epochs: int) -> Callable[[dict[str, Any]], None]:
    """Show an epoch: over the one before on a terminal, else on a line of its own."""
    alive = sys.stdout.isatty()

    def show(news: dict[str, Any]) -> None:
        done = news["epoch"]
        text = (
            f"{name:<16} epoch {done:>2}/{epochs}   loss {news['loss']:.4f}   "
            f"held-out accuracy {news['accuracy']:.2%}"
        )
        if alive:
            bar = "█" * (20 * done // epochs)
            end = "\n" if done == epochs else ""
            print(f"\r\x1b[K{text}   {bar:<20}", end=end, flush=True)
        else:
            print(text, flush=True)

    return show


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 0 if all checks hold, 1 if not, 130 if interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m afflux.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--loss", type=_share, default=0.0, help="share of packets to lose each way (%(default)s)"
    )
    parser.add_argument(
        "--aggregator",
        choices=list(_SIMULATED),
        default="rtl",
        help="what is simulated: the engine, or a whole board (%(default)s)",
    )
    parser.add_argument("--epochs", type=int, default=12, help="passes over the data (%(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="number of processes (%(default)s)")
    parser.add_argument("--without-rtl", action="store_true", help="leave the simulated engine out")
    arguments = parser.parse_args(argv)

    plan: list[tuple[str, str, float]] = []
    if not arguments.without_rtl:
        plan.append((arguments.aggregator, _SIMULATED[arguments.aggregator], arguments.loss))
    plan.append(("soft", "soft://", arguments.loss))
    if arguments.loss:
        # The bits that loss must not change.
        plan.append(("soft, no loss", "soft://", 0.0))
    plan.append(("gloo", "", 0.0))

    lossy = f", {arguments.loss:.1%} of all packets lost each way" if arguments.loss else ""
    print(f"training on handwritten digits: {arguments.ranks} ranks{lossy}\n", flush=True)
    signal.signal(signal.SIGTERM, _interrupt)
    runs: list[Run] = []
    try:
        for name, url, loss in plan:
            if sys.stdout.isatty():
                simulated = url in _SIMULATED.values()
                built = " (the first time, the simulator is built)" if simulated else ""
                print(f"{name:<16} starting{built}", end="", flush=True)
            runs.append(
                train(
                    name,
                    url,
                    ranks=arguments.ranks,
                    epochs=arguments.epochs,
                    loss=loss,
                    on_epoch=_progress(name, arguments.epochs),
                )
            )
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except RanksFailed as error:
        print(f"\n{name}: {error}", file=sys.stderr)
        return 1

    print(f"\n{table(runs)}\n")
    found = checks(runs)
    for check in found:
        print(f"{'✓' if check.holds else '✗ FAILED'}  {check.claim}")
    return 0 if all(check.holds for check in found) else 1


if __name__ == "__main__":
    sys.exit(main())
