"""What the operating system gives: open files and their maps, directories that are followed, and what its errors mean."""
