"""The API server: which cluster, as which user, and every request that is sent to it."""
