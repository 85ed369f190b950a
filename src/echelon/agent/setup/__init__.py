"""Before the first start: code unpacked, packages installed, and what a container lacks."""
