"""Sizes as nccl-tests takes them: 4096, 256K, 32M, 1G, in powers of 1024, and the steps between."""

__all__ = ["parse_size", "sweep"]

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Return the bytes that a text such as 32M means. Raises `ValueError` if it is not a size."""
    number, unit = (
        (text[:-1], _UNITS[text[-1].upper()]) if text[-1:].upper() in _UNITS else (text, 1)
    )
    size = float(number) * unit
    if not 0 < size < float("inf"):
        raise ValueError(f"a size must be more than 0, not {text}")
    return int(size)


def sweep(least: int, most: int, step_bytes: int, factor: int) -> tuple[int, ...]:
    """Return sizes from `least` to `most`: multiplied by `factor` if that is above 1, or added to.

    Raises:
        ValueError: There are no sizes, or more than 1000.
    """
    if least > most:
        raise ValueError(f"-b {least} is above -e {most}")
    sizes = []
    size = least
    while size <= most:
        sizes.append(size)
        if len(sizes) > 1000:
            raise ValueError("more than 1000 sizes: set a step with -i or -f")
        size = size * factor if factor > 1 else size + step_bytes
    return tuple(sizes)
