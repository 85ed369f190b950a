"""How things are printed: text for people, in a terminal or a pipe, and data for programs. `say` writes all
of it."""
