"""Between torch and a group: one adapter for each way in which torch takes a backend."""
