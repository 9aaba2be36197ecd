"""FlashAttention-3's kernels for Hopper behind C functions, without PyTorch: a library with fa3_fwd, fa3_decode and fa3_bwd.
Tensors are (b, s, h, d), contiguous, of bf16 and head dim 64, 128 or 256; forward also takes e4m3 with head dim 128. Each
method returns its results and a function that enqueues the call on torch's stream of that moment. Needs torch."""
import ctypes
import pathlib

import torch

ROWS = 640  # Rows of f32 workspaces come in multiples of each of its tiles' rows: 64, 80 and 128.


class Fa3:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        self.counters = torch.zeros(64, dtype=torch.int32, device="cuda")
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def run(self, name, tensors, sizes, *flags):
        addresses = [ctypes.c_void_p(x.data_ptr()) for x in tensors]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if getattr(self.lib, name)(*addresses, *sizes, *flags, self.sms, stream):
            raise ValueError(f"FlashAttention-3's library has no kernel of {name} for head dim {sizes[-1]}")

    @staticmethod
    def sizes(q, k, v):
        """b, s_q, s_k, h, h_k, d of tensors that the library takes."""
        kinds = {x.dtype for x in (q, k, v)}
        if kinds not in ({torch.bfloat16}, {torch.float8_e4m3fn}):
            raise ValueError(f"FlashAttention-3's library takes bf16 or e4m3, not {', '.join(map(str, kinds))}")
        if not all(x.is_contiguous() for x in (q, k, v)):
            raise ValueError("FlashAttention-3's library takes contiguous tensors (b, s, h, d)")
        return q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]

    def forward(self, q, k, v, causal):
        """o, lse (b, h, s) and the call. The scales of e4m3 are 1; its o is bf16."""
        sizes = self.sizes(q, k, v)
        o = torch.empty(q.shape, dtype=torch.bfloat16, device=q.device)
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device=q.device)
        eight = int(q.dtype == torch.float8_e4m3fn)
        return o, lse, lambda: self.run("fa3_fwd", (q, k, v, o, lse, self.counters), sizes, int(causal), eight)

    def decode(self, q, k, v, splits):
        """o and the call, which cuts the keys into so many parts. Head dim 128, no mask."""
        sizes = self.sizes(q, k, v)
        o = torch.empty_like(q)
        parts = [torch.empty(count, device=q.device) for count in (q.numel() // q.shape[3], splits * q.numel(),
                                                                   splits * q.numel() // q.shape[3])]
        return o, lambda: self.run("fa3_decode", (q, k, v, o, *parts), sizes, splits)

    def splits(self, q, k):
        """The numbers of splits worth trying: one or two waves of CTAs, and many."""
        tiles = q.shape[0] * k.shape[2]
        return sorted({1, max(2, self.sms // tiles), max(2, 2 * self.sms // tiles), 32} & set(range(1, 65)))

    def backward(self, q, k, v, o, lse, grad_o, causal, deterministic):
        """The gradients of q, k and v, and the call. o and lse are forward's."""
        sizes = self.sizes(q, k, v)
        b, s_q, s_k, h, h_k, d = sizes
        if deterministic and (d == 256 or h != h_k):
            raise ValueError("FlashAttention-3's library is deterministic up to head dim 128 and with as many heads of k as of q")
        rows_q, rows_k = (-(-s // ROWS) * ROWS for s in (s_q, s_k))
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        sums = [torch.empty(b * h * rows_q * width, device=q.device) for width in (1, 1, d)]
        of_groups = [torch.empty(b * h_k * rows_k * d if h != h_k else 0, device=q.device) for _ in range(2)]
        turns = torch.zeros(b * h * rows_q, dtype=torch.int32, device=q.device)

        def call():
            for x in of_groups:
                x.zero_()
            self.run("fa3_bwd", (grad_o, q, k, v, o, lse, *gradients, *sums, *of_groups, turns), sizes, int(causal),
                     int(deterministic))
        return gradients, call
