"""What a user may say of the pods of a run's workers."""
