"""What the doctor looks at, a module for each kind of file."""
