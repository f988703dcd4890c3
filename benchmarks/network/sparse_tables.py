"""Tables of the workloads' figures: those of `make bench-sparse`.

`python -m benchmarks.network.sparse_tables build/bench/sparse.json docs/benchmarks.md` renews the
text between `<!-- sparse figures: NAME -->` and `<!-- end figures -->` there, or in another page.
"""

import sys

from benchmarks.network.workloads import WORKLOADS
from benchmarks.report import document

__all__ = ["MARK", "TABLES", "main"]

MARK = "sparse figures"

TABLES: document.Tables = {
    name: table for workload in WORKLOADS.values() for name, table in workload.tables.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the second argument names."""
    return document.renew(MARK, TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
