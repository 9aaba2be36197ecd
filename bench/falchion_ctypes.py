"""libfalchion.so through its C ABI: just enough of include/falchion/falchion.h for the benchmarks.

    fal = Falchion("build/cpu/libfalchion.so")
    call = fal.plan(q, k, v, o, causal=True, threads=2)   # tensors (b, h, s, d); nothing is copied
    call()

Tensors of a CUDA device run on the current stream of torch, with a workspace there. Packed sequences are (total, h, d)
with cu_seqlens on the device.
"""
import ctypes
import os
import pathlib
import re
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

F32, F16, BF16, E4M3, I8, I32 = 1, 2, 3, 5, 7, 8
DTYPES = {"torch.float32": F32, "torch.float16": F16, "torch.bfloat16": BF16, "torch.float8_e4m3fn": E4M3, "torch.int8": I8,
          "torch.int32": I32}
BEST, REF, CPU, SM80, SM90 = 0, 1, 2, 3, 4
BACKENDS = {"best": BEST, "ref": REF, "cpu": CPU, "sm80": SM80, "sm90": SM90}
UNBOUNDED, BOTTOM_RIGHT = -1, 1


def structs():
    """The structs of the C API by name, read from its headers: those of the tree, or the copy that ./dev device-build makes."""
    here = pathlib.Path(__file__).resolve().parent
    folder = next(f for f in (here / "include" / "falchion", here.parent / "include" / "falchion") if f.is_dir())
    known = {"size_t": c_size_t, "float": c_float, "int32_t": c_int32, "int64_t": c_int64, "uint8_t": c_uint8,
             "uint16_t": c_uint16, "uint32_t": c_uint32, "uint64_t": c_uint64}
    for header in ("tensor", "attention", "linear_attention", "gemm", "norm", "quantise", "target"):
        text = re.sub(r"/\*.*?\*/", "", (folder / f"{header}.h").read_text(), flags=re.S)
        for name, body in re.findall(r"^typedef struct (\w+) {(.*?)^}", text, re.M | re.S):
            if "(" in body:  # fal_executor, which holds a function
                continue
            fields = []
            for declaration in filter(None, map(str.strip, body.split(";"))):
                kind, members = re.fullmatch(r"(?:const )?(\w+)(.*)", declaration, re.S).groups()
                pointer = c_char_p if kind == "char" else c_void_p
                for star, member, count in re.findall(r"(\*?)\s*(\w+)(?:\[(\d+)\])?", members):
                    plain = pointer if star else known[kind]
                    fields.append((member, plain * int(count) if count else plain))
            known[name] = type(name, (Structure,), {"_fields_": fields})
    return known


S = structs()
Tensor, Band, Attention, Operands, Target = (S[f"fal_{name}"] for name in ("tensor", "band", "attention", "operands", "target"))
LinearAttention, LinearOperands = S["fal_linear_attention"], S["fal_linear_operands"]
Quantise = S["fal_quantise"]
Gemm, GemmOperands, Norm, NormOperands = (S[f"fal_{name}"] for name in ("gemm", "gemm_operands", "norm", "norm_operands"))
ACTIVATIONS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu", "swiglu")


def view(x):
    """Returns a torch tensor (b, h, s, d), or (total, h, d) when packed, as the engine's (b, s, h, d) view of the same
    memory."""
    dtype = DTYPES[str(x.dtype)]
    if x.dim() == 3:
        x = x.transpose(0, 1).unsqueeze(0)
    (b, h, s, d), (sb, sh, ss, sd) = x.shape, x.stride()
    return Tensor(x.data_ptr(), dtype, 0, (c_int64 * 4)(b, s, h, d), (c_int64 * 4)(sb, ss, sh, sd))


def rows_view(x):
    """Returns a torch tensor (b, h, s) in f32, such as an lse, as the engine's (b, h, s, 1) view of the same memory."""
    (b, h, s), (sb, sh, ss) = x.shape, x.stride()
    return Tensor(x.data_ptr(), F32, 0, (c_int64 * 4)(b, h, s, 1), (c_int64 * 4)(sb, sh, ss, 1))


