"""`afflux bench`: collectives timed beside other backends, and printed as nccl-tests does."""
