#!/usr/bin/env python3
"""Measures three roofs of an NVIDIA GPU that no data sheet gives: the rate of the L2 for loads that miss the L1, the rate
of memory for reads, and the rate of exponentials. It needs only the driver, because the kernels are PTX, below.

    bench/roofline_probe.py            # a result file: 1e12 bytes or exponentials a second, best of 7

In `same` all multiprocessors read the same lines at the same time; in `apart` each one reads lines of its own.
"""
import ctypes as C
import os

import result_file

cuda = C.CDLL("libcuda.so.1")


def ok(code):
    assert code == 0, f"CUDA error {code}"


LOADS, EXPS = 8, 32  # These are counts for each thread in one turn of the loop.


def entry(name, body):
    return f""".visible .entry {name}(.param .u64 a,.param .u64 o,.param .u32 m,.param .u32 n){{
.reg .b64 %d<4>;.reg .b32 %r<9>;.reg .b32 %v<{4 * LOADS}>;.reg .f32 %f<8>;.reg .pred %p;
ld.param.u64 %d0,[a];ld.param.u64 %d1,[o];ld.param.u32 %r0,[m];ld.param.u32 %r1,[n];
mov.u32 %r2,%tid.x;mov.u32 %r3,%ctaid.x;mov.u32 %r4,%ntid.x;shl.b32 %r5,%r2,4;shl.b32 %r6,%r4,4;mov.u32 %r7,0;
{body}
sub.u32 %r1,%r1,1;setp.ne.u32 %p,%r1,0;@%p bra L;
{"".join(f"mov.b32 %r8,%f{i};xor.b32 %r7,%r7,%r8;" for i in range(8)) if name == "exps" else ""}
st.global.u32 [%d1],%r7;ret;}}
"""


def reader(name, apart):
    """Block b begins at b * apart. Each load is 16 bytes for each thread, and the next load is a block's width further."""
    loads = "".join(f"and.b32 %r5,%r5,%r0;cvt.u64.u32 %d2,%r5;add.u64 %d3,%d0,%d2;add.u32 %r5,%r5,%r6;"
                    f"ld.global.cg.v4.u32 {{%v{4 * i},%v{4 * i + 1},%v{4 * i + 2},%v{4 * i + 3}}},[%d3];\n"
                    for i in range(LOADS))
    sums = "".join(f"xor.b32 %r7,%r7,%v{i};" for i in range(4 * LOADS))
    return entry(name, f"mul.lo.u32 %r8,%r3,{apart};add.u32 %r5,%r5,%r8;\nL:\n{loads}{sums}")


begin = "cvt.rn.f32.u32 %f0,%r2;" + "".join(f"mov.f32 %f{i},%f0;" for i in range(1, 8))
steps = "".join(f"ex2.approx.ftz.f32 %f{i % 8},%f{i % 8};" for i in range(EXPS))
ptx = (".version 7.0\n.target sm_80\n.address_size 64\n" + reader("same", 0) + reader("apart", 132352)
       + reader("memory", 8 << 20) + entry("exps", f"{begin}\nL:\n{steps}"))

device, context, module, sms = C.c_int(), C.c_void_p(), C.c_void_p(), C.c_int()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(C.byref(device), 0))
name = C.create_string_buffer(128)
ok(cuda.cuDeviceGetName(name, 128, device))
ok(cuda.cuDevicePrimaryCtxRetain(C.byref(context), device))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuModuleLoadData(C.byref(module), ptx.encode()))
ok(cuda.cuDeviceGetAttribute(C.byref(sms), 16, device))
buffer, out = C.c_uint64(), C.c_uint64()
ok(cuda.cuMemAlloc_v2(C.byref(buffer), C.c_size_t(1 << 31)))
ok(cuda.cuMemAlloc_v2(C.byref(out), C.c_size_t(16)))
ok(cuda.cuMemcpyHtoD_v2(buffer, os.urandom(1 << 25), C.c_size_t(1 << 25)))
events = [C.c_void_p(), C.c_void_p()]
for event in events:
    ok(cuda.cuEventCreate(C.byref(event), 0))


def seconds(name, grid, block, size, turns):
    function, times = C.c_void_p(), []
    ok(cuda.cuModuleGetFunction(C.byref(function), module, name.encode()))
    values = [C.c_uint64(buffer.value), C.c_uint64(out.value), C.c_uint32(size - 1), C.c_uint32(turns)]
    arguments = (C.c_void_p * 4)(*[C.cast(C.byref(x), C.c_void_p) for x in values])
    for _ in range(9):
        ok(cuda.cuEventRecord(events[0], None))
        ok(cuda.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, None, arguments, None))
        ok(cuda.cuEventRecord(events[1], None))
        ok(cuda.cuEventSynchronize(events[1]))
        ms = C.c_float()
        ok(cuda.cuEventElapsedTime(C.byref(ms), *events))
        times.append(ms.value / 1e3)
    return min(times[2:])


n = sms.value
result = {**result_file.facts(name.value.decode(), result_file.gpu_driver()),
          "unit": "1e12 bytes or exponentials a second", "sms": n}
for kernel in ("same", "apart"):
    for megabytes in (8, 32):
        result[f"l2 {kernel} {megabytes} MB"] = max(
            n * per * block * 16 * LOADS * 2048 / seconds(kernel, n * per, block, megabytes << 20, 2048) / 1e12
            for block, per in ((1024, 1), (512, 2), (1024, 2)))
result["memory read"] = 2 * n * 1024 * 16 * LOADS * 64 / seconds("memory", 2 * n, 1024, 1 << 31, 64) / 1e12
result["exps"] = 2 * n * 1024 * EXPS * 20000 / seconds("exps", 2 * n, 1024, 1, 20000) / 1e12
print(result_file.text_of(result_file.rounded(result)), end="")