def matrix_view(x):
    """Returns a torch matrix (rows, columns), or a vector, as the engine's (1, rows, 1, columns) view of the same memory."""
    dtype = DTYPES[str(x.dtype)]
    if x.dim() == 1:
        x = x.unsqueeze(0)
    (rows, columns), (of_row, of_column) = x.shape, x.stride()
    return Tensor(x.data_ptr(), dtype, 0, (c_int64 * 4)(1, rows, 1, columns), (c_int64 * 4)(0, of_row, 0, of_column))


class Falchion:
    def __init__(self, path):
        lib = self.lib = ctypes.CDLL(os.path.abspath(path))
        lib.fal_attention_init.restype = Attention
        lib.fal_plan_make.argtypes = [POINTER(Attention), c_int32, POINTER(Target), POINTER(c_void_p)]
        lib.fal_plan_workspace.argtypes, lib.fal_plan_workspace.restype = [c_void_p], c_size_t
        lib.fal_plan_run.argtypes = [c_void_p, POINTER(Operands), c_void_p, c_size_t, c_void_p]
        for name in ("fal_plan_describe", "fal_why", "fal_version", "fal_build_info"):
            getattr(lib, name).restype = c_char_p
        lib.fal_plan_describe.argtypes = [c_void_p]
        lib.fal_linear_attention_init.restype = LinearAttention
        lib.fal_linear_plan_make.argtypes = [POINTER(LinearAttention), c_int32, POINTER(Target), POINTER(c_void_p)]
        lib.fal_linear_plan_run.argtypes = [c_void_p, POINTER(LinearOperands), c_void_p, c_size_t, c_void_p]
        if hasattr(lib, "fal_gemm_init"):
            lib.fal_gemm_init.restype = Gemm
            lib.fal_gemm_plan_make.argtypes = [POINTER(Gemm), POINTER(Target), POINTER(c_void_p)]
            lib.fal_gemm_plan_run.argtypes = [c_void_p, POINTER(GemmOperands), c_void_p, c_size_t, c_void_p]
        if hasattr(lib, "fal_quantise_init"):
            lib.fal_quantise_init.restype = Quantise
        if hasattr(lib, "fal_norm_init"):
            lib.fal_norm_init.restype = Norm
            for make in (lib.fal_norm_plan_make, lib.fal_norm_backward_plan_make):
                make.argtypes = [POINTER(Norm), POINTER(Target), POINTER(c_void_p)]
            lib.fal_norm_plan_run.argtypes = [c_void_p, POINTER(NormOperands), c_void_p, c_size_t, c_void_p]

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.fal_why().decode())

    def version(self):
        return self.lib.fal_version().decode()

    def build_info(self):
        return self.lib.fal_build_info().decode()

    def problem(self, q, k, v, causal, packed):
        """packed is None, or (number of sequences, longest of q, longest of k)."""
        problem = self.lib.fal_attention_init()
        problem.dtype = view(q).dtype
        problem.h_q, problem.h_k, problem.d_qk, problem.d_v = q.shape[1], k.shape[1], q.shape[-1], v.shape[-1]
        if packed:
            problem.b, problem.s_q, problem.s_k = packed
            problem.packed = 1
        else:
            problem.b, problem.s_q, problem.s_k = q.shape[0], q.shape[2], k.shape[2]
        if causal:
            problem.band = Band(UNBOUNDED, 0, BOTTOM_RIGHT, 0)
        return problem

    def plan(self, q, k, v, o, causal=False, threads=0, level=None, backend=None, cu_seqlens=None, longest=None,
             lse=None):
        """Returns a function without arguments that runs attention once; its attribute `describe` says how. backend is
        a name of BACKENDS, or None for the GPU where the tensors lie on one, else the CPU. cu_seqlens (int32) are the
        starts of packed sequences, the same for q and k, and longest is the longest of these. lse (b, h, s) in f32 is
        written too where it is given."""
        problem = self.problem(q, k, v, causal, (len(cu_seqlens) - 1, longest, longest) if cu_seqlens is not None else None)
        operands = Operands(size=ctypes.sizeof(Operands), q=view(q), k=view(k), v=view(v), o=view(o))
        if cu_seqlens is not None:
            operands.cu_seqlens_q = operands.cu_seqlens_k = cu_seqlens.data_ptr()
        if lse is not None:
            problem.lse, operands.lse = 1, rows_view(lse)
        backend = BACKENDS[backend or ("best" if q.is_cuda else "cpu")]
        target = Target(size=ctypes.sizeof(Target), backend=backend, threads=threads, cpu_level=level.encode() if level else None)
        plan = c_void_p()
        self.check(self.lib.fal_plan_make(byref(problem), 0, byref(target), byref(plan)))
        return self.runner(plan, self.lib.fal_plan_run, operands, (q, k, v, o, cu_seqlens, lse))

    def backward_plan(self, q, k, v, o, lse, grad_o, grads, causal=False, threads=0, backend=None, **options):
        """The same for the backward pass. o and lse are those of the forward pass; grads is (grad_q, grad_k, grad_v).
        options are fields of Attention, each under its name."""
        problem = self.problem(q, k, v, causal, None)
        for name, value in options.items():
            setattr(problem, name, value)
        operands = Operands(size=ctypes.sizeof(Operands), q=view(q), k=view(k), v=view(v), o=view(o), lse=rows_view(lse),
                            grad_o=view(grad_o))
        operands.grad_q, operands.grad_k, operands.grad_v = map(view, grads)
        backend = BACKENDS[backend or ("best" if q.is_cuda else "cpu")]
        target = Target(size=ctypes.sizeof(Target), backend=backend, threads=threads)
        plan = c_void_p()
        self.check(self.lib.fal_plan_make(byref(problem), 1, byref(target), byref(plan)))
        return self.runner(plan, self.lib.fal_plan_run, operands, (q, k, v, o, lse, grad_o, grads))

    def linear_plan(self, q, k, v, o=None, grads=None, threads=0, backend=None, segments=0, **options):
        """The same for linear attention. grads is (grad_o, grad_q, grad_k, grad_v) for the backward pass. options are
        fields of LinearAttention, such as scale and feature_map."""
        problem = self.lib.fal_linear_attention_init()
        problem.dtype = view(q).dtype
        (problem.b, problem.h_qk, problem.s, problem.d_qk), (problem.h_v, problem.d_v) = q.shape, v.shape[1::2]
        for name, value in options.items():
            setattr(problem, name, value)
        operands = LinearOperands(size=ctypes.sizeof(LinearOperands), q=view(q), k=view(k), v=view(v))
        if grads is None:
            operands.o = view(o)
        else:
            operands.grad_o, operands.grad_q, operands.grad_k, operands.grad_v = map(view, grads)
        backend = BACKENDS[backend or ("best" if q.is_cuda else "cpu")]
        target = Target(size=ctypes.sizeof(Target), backend=backend, threads=threads, segments=segments)
        plan = c_void_p()
        self.check(self.lib.fal_linear_plan_make(byref(problem), grads is not None, byref(target), byref(plan)))
        return self.runner(plan, self.lib.fal_linear_plan_run, operands, (q, k, v, o, grads))

    def gemm_plan(self, a, b, d, backend=None, threads=0, level=None, activation="none", residual=None, bias_n=None, scale_a=None,
                  scale_b=None):
        """The same for a GEMM of matrices: d (m, n) becomes activation(a (m, k) b^T + bias_n) + residual, where b is (n, k),
        with swiglu (2 n, k). Scales (rows,) in f32, of one row or of each, belong to an a and b of 8 bits."""
        problem = self.lib.fal_gemm_init()
        problem.dtype, problem.dtype_d = matrix_view(a).dtype, matrix_view(d).dtype
        (problem.m, problem.k), problem.n = a.shape, d.shape[1]
        problem.activation = ACTIVATIONS.index(activation)
        operands = GemmOperands(size=ctypes.sizeof(GemmOperands), a=matrix_view(a), b=matrix_view(b), d=matrix_view(d))
        if residual is not None:
            problem.residual, operands.residual = 1, matrix_view(residual)
        if bias_n is not None:
            problem.bias_n, operands.bias_n = 1, matrix_view(bias_n)
        if scale_a is not None:
            problem.scaling = 2 if len(scale_a) > 1 or len(scale_b) > 1 else 1
            operands.scale_a, operands.scale_b = matrix_view(scale_a[:, None]), matrix_view(scale_b[:, None])
        backend = BACKENDS[backend or ("best" if a.is_cuda else "cpu")]
        target = Target(size=ctypes.sizeof(Target), backend=backend, threads=threads, cpu_level=level.encode() if level else None)
        plan = c_void_p()
        self.check(self.lib.fal_gemm_plan_make(byref(problem), byref(target), byref(plan)))
        return self.runner(plan, self.lib.fal_gemm_plan_run, operands, (a, b, d, residual, bias_n, scale_a, scale_b))

    def norm_plan(self, x, y, kind="rms", residual=None, residual_out=None, weight=None, bias=None, backend=None, threads=0):
        """The same for a norm of the rows of a matrix x, which goes to y; residual and residual_out are matrices of one type,
        weight and bias vectors."""
        problem = self.lib.fal_norm_init()
        problem.dtype, problem.dtype_y = matrix_view(x).dtype, matrix_view(y).dtype
        problem.kind = ("layer", "rms").index(kind)
        problem.rows, problem.d = x.shape
        operands = NormOperands(size=ctypes.sizeof(NormOperands), x=matrix_view(x), y=matrix_view(y))
        if residual is not None:
            problem.dtype_residual = matrix_view(residual).dtype
        for name, tensor in {"residual": residual, "residual_out": residual_out, "weight": weight, "bias": bias}.items():
            if tensor is not None:
                setattr(problem, name, 1)
                setattr(operands, name, matrix_view(tensor))
        backend = BACKENDS[backend or ("best" if x.is_cuda else "cpu")]
        target = Target(size=ctypes.sizeof(Target), backend=backend, threads=threads)
        plan = c_void_p()
        self.check(self.lib.fal_norm_plan_make(byref(problem), byref(target), byref(plan)))
        return self.runner(plan, self.lib.fal_norm_plan_run, operands, (x, y, residual, residual_out, weight, bias))

    def norm_backward_plan(self, x, grad_y, grad_x, kind="rms", weight=None, grad_weight=None, grad_bias=None,
                           grad_residual_out=None):
        """The same for the gradients of a norm, on the GPU of x; grad_residual_out is a matrix of the type of x."""
        problem = self.lib.fal_norm_init()
        problem.dtype, problem.dtype_y = matrix_view(x).dtype, matrix_view(grad_y).dtype
        problem.kind = ("layer", "rms").index(kind)
        problem.rows, problem.d = x.shape
        problem.weight, problem.bias = weight is not None, grad_bias is not None
        problem.residual_out = grad_residual_out is not None
        operands = NormOperands(size=ctypes.sizeof(NormOperands))
        tensors = {"x": x, "weight": weight, "grad_y": grad_y, "grad_residual_out": grad_residual_out, "grad_x": grad_x,
                   "grad_weight": grad_weight, "grad_bias": grad_bias}
        for name, tensor in tensors.items():
            if tensor is not None:
                setattr(operands, name, matrix_view(tensor))
        target = Target(size=ctypes.sizeof(Target), backend=BACKENDS["best"])
        plan = c_void_p()
        self.check(self.lib.fal_norm_backward_plan_make(byref(problem), byref(target), byref(plan)))
        return self.runner(plan, self.lib.fal_norm_plan_run, operands, tuple(tensors.values()))

    def runner(self, plan, run, operands, tensors):
        import torch
        q = tensors[0]
        size = self.lib.fal_plan_workspace(plan)
        memory = torch.empty(size + 64, dtype=torch.uint8, device=q.device)
        workspace = (memory.data_ptr() + 63) // 64 * 64
        pointer = byref(operands)
        stream = torch.cuda.current_stream if q.is_cuda else None

        def call():
            if run(plan, pointer, workspace, size, stream().cuda_stream if stream else None) != 0:
                raise RuntimeError(self.lib.fal_why().decode())
        call.describe = self.lib.fal_plan_describe(plan).decode()
        call.keep = (operands, memory, tensors)
        return call
