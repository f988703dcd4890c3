"""Aligned tables for the terminal."""

__all__ = ["aligned"]


def aligned(heading: str, header: list[str], rows: list[list[str]]) -> str:
    """Lay out a heading, titles and cells, right-aligned except for the first column."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [heading, ""]
    for row in cells:
        first, *rest = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    lines.insert(3, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)
