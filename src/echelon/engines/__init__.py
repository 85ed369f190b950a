"""Where runs happen: the protocol in `base.py`, and one engine for each place."""
