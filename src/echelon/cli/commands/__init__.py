"""One module for a command, or for a few that look at the same."""
