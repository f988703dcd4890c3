"""What engine and node are built from: streams, headers, memories, the tops of designs."""
