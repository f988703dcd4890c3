"""The carriers of a call: shared memory, a worker of jobs, Gloo."""
