"""What a broker had handed out and nobody acknowledged when it stopped: delivered again when its time is over."""
