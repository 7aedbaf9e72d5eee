"""The command `daydream`: flags, tables and progress bars around the rooms below. Heavy imports wait for a command."""
