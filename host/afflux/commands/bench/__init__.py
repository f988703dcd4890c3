"""`afflux bench`: times all-reduces beside other backends, and checks every element."""
