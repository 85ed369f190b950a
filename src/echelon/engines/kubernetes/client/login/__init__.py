"""Which cluster, and as which user: kubeconfigs, credentials and certificates."""
