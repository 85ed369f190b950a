"""How things are printed: text for a person on a terminal or in a pipe, and data for a program."""
