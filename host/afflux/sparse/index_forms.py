"""How ranks tell one another which rows they have: what each form costs, and which is least.

Two forms agree on the union of the ranks' rows:

* **lists**: every rank gets every rank's row numbers (COO's index, 4 bytes for each row);
* **counts**: a field of a few bits for each row of the whole tensor, 1 where the rank has the row;
  the sum of all ranks' fields is not zero where any has it. The fields are as wide as the number of
  ranks needs, so that none overflows into the next: a bitmap that an aggregator can add.

Zero blocks of the counts are skipped like those of any tensor.
"""

from dataclasses import dataclass

from afflux_drivers.rows import fields_per_word

__all__ = ["Form", "expected_union", "least"]

_ID_BYTES = 4


def expected_union(rows: int, present: list[int]) -> float:
    """Return how many rows any rank has, if each has its number at random places."""
    absent = 1.0
    for each in present:
        absent *= 1.0 - each / rows
    return rows * (1.0 - absent)


@dataclass(frozen=True)
class Form:
    """How the union is agreed on.

    Attributes:
        name: "lists", "counts", or "dense": not at all, as all rows are summed.
        bytes: What a rank sends or receives, whichever is more, values included.
    """

    name: str
    bytes: int


def least(rows: int, present: list[int], row_bytes: int) -> Form:
    """Return the form that is least. The same at all ranks, as their arguments are.

    Args:
        rows: Of the whole tensor.
        present: How many each rank has.
        row_bytes: Bytes of a row's values.
    """
    values = round(expected_union(rows, present) * row_bytes)
    words = -(-rows // fields_per_word(len(present)))
    # Numbers of more than 31 bits take two words.
    id_bytes = _ID_BYTES if rows - 1 >> 31 == 0 else 2 * _ID_BYTES
    forms = (
        Form("lists", sum(present) * id_bytes + values),
        Form("counts", words * 4 + values),
        Form("dense", rows * row_bytes),
    )
    return min(forms, key=lambda form: form.bytes)
