"""A run in the foreground: its lines, how its workers stand below them, and the user's own terminal."""
