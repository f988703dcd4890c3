"""Open boards: the appliance around the node, board by board, and the way to a bitstream.

`python -m afflux_hdl.boards BOARD` makes one; see `docs/boards.md`.
"""
