"""`afflux bench`: all-reduce timed beside other backends, and printed as nccl-tests does."""
