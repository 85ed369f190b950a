"""A scripted fake of an engine, for tests and documents: no process, no file."""
