"""The client for asyncio; `make client` writes ``penstock._sync`` from it."""
