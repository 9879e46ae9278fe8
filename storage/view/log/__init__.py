"""The commit log as it is read: its files, walks through them, where it ends."""
