"""Records as Arrow arrays, and Arrow arrays as records; for whoever has pyarrow.

``record_columns`` makes columns of records that a kernel has scanned, ``message_rows`` makes records of
columns. Kernels do both (``storage.kernels.arrow``, ``storage.kernels.encode``): no Python runs per record.
Nothing else in ``storage`` imports this package.
"""
