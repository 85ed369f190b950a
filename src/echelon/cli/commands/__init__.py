"""One module for each command, or for a few that look at the same. Each is imported only when it is used."""
