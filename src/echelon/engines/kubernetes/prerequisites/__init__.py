"""What must be there before a run is submitted: objects that the job names, quotas, rights, controllers."""
