"""Spark's daemon of Python workers, with the kernels loaded before it forks the first one.

A worker then starts in milliseconds instead of importing numba anew.
"""

from __future__ import annotations

import runpy

import pipeline.read  # noqa: F401  loads pyarrow and the kernels

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
