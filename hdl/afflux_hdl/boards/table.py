"""All boards by name."""

from afflux_hdl.boards.board import Board
from afflux_hdl.boards.colorlight import COLORLIGHT_5A75B
from afflux_hdl.boards.ecpix5 import ECPIX5_45F, ECPIX5_85F
from afflux_hdl.boards.versa import VERSA_ECP5

__all__ = ["BOARDS", "board_of"]

BOARDS = {board.name: board for board in (COLORLIGHT_5A75B, ECPIX5_45F, ECPIX5_85F, VERSA_ECP5)}
"""The boards that a bitstream can be made for."""


def board_of(name: str) -> Board:
    """Return the board called `name`.

    Raises:
        ValueError: If there is none; the message lists all.
    """
    try:
        return BOARDS[name]
    except KeyError:
        raise ValueError(f"no board is called {name!r}; there are {', '.join(BOARDS)}") from None
