"""The options of `afflux bench`: those of nccl-tests where they apply, and a few of our own."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux.commands.bench.catalogue import COLLECTIVES, COMPARED, REPLAYS, TYPES
from afflux.commands.bench.sizes import parse_size, sweep
from afflux_drivers.option_types import whole

__all__ = ["OPS", "TO_OUTPUT", "BenchOptions", "add_arguments", "read_options", "run"]

OPS = ("sum", "avg", "max", "min")

TO_OUTPUT = Path("-")
"""The file that stands for standard output."""

_ALTERNATING_REPEATS = 5
_MOST_RANKS = 64
_DEFAULT_SIZE = "32M"

# Options of nccl-tests without a meaning here: option, long name, the value that changes nothing,
# and why. Commands that people have copied contain `-g 1`; only other values are refused.
_REFUSED: tuple[tuple[str, str, str, str], ...] = (
    ("-t", "--nthreads", "1", "a rank is a process with one thread: set the number of ranks"),
    ("-g", "--ngpus", "1", "a rank is a process, and tensors are in CPU memory: use --ranks"),
    ("-m", "--agg_iters", "1", "calls are not aggregated"),
    ("-r", "--root", "0", "broadcast is measured from rank 0, the others have no root"),
    ("-p", "--parallel_init", "0", "each process makes its own group"),
    ("-z", "--blocking", "0", "each call returns when it is over: streams do not exist here"),
    ("-y", "--stream_null", "0", "streams do not exist here"),
    ("-G", "--cudagraph", "0", "CUDA graphs do not exist here"),
    ("-C", "--report_cputime", "0", "processor time is always shown beside the wall time"),
    ("-D", "--device_implementation", "0", "device kernels do not exist here"),
    ("-V", "--device_cta_count", "0", "device kernels do not exist here"),
    ("-x", "--cta_policy", "0", "device kernels do not exist here"),
    ("-u", "--unalign", "0", "tensors are where torch puts them"),
    ("-I", "--iter_stats", "0", "the JSON of -J has every run; more of them with --repeats"),
    ("-K", "--iter_samples", "0", "the JSON of -J has every run; more of them with --repeats"),
    ("-F", "--output_file_csv", "", "results are written as JSON, with -J"),
)


@dataclass(frozen=True)
class BenchOptions:
    """The measurement to run. Sizes are in bytes, as given; they are rounded to whole elements.

    Attributes:
        least, most: As given with -b and -e; `sizes` need not reach `most`.
        table: Whether the table of nccl-tests is printed, instead of JSON.
        replay: One of REPLAYS, whose calls take the place of all others; empty for none.
    """

    collective: str
    sizes: tuple[int, ...]
    least: int
    most: int
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]
    iterations: int = 20
    warmup: int = 1
    checks: int = 1
    cycles: int = 1
    average: int = 1
    repeats: int = 1
    density: float = 1.0
    reachable: bool = False
    compare: tuple[str, ...] = ()
    timeout_s: float = 300.0
    timestamps: bool = False
    memory: bool = False
    seed: int = 0
    out_of_place: bool = True
    step: str = ""
    table: bool = True
    replay: str = ""

    @property
    def cases(self) -> list[tuple[str, str, int]]:
        """Reduction, type and size of each row of a cycle, in the table's order."""
        return [
            (op, dtype, size)
            for op in self.ops
            for dtype in self.dtypes
            if op != "avg" or dtype not in ("int32", "int64")
            for size in self.sizes
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; `read_options` makes sense of what was given."""
    parser.add_argument(
        "collective", nargs="?", type=_collective, default="all_reduce", metavar="COLLECTIVE",
        help=f"{', '.join(COLLECTIVES)} (%(default)s)",
    )  # fmt: skip
    ours = parser.add_argument_group("options of Afflux")
    ours.add_argument(
        "--ranks", type=whole(1, _MOST_RANKS), metavar="N",
        help="start N ranks on this host, with torchrun",
    )  # fmt: skip
    ours.add_argument(
        "--density", type=_share, default=1.0, metavar="SHARE",
        help="share of the blocks of 256 bytes that are not zero, at random (%(default)s)",
    )  # fmt: skip
    ours.add_argument(
        "--reachable", action="store_true", help="use tensors of afflux.empty; also -R 1"
    )
    ours.add_argument(
        "--compare", type=_compared, default=(), metavar="gloo[,mpi]",
        help="backends to time in the same run, in turn with Afflux",
    )  # fmt: skip
    ours.add_argument(
        "--repeats", type=_positive, metavar="N",
        help=f"number of runs; the median counts (1, with --compare {_ALTERNATING_REPEATS})",
    )  # fmt: skip
    ours.add_argument(
        "--replay", choices=REPLAYS, default="",
        help="time calls as they come in a row: decode, the 96 small all-reduces of a token of "
        "inference; -n tokens of each size",
    )  # fmt: skip
    ours.add_argument("--no-out-of-place", action="store_true", help="leave out-of-place calls out")
    ours.add_argument("--seed", type=int, default=0, help="seed of the data (%(default)s)")
    ours.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw a plot; needs the extra afflux[plot]"
    )

    theirs = parser.add_argument_group("options of nccl-tests")
    theirs.add_argument(
        "-b", "--minbytes", type=_size, default=_DEFAULT_SIZE, help="least size (%(default)s)"
    )
    theirs.add_argument(
        "-e", "--maxbytes", type=_size, default=_DEFAULT_SIZE, help="greatest size (%(default)s)"
    )
    theirs.add_argument(
        "-i", "--stepbytes", type=_size, default="1M", help="added each time (%(default)s)"
    )
    theirs.add_argument("-f", "--stepfactor", type=int, default=1, help="multiply instead of -i")
    theirs.add_argument(
        "-n", "--iters", type=_positive, default=20, help="timed calls (%(default)s)"
    )
    theirs.add_argument(
        "-w", "--warmup_iters", type=_natural, default=1, help="untimed calls (%(default)s)"
    )
    theirs.add_argument(
        "-c", "--check", type=_natural, default=1, help="checked calls; 0: none (%(default)s)"
    )
    theirs.add_argument(
        "-N", "--run_cycles", type=_positive, default=1, help="do everything N times (%(default)s)"
    )
    theirs.add_argument("-o", "--op", choices=[*OPS, "prod", "all"], default="sum")
    theirs.add_argument(
        "-d", "--datatype", default="float", metavar="{" + ",".join([*TYPES, "all"]) + "}"
    )
    theirs.add_argument(
        "-a", "--average", type=int, choices=[0, 1, 2, 3], default=1,
        help="time of: 0 rank 0, 1 the mean, 2 the fastest, 3 the slowest rank (%(default)s)",
    )  # fmt: skip
    theirs.add_argument(
        "-R", "--local_register", type=int, choices=[0, 1, 2], default=0, help="1: as --reachable"
    )
    theirs.add_argument(
        "-J",
        "--output_file",
        "--json",
        type=Path,
        metavar="FILE",
        help="write JSON; -: to standard output, without the table",
    )
    theirs.add_argument(
        "-S", "--report_timestamps", action="store_true", help="show the time of day in each line"
    )
    theirs.add_argument(
        "-M", "--memory_report", type=int, choices=[0, 1], default=0, help="1: show peak memory"
    )
    theirs.add_argument(
        "-T",
        "--timeout",
        type=_seconds,
        default=300.0,
        help="timeout of a call in seconds (%(default)s)",
    )
    parser.set_defaults(run=run)
    # Newcomers try this; nothing else would tell them how sizes are given.
    parser.add_argument("--size", dest="_size", action=_OneSize, help=argparse.SUPPRESS)
    for short, long, harmless, why in _REFUSED:
        theirs.add_argument(
            short, long, action=_Refuse, harmless=harmless, why=why, help=argparse.SUPPRESS
        )


def run(arguments: argparse.Namespace) -> int:
    """Measure what was asked for; return the exit status."""
    # Only now, as it needs torch.
    from afflux.commands.bench import command

    return command.run(arguments.parser, arguments, arguments.words)


def read_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> BenchOptions:
    """Return what was given, or call `parser.error` with what is wrong with it."""
    least, most = arguments.minbytes, arguments.maxbytes
    if least > most and most < parse_size(_DEFAULT_SIZE) == least:
        parser.error(f"-e {most} is below the least size, {_DEFAULT_SIZE} unless -b sets it")
    try:
        sizes = sweep(least, most, arguments.stepbytes, arguments.stepfactor)
    except ValueError as error:
        parser.error(str(error))
    if arguments.op == "prod":
        parser.error("-o prod: the engine adds and compares; torch's call would go to Gloo")
    if arguments.datatype not in (*TYPES, "all"):
        parser.error(
            f"-d {arguments.datatype}: the engine reduces {', '.join(TYPES)}; other types go to "
            "Gloo"
        )
    collective = COLLECTIVES[arguments.collective]
    if arguments.replay and (arguments.collective != "all_reduce" or arguments.plot):
        parser.error("--replay: it has its own all-reduces, and no plot")
    if not collective.reduces:
        for name, given in (("-o", arguments.op != "sum"), ("--density", arguments.density < 1)):
            if given:
                parser.error(f"{name}: {collective.name} reduces nothing")
    if arguments.local_register == 2:
        parser.error("-R 2: there is one kind of reachable tensor: -R 1")
    dtypes = tuple(TYPES) if arguments.datatype == "all" else (arguments.datatype,)
    ops = OPS if arguments.op == "all" else (arguments.op,)
    if ops == ("avg",) and dtypes in (("int32",), ("int64",)):
        parser.error(f"-d {dtypes[0]} -o avg: averages of integers are not checked here")
    if not collective.reduces:
        ops = ("none",)
    if not collective.sized:
        sizes, least, most, dtypes = (0,), 0, 0, ("float",)
    repeats = arguments.repeats or (_ALTERNATING_REPEATS if arguments.compare else 1)
    return BenchOptions(
        collective=collective.name,
        sizes=sizes,
        least=least,
        most=most,
        dtypes=dtypes,
        ops=ops,
        iterations=arguments.iters,
        warmup=arguments.warmup_iters,
        checks=arguments.check,
        cycles=arguments.run_cycles,
        average=arguments.average,
        repeats=repeats,
        density=arguments.density,
        reachable=arguments.reachable or arguments.local_register == 1,
        compare=arguments.compare,
        timeout_s=arguments.timeout,
        timestamps=arguments.report_timestamps,
        memory=bool(arguments.memory_report),
        seed=arguments.seed,
        table=arguments.output_file != TO_OUTPUT,
        replay=arguments.replay,
        out_of_place=collective.sized and not arguments.no_out_of_place,
        step=f"{arguments.stepfactor}(factor)"
        if arguments.stepfactor > 1
        else f"{arguments.stepbytes}(bytes)",
    )


class _Refuse(argparse.Action):
    """An option of nccl-tests without a meaning here: refused, unless its value changes nothing."""

    def __init__(self, *arguments: Any, harmless: str, why: str, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._harmless = harmless
        self._why = why

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if values != self._harmless:
            parser.error(f"{option_string} {values} of nccl-tests does not apply: {self._why}")


class _OneSize(argparse.Action):
    """Says how one size is spelt here, as in nccl-tests."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        parser.error(
            f"{option_string} {values}: sizes are a range; for one: -b {values} -e {values}"
        )


def _collective(text: str) -> str:
    if text in COLLECTIVES:
        return text
    hint = f"is not one of {', '.join(COLLECTIVES)}"
    try:
        parse_size(text)
        hint = f"is a size, which -b and -e take: -b {text} -e {text}"
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} {hint}")


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return int(text)


def _natural(text: str) -> int:
    if int(text) < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {text}")
    return int(text)


def _seconds(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, not {text}")
    return float(text)


def _share(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"must be a share, above 0 and at most 1, not {text}")
    return float(text)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size such as 4096, 256K or 32M"
        ) from None


def _compared(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    for name in names:
        if name not in COMPARED:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(COMPARED)}")
    return tuple(dict.fromkeys(names))
