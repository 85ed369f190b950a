"""Before the first start: code, packages, the interpreter, and the environment that a container lacks."""
