"""Arrays of other libraries: how they are read, and what is said of those that cannot be."""

import array
import ctypes
import sys
import types
from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import normal

Q, K, V = normal(1, (2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8))
OPEN = np.array([0, 2, 5], np.int32)
READ_ONLY = np.zeros(Q.shape, np.float32)
READ_ONLY.flags.writeable = False


class Strange:
    """An array whose DLPack methods do what they are told."""

    def __init__(self, device: Any = (1, 0), capsule: Any = None) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self.device() if callable(self.device) else self.device

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.capsule() if callable(self.capsule) else self.capsule


def raises(kind: type[BaseException]) -> Any:
    def fail() -> None:
        raise kind("of the object itself")

    return fail


@pytest.mark.parametrize(
    ("strange", "kind"),
    [
        (Strange(raises(KeyError)), KeyError),
        (Strange(capsule=raises(BufferError)), BufferError),
        (Strange(capsule=raises(MemoryError)), MemoryError),
        (Strange(capsule=None), TypeError),
        (Strange(capsule=3), TypeError),
        (Strange(device=None), TypeError),
        (Strange(device=()), IndexError),
        (Strange(device=("cpu", 0)), TypeError),
        (Strange(device=(2**80, 0)), OverflowError),
    ],
)
def test_objects_that_fail(strange: Strange, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        falchion.attention(strange, K, V)
    with pytest.raises(kind):
        falchion.attention(Q, K, V, bias=strange)


def test_dlpack_objects() -> None:
    """Any library with __dlpack__ is read. What we cannot make for it is asked for by name."""

    class Theirs:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __dlpack_device__(self) -> Any:
            return self.x.__dlpack_device__()

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.x.__dlpack__(**keywords)

    class Older(Theirs):
        def __dlpack__(self) -> Any:  # type: ignore[override]
            return self.x.__dlpack__()

    for kind in (Theirs, Older):
        q, k, v = kind(Q), kind(K), kind(V)
        out = np.zeros(Q.shape, np.float32)
        falchion.attention(q, k, v, out=kind(out))
        assert np.array_equal(out, falchion.attention(Q, K, V))
        with pytest.raises(TypeError, match="cannot make arrays of test_foreign_arrays: give out="):
            falchion.attention(q, k, v)
    stranger = type("Stranger", (Theirs,), {"__module__": "stranger"})  # whose `empty` does something else
    sys.modules["stranger"] = types.SimpleNamespace(empty=lambda *_: 1 / 0)  # type: ignore[assignment]
    try:
        with pytest.raises(TypeError, match="cannot make arrays of stranger: give out="):
            falchion.attention(stranger(Q), stranger(K), stranger(V))
    finally:
        del sys.modules["stranger"]
    jax = type("ArrayImpl", (Theirs,), {"__module__": "jaxlib._jax"})
    with pytest.raises(TypeError, match="falchion.jax has functions for them"):
        falchion.attention(jax(Q), jax(K), jax(V))
    with pytest.raises(TypeError, match="falchion.jax has functions for them"):
        falchion.attention(jax(Q), jax(K), jax(V), out=jax(np.zeros(Q.shape, np.float32)))
    with pytest.raises(TypeError, match="k is an array of numpy, but q is one of test_foreign_arrays"):
        falchion.attention(Theirs(Q), K, V)
    with pytest.raises(falchion.Invalid, match="out is read-only"):
        falchion.attention(Theirs(Q), Theirs(K), Theirs(V), out=Theirs(READ_ONLY))


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        (None, TypeError, "is no dictionary"),
        ({}, KeyError, "shape"),
        ({"shape": (1,)}, KeyError, "data"),
        ({"shape": 3, "data": (0, False), "typestr": "<f4"}, TypeError, "no len"),
        ({"shape": (1, 2, 3, 4), "data": None, "typestr": "<f4"}, TypeError, "None"),
        ({"shape": (1, 2, 3, 4), "data": (0, False), "typestr": 5}, TypeError, "bad argument type"),
        ({"shape": (1, "x", 3, 4), "data": (0, False), "typestr": "<f4"}, TypeError, "str"),
        ({"shape": (2**70, 2, 3, 4), "data": (0, False), "typestr": "<f4"}, OverflowError, "too big"),
        ({"shape": (1,) * 9, "data": (0, False), "typestr": "<f4"}, falchion.Invalid, "q has 9 axes: no argument has"),
        (
            {"shape": (1, 2, 3, 4), "data": (0, False), "typestr": "<f4", "strides": (1,)},
            falchion.Invalid,
            "q has 4 axes, but 1 strides",
        ),
        ({"shape": (1, 2, 3, 4), "data": (0, False), "typestr": "<f4", "strides": 7}, TypeError, "no len"),
    ],
)
def test_cuda_array_interface(fields: Any, kind: type[Exception], words: str) -> None:
    class Theirs:
        __cuda_array_interface__ = fields

    with pytest.raises(kind, match=words):
        falchion.attention(Theirs(), Theirs(), Theirs())


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"data": (64, True)}, falchion.Invalid, "out is read-only"),
        ({"strides": (960, 192, 48, 6)}, falchion.Invalid, "axis 3 has a stride of 6 bytes, which is no multiple"),
        ({"mask": object()}, falchion.Unsupported, "out has a mask"),
        ({"data": (64,)}, IndexError, "out of range"),
    ],
)
def test_what_the_cuda_array_interface_says(fields: Any, kind: type[Exception], words: str) -> None:
    class Theirs:
        def __init__(self, more: Any) -> None:
            self.__cuda_array_interface__ = {"shape": Q.shape, "data": (64, False), "typestr": "<f4"} | more

        # The interface is looked for in the type.
        __cuda_array_interface__: Any = None

    plain = Theirs({})
    with pytest.raises(kind, match=words):
        falchion.attention(plain, plain, plain, out=Theirs(fields))


