"""What is set for a group, by variables, options and torch; and the addresses that this names."""
