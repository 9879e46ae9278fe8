"""``penstock job``: one module a job."""
