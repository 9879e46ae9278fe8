"""Operations of the clients: their requests and the readings of their answers, by noun; no I/O."""
