"""The effects of a step: changes of state, outputs, timers and commits, and how two sets of them differ."""
