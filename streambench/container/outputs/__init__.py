"""Everything that leaves a container: messages, changelogs, dead letters."""
