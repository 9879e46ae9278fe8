"""Commands about messages that are delivered later."""
