"""Everything that enters a container: messages, their partitions, and where reading starts."""
