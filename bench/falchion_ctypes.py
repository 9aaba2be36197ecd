"""libfalchion.so through its C ABI: just enough of include/falchion/falchion.h for the benchmarks.

    fal = Falchion("build/cpu/libfalchion.so")
    call = fal.plan(q, k, v, o, causal=True, threads=2)   # tensors (b, h, s, d); nothing is copied
    call()
"""
import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

F32, F16, BF16 = 0, 1, 2
CPU = 2
UNBOUNDED, BOTTOM_RIGHT = -1, 1


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("reserved", c_int32), ("shape", c_int64 * 4), ("stride", c_int64 * 4)]


class Band(Structure):
    _fields_ = [("left", c_int64), ("right", c_int64), ("align", c_int32), ("reserved", c_int32)]


class Attention(Structure):
    _fields_ = ([("size", c_size_t), ("dtype", c_int32), ("reserved", c_int32)]
                + [(n, c_int64) for n in ("b", "s_q", "s_k", "h_q", "h_k", "d_qk", "d_v")]
                + [("band", Band), ("scale", c_float), ("softcap", c_float), ("dropout", c_float), ("reserved2", c_uint32),
                   ("dropout_seed", c_uint64), ("dropout_offset", c_uint64)]
                + [(n, c_uint8) for n in ("packed", "used_q", "used_k", "alibi", "bias", "mask", "lse", "row_max", "probabilities")]
                + [("reserved3", c_uint8 * 7)])


class Operands(Structure):
    _fields_ = ([("size", c_size_t)]
                + [(n, Tensor) for n in ("q", "k", "v", "o", "lse", "row_max", "probabilities", "bias", "mask")]
                + [(n, c_void_p) for n in ("alibi", "cu_seqlens_q", "cu_seqlens_k", "used_q", "used_k")])


class Target(Structure):
    _fields_ = [("size", c_size_t), ("backend", c_int32), ("threads", c_int32), ("sm", c_int32), ("reserved", c_int32),
                ("cpu_level", c_char_p), ("executor", c_void_p)]


def view(x):
    """A torch tensor (b, h, s, d) as the engine's (b, s, h, d) view of the same memory."""
    dtype = {"torch.float32": F32, "torch.float16": F16, "torch.bfloat16": BF16}[str(x.dtype)]
    (b, h, s, d), (sb, sh, ss, sd) = x.shape, x.stride()
    return Tensor(x.data_ptr(), dtype, 0, (c_int64 * 4)(b, s, h, d), (c_int64 * 4)(sb, ss, sh, sd))


class Falchion:
    def __init__(self, path):
        lib = self.lib = ctypes.CDLL(path)
        lib.fal_attention_init.restype = Attention
        lib.fal_plan_make.argtypes = [POINTER(Attention), c_int32, POINTER(Target), POINTER(c_void_p)]
        lib.fal_plan_workspace.argtypes, lib.fal_plan_workspace.restype = [c_void_p], c_size_t
        lib.fal_plan_run.argtypes = [c_void_p, POINTER(Operands), c_void_p, c_size_t, c_void_p]
        for name in ("fal_plan_describe", "fal_why", "fal_version", "fal_build_info"):
            getattr(lib, name).restype = c_char_p
        lib.fal_plan_describe.argtypes = [c_void_p]

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.fal_why().decode())

    def version(self):
        return self.lib.fal_version().decode()

    def build_info(self):
        return self.lib.fal_build_info().decode()

    def plan(self, q, k, v, o, causal=False, threads=0, level=None):
        """A function without arguments that runs attention once; its attribute `describe` says how."""
        import torch
        problem = self.lib.fal_attention_init()
        operands = Operands(size=ctypes.sizeof(Operands), q=view(q), k=view(k), v=view(v), o=view(o))
        problem.dtype = operands.q.dtype
        problem.b, problem.h_q, problem.s_q, problem.d_qk = q.shape
        problem.h_k, problem.s_k, problem.d_v = k.shape[1], k.shape[2], v.shape[3]
        if causal:
            problem.band = Band(UNBOUNDED, 0, BOTTOM_RIGHT, 0)
        target = Target(size=ctypes.sizeof(Target), backend=CPU, threads=threads, cpu_level=level.encode() if level else None)
        plan = c_void_p()
        self.check(self.lib.fal_plan_make(byref(problem), 0, byref(target), byref(plan)))
        size = self.lib.fal_plan_workspace(plan)
        memory = torch.empty(size + 64, dtype=torch.uint8)
        workspace = (memory.data_ptr() + 63) // 64 * 64
        run, pointer = self.lib.fal_plan_run, byref(operands)

        def call():
            if run(plan, pointer, workspace, size, None) != 0:
                raise RuntimeError(self.lib.fal_why().decode())
        call.describe = self.lib.fal_plan_describe(plan).decode()
        call.keep = (operands, memory, q, k, v, o)
        return call
