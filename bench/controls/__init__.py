"""What the figures are held against: programs that are bound by the same thing and do nothing else."""
