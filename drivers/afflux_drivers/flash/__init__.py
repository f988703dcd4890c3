"""Flash: brings a bitstream into a board, after looking at both, and finds the board again."""
