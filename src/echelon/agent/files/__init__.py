"""Files out of and into a pod: framed, checksummed, resumable."""
