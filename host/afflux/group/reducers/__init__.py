"""What carries a call out: shared memory, a worker of jobs, Gloo."""
