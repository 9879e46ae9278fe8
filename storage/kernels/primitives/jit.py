"""How loops are compiled: ahead of the first call, cached beside the source, GIL released.

``@kernel(signature)`` compiles at import, from the cache when it is fresh. ``@inner`` marks a
function that kernels call: compiled code gets it compiled in, Python gets the plain function, so
that ``some_kernel.py_func`` runs wholly as plain Python and serves as the kernel's twin in tests.

Kernels are compiled without numba's reference counts: each array handed to an inner function would
cost two atomic counts, more than most of these functions do. For the same reason inner functions are
always inlined. An array is kept alive by the kernel's caller; what a kernel needs of its own comes from
``storage.kernels.primitives.scratch``.

A kernel that comes from the cache takes some 3 ms: what numba would also load for compiling is left out
(``_KernelCache``, ``_KernelCacheImpl``).

The cache is keyed by one fingerprint over all the sources a kernel can be made of, not by the
kernel's own file: constants and inner functions are compiled into their callers. A kernel outside
this package is keyed by its own file as well. The cache lies in
``__pycache__`` (or ``NUMBA_CACHE_DIR``); where that cannot be written, kernels are compiled by
every process that needs them.

No kernel may touch a byte outside the arrays it is given, whatever the bytes say: compiled code
has no bounds checks. Lengths are bounded before they are used, in 64-bit arithmetic.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

import llvmlite.binding
import numpy as np
from numba import config, njit, types
from numba.core import caching
from numba.core.cpu import CPUTargetOptions
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]  # compiled, without types
from numba.extending import register_jitable

P = ParamSpec("P")
R = TypeVar("R")

KERNELS_DIRECTORY = Path(__file__).parents[1]
SOURCE_DIRECTORIES = (KERNELS_DIRECTORY, KERNELS_DIRECTORY.parent / "format")

# What a kernel works through in less time than a hand-over of the interpreter lock takes: up to here
# those of single messages keep the lock.
FEW_BYTES: Final = 128 << 10

# Conversions as kernels use them: numba needs the sized types, mypy sees plain integers.
i64 = cast("Callable[[Any], int]", np.int64)
u8 = cast("Callable[[Any], int]", np.uint8)
uintp = cast("Callable[[Any], int]", np.uintp)

int32 = types.int32
int64 = types.int64
uint8 = types.uint8
boolean = types.boolean
BYTES = types.Array(types.uint8, 1, "C", readonly=True)  # read-only and writable arrays both pass
WRITABLE_BYTES = types.Array(types.uint8, 1, "C")
INT32S = types.Array(types.int32, 1, "C", readonly=True)
INT64S = types.Array(types.int64, 1, "C", readonly=True)
WRITABLE_INT64S = types.Array(types.int64, 1, "C")
ROWS = types.Array(types.int64, 2, "C", readonly=True)
WRITABLE_ROWS = types.Array(types.int64, 2, "C")
results: Any = types.UniTuple
INLINED: Any = {"forceinline": True}  # how a function is compiled into its callers
APART: Any = {"forceinline": False}
# Without reference counts: an option private to numba. A numba that has it no more compiles the same
# kernels, right and slower; a test says so.
UNCOUNTED: Final = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}


class Kernel(Protocol[P, R]):
    """A compiled function; ``py_func`` is its plain twin."""

    py_func: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Mark ``function`` as callable from kernels; called from Python it stays plain Python."""
    compiled_in: Callable[P, R] = register_jitable(**INLINED)(function)
    return compiled_in


def apart(function: Callable[P, R]) -> Callable[P, R]:
    """Mark ``function`` as callable from kernels that seldom need it: compiled once, and called."""
    compiled_apart: Callable[P, R] = register_jitable(**APART)(function)
    return compiled_apart


def kernel(signature: Any, *, nogil: bool = True) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Compile the decorated function for exactly ``signature``, or load it from the cache.

    Without ``nogil`` it keeps the interpreter lock: for what takes no longer than a hand-over.
    """

    def compile_kernel(function: Callable[P, R]) -> Kernel[P, R]:
        dispatcher: Any = cast("Any", njit)(nogil=nogil, **UNCOUNTED)(function)
        dispatcher._cache = cast("Any", _KernelCache)(function)
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        return cast("Kernel[P, R]", dispatcher)

    return compile_kernel


@cache
def source_fingerprint() -> str:
    """Hash over every source file that can be compiled into a kernel."""
    digest = hashlib.sha256()
    for directory in SOURCE_DIRECTORIES:
        for path in sorted(directory.rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def cache_directory() -> Path:
    """Where compiled kernels are kept; the directory is made if it can be."""
    directory = Path(getattr(config, "CACHE_DIR", "") or KERNELS_DIRECTORY) / "__pycache__"
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


@cache
def cache_is_writable() -> bool:
    """Whether this process may add kernels to the cache."""
    try:
        tempfile.TemporaryFile(dir=cache_directory()).close()
    except OSError:
        return False
    return os.access(cache_directory(), os.W_OK)


class _Locator(caching._CacheLocator):
    """Tells numba where a kernel's cache files are and how fresh they have to be."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def get_cache_path(self) -> str:
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        if self._source.is_relative_to(KERNELS_DIRECTORY):
            return source_fingerprint()
        return source_fingerprint() + hashlib.sha256(self._source.read_bytes()).hexdigest()

    def get_disambiguator(self) -> str:
        return "kernel"

    @classmethod
    def from_function(cls, py_func: object, py_file: str) -> _Locator:  # noqa: ARG003  numba's shape
        return cls(Path(py_file))


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes: Any = [_Locator]  # noqa: RUF012  numba declares it on the instance

    def reduce(self, result: Any) -> Any:
        """Return what is kept of a kernel: its machine code, without what numba needs to compile it into others.

        No kernel calls a kernel. Two empty functions say that the code has a kernel and its wrapper, and of
        the environments of inner functions those are kept that hold a constant.
        """
        (name, kind, content), description, *rest, environments = cast("Any", super()).reduce(
            result
        )
        if kind != "object":
            return (name, kind, content), description, *rest, environments
        machine_code, _ = content
        names = (description.llvm_func_name, description.llvm_cpython_wrapper_name)
        empty = "".join(f'define void @"{each}"() {{ ret void }}\n' for each in names)
        declared = llvmlite.binding.parse_assembly(empty).as_bitcode()
        kept = tuple(each for each in environments if each.consts)
        return (name, kind, (machine_code, declared)), description, *rest, kept


@cache
def _name_helpers() -> None:
    """Tell LLVM where numba's runtime has the functions that take arrays from Python, as numba does before it compiles."""
    for name, address in _nrt_python.c_helpers.items():
        llvmlite.binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _KernelCache(caching.FunctionCache):
    _impl_class = _KernelCacheImpl

    def load_overload(self, signature: object, target_context: object) -> object:
        """Return a kernel from the cache, None if it is not there.

        Numba fills its tables of all that can be compiled before it looks, in a quarter of a second; a
        compilation fills them, too.
        """
        _name_helpers()
        return cast("Any", self)._load_overload(signature, target_context)

    def save_overload(self, signature: object, data: object) -> None:
        if cache_is_writable():
            cast("Any", super()).save_overload(signature, data)
