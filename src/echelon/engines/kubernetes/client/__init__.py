"""Every request to the API server: objects, watches, logs, commands, ports.

`border` is where objects are checked that others may have written, and read into the types of `shapes.py`."""
