"""The dashboard: a web page on the user's own machine. It reads through the same handles as the commands."""
