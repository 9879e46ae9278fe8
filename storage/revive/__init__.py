"""What a broker had handed out when it stopped, and nobody acknowledged: handed out again in time."""
