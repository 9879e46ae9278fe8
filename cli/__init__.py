"""The command line: `penstock`, and the demo."""
