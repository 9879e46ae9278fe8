"""The jobs that write new stores: ``compact``, ``merge``, ``split``, ``replay``."""
