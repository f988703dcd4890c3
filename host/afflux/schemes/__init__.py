"""The frame of sums of less than everything: what a rank leaves out, it adds to later sums."""
