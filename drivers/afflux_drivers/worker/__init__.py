"""A rank's end of a job: operations, timers and sockets."""
