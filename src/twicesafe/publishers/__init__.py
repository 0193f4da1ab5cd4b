"""What takes messages to their receivers: each module brings one kind, and needs the extra of the same name."""
