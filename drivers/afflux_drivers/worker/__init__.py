"""A rank's end of a job: operations, timers and transport, to one aggregator or several."""
