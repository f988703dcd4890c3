"""The command `afflux` and its subcommands."""