class Interface:
    """An array with a __cuda_array_interface__, whose memory is the host's: for backend="ref"."""

    __cuda_array_interface__: Any = None

    def __init__(self, x: Any, **more: Any) -> None:
        self.x = x
        fields = {"shape": x.shape, "data": (x.ctypes.data, False), "typestr": "<f4"}
        self.__cuda_array_interface__ = fields | more


def test_streams_of_the_cuda_array_interface() -> None:
    """The run goes to the stream that the arrays are written on, unless the caller names one."""
    o = np.zeros_like(Q)

    def run(*streams: Any, **options: Any) -> None:
        q, k, v = (Interface(x, stream=s) for x, s in zip((Q, K, V), streams, strict=True))
        falchion.attention(q, k, v, out=Interface(o), backend="ref", **options)

    run(None, 7, 7)
    assert np.array_equal(o, falchion.attention(Q, K, V, backend="ref"))
    with pytest.raises(falchion.Invalid, match="v is written on the stream 0x8, but another array of the call on 0x7"):
        run(7, None, 8)
    run(7, None, 8, stream=8)
    with pytest.raises(falchion.Invalid, match="q: the stream in __cuda_array_interface__ must be None or a number"):
        run(0, 7, 7)


def test_the_gpu_of_the_cuda_array_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody knows on which GPU arrays lie the plan is not kept; of numba's it is known."""
    q, o = Interface(Q), Interface(np.zeros_like(Q))
    falchion.plan_cache_clear()
    falchion.attention(q, q, q, out=o, backend="ref")
    assert falchion.plan_cache_info()["size"] == 0
    current = types.SimpleNamespace(id=0)
    numba = types.ModuleType("numba")
    numba.cuda = types.SimpleNamespace(get_current_device=lambda: current)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numba", numba)
    theirs = type("DeviceNDArray", (Interface,), {"__module__": "numba.cuda", "__cuda_array_interface__": None})(Q)
    for current.id in (0, 1):
        with pytest.raises(falchion.Invalid, match=f"device = {current.id} with backend = ref"):
            falchion.attention(theirs, theirs, theirs, out=theirs, backend="ref")


