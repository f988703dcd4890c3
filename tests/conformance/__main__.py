"""`python -m tests.conformance`: scripts that people run, on Gloo and on Afflux, compared.

Prints a row for each script and ends with status 1 if there is one in which Gloo is better. The
ranks' output, and all results, are in build/conformance.
"""

import argparse
import json
import sys
import time

from afflux.adapters import native
from tests.conformance.catalogue import available, scripts
from tests.conformance.rank_set import preload
from tests.conformance.run import rows
from tests.conformance.table import HEAD, Row
from tests.support.checkout import BUILD

FOLDER = BUILD / "conformance"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="themes, or parts of names")
    parser.add_argument("--backend", nargs="+", default=["gloo", "afflux"])
    parser.add_argument("--ranks", type=int, default=2, help="an even number (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="without those that take seconds")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--logs", action="store_true", help="print what ranks wrote at failures")
    options = parser.parse_args(arguments)
    if options.ranks < 2 or options.ranks % 2:
        parser.error(f"--ranks {options.ranks}: the scripts want an even number, 2 at least")
    wanted = [
        each
        for each in scripts()
        if not options.only or any(part == each.theme or part in each.name for part in options.only)
    ]
    if not wanted:
        parser.error(f"no script is called {' or '.join(options.only)}")
    if options.list:
        for each in wanted:
            print(f"{each.theme:<15}{each.name:<37}{each.about}")
        return 0
    left_out = [each.name for each in wanted if not available(each)]
    wanted = [each for each in wanted if available(each) and not (options.quick and each.slow)]
    preload()
    # Half a minute, once, that would be the first script's otherwise.
    native.main()
    begun = time.monotonic()
    print(HEAD)
    done: list[Row] = []
    folder = FOLDER / time.strftime("%H%M%S")
    for row in rows(wanted, options.backend, options.ranks, folder):
        print(row.line(), flush=True)
        if row.failed and options.logs:
            print("\n".join(each.log for each in row.plays.values() if each.log))
        done.append(row)
    return _report(done, left_out, options.ranks, time.monotonic() - begun)


def _report(done: list[Row], left_out: list[str], ranks: int, seconds: float) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = FOLDER / f"scripts-{ranks}-ranks.json"
    records = [each.record() for each in done]
    results.write_text(json.dumps({"ranks": ranks, "rows": records}, indent=1), encoding="utf-8")
    failed = [each for each in done if each.failed]
    for row in failed:
        print(f"\n{row.verdict}: {row.script.theme}.{row.script.name}: {row.script.about}")
        print("\n".join(f"    {line[:400]}" for line in row.why.splitlines()))
    if left_out:
        print(f"\nleft out, as their packages are not installed: {', '.join(left_out)}")
    surprises = sum(each.verdict == "GLOO FAILS" for each in failed)
    print(
        f"\n{len(done)} scripts, {ranks} ranks, {seconds:.0f} s: Gloo is better in "
        f"{len(failed) - surprises}, and fails in {surprises} that it should pass; all results are "
        f"in {results.relative_to(BUILD.parent)}"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
