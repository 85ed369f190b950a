"""What happens before the first start: code, packages, the interpreter, what a container lacks."""
