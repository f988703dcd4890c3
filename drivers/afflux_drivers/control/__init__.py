"""The control channel's end at worker 0: jobs, tickets, trees of aggregators."""
