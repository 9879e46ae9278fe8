"""What the operating system gives: open files and maps, directories to follow, its errors."""
