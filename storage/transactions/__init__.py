"""Transactions: half messages, their end by commit or rollback, and the checks of those that nobody ends."""
