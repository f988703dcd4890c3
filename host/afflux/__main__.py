"""`python -m afflux` is the command `afflux`, as in `torchrun -m afflux bench`."""

import sys

from afflux.commands.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
