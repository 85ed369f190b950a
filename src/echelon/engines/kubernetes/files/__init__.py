"""Files between this machine, pods and volumes, and code that is too large for ConfigMaps."""
