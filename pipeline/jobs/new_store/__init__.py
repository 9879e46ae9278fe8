"""What the jobs share that write stores: ``compact``, ``merge``, ``split``, ``replay``."""