@pytest.mark.parametrize(("module", "given", "told"), [("theirs", None, 1), ("theirs", 5, 5), ("cupy", None, -1)])
def test_whom_dlpack_waits_for(module: str, given: int | None, told: int) -> None:
    """The library makes the run's stream wait, unless the run goes to the library's own."""

    class Stop(Exception):
        """What ends the call: there is no GPU here."""

    def dlpack(self: Any, *, stream: int | None, max_version: tuple[int, int]) -> Any:
        raise Stop(stream)

    members = {"__module__": module, "__dlpack__": dlpack, "__dlpack_device__": lambda self: (2, 0)}
    x = type("Theirs", (), members)()
    with pytest.raises(Stop, match=f"^{told}$"):
        falchion.attention(x, x, x, stream=given)
    with pytest.raises(Stop, match=f"^{told}$"):
        falchion.Plan((1, 5, 4, 8), dtype="float32")(x, x, x, stream=given)


class DLTensor(ctypes.Structure):
    """DLManagedTensor of DLPack, whose last two fields are its context and its deleter."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def test_cupy_makes_arrays_where_q_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device of q, which need not be the current one. The array says that it lies on GPU 1, and nothing runs."""
    shape = (ctypes.c_int64 * 4)(1, 5, 4, 8)
    tensor = DLTensor(64, (2, 1), 4, (2, 32, 1, 0), shape)
    current = [0]
    made_on = []

    class Device:
        def __init__(self, number: int) -> None:
            self.number = number

        def __enter__(self) -> None:
            current.append(self.number)

        def __exit__(self, *error: object) -> None:
            current.pop()

    def empty(shape: Any, dtype: Any) -> Any:
        made_on.append(current[-1])
        raise MemoryError("no GPU here")

    def stream() -> Any:
        made_on.append(current[-1])
        return types.SimpleNamespace(ptr=7)

    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    members = {
        "__module__": "cupy",
        "dtype": "float32",
        "__dlpack__": lambda self, **options: new_capsule(ctypes.addressof(tensor), b"dltensor", None),
        "__dlpack_device__": lambda self: (2, 1),
    }
    cupy: Any = types.ModuleType("cupy")
    cupy.empty, cupy.cuda = empty, types.SimpleNamespace(Device=Device, get_current_stream=stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    x = type("ndarray", (), members)()
    with pytest.raises(MemoryError):
        falchion.attention(x, x, x)
    assert made_on == [1, 1] and current == [0]


def test_buffers() -> None:
    """memoryview and array.array are arrays of the host, but nobody makes new ones of them."""
    flat = array.array("f", Q.ravel())
    view = memoryview(flat).cast("B").cast("f", Q.shape)
    out = memoryview(bytearray(Q.nbytes)).cast("f", Q.shape)
    falchion.attention(view, view, view, out=out)
    assert np.array_equal(np.asarray(out), falchion.attention(Q, Q, Q))
    with pytest.raises(TypeError, match="cannot make arrays of builtins"):
        falchion.attention(view, view, view)
    with pytest.raises(falchion.Invalid, match="q has 1 axes"):
        falchion.attention(flat, flat, flat)
    with pytest.raises(falchion.Invalid, match="no multiple of its elements"):
        odd = np.zeros(4 * 40, np.uint8)[:150].view(
            np.dtype({"names": ["a"], "formats": ["<f4"], "offsets": [0], "itemsize": 6})
        )
        falchion.attention(odd["a"].reshape(1, 5, 5, 1), K, V)


def test_unaligned() -> None:
    """Contract.Alignment: a pointer that is not aligned to its element is refused."""
    bytes_ = np.zeros(Q.nbytes + 1, np.uint8)
    odd = bytes_[1:].view(np.float32).reshape(Q.shape)
    with pytest.raises(falchion.Invalid, match="align"):
        falchion.attention(odd, K, V)
    starts = np.zeros(13, np.uint8)[1:].view(np.int32)
    starts[:] = OPEN
    with pytest.raises(falchion.Invalid, match="cu_seqlens_q lies at .* no multiple of 4"):
        falchion.varlen(Q[0], K[0], V[0], starts)
