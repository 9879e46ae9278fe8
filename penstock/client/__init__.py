"""Both forms of the client, each class written once; its two forms stand below it."""
