"""Every byte layout of the store, as pure functions between bytes and values."""
