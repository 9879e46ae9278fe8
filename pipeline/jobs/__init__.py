"""Jobs over whole stores: one folder a job."""
