"""Exact attention on arrays of any library: the C functions behind `import falchion`."""

from collections.abc import Sequence
from typing import Any, Literal, overload

from typing_extensions import disjoint_base

from falchion.types import Activation, Align, AnyArray, Array, Backend, Causal, Layout, Scaling, State, Window

class Error(Exception):
    code: str

class Invalid(Error, ValueError): ...
class Unsupported(Error, NotImplementedError): ...
class Workspace(Error, RuntimeError): ...
class Device(Error, RuntimeError): ...

@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    return_lse: Literal[False] = False,
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> Array:
    """Exact softmax attention: O = softmax(S) V with S = softcap(scale Q K^T) + alibi + bias.

    Shapes: q (b, s_q, h_q, d_qk), k (b, s_k, h_k, d_qk), v (b, s_k, h_k, d_v); the result is (b, s_q, h_q, d_v).
    Types: float32, float16 or bfloat16, the same for all four; or of 8 bits, below. h_q is a multiple of h_k: h_q / h_k heads of q share one
    of k and v. Head dims are 1 to 256. Strides may be anything, 0 and negative too, but the last axis has no gaps.

    causal: False; "bottom_right", the last query sees the last key; "top_left", query 0 sees key 0 alone; or True,
        which is only taken where both are the same.
    window: (left, right), how many keys before and after its own place a query sees; None is unbounded.
    align: where the diagonal of causal=True, of a window or of alibi lies where s_q and s_k differ: "bottom_right",
      "top_left", or the key at which query 0 stands (an int; a chunk of a prompt whose first row is n has align=n).
    scale: what Q K^T is multiplied by; None is 1/sqrt(d_qk).
    softcap: above 0 each score s becomes softcap tanh(s / softcap).
    alibi: slopes (h_q) or (b, h_q), float32: a score loses the slope times its distance from the diagonal.
    bias: the last axes of (b, h_q, s_q, s_k), float32 or the type of q, added to the scores; -inf hides a key. An axis
        may have extent 1, but for the last one.
    mask: likewise, of bool; True means that the key may be seen.
    dropout: the share of probabilities that are dropped, 0 to 1. It needs a seed.
    seed, offset: numbers below 2^64 that say what is dropped. seed may be an array of two, int64 or uint64, where q
        lies: (seed, offset), which the run itself reads. offset is then added to the second one.
    origin: (b, h, i, j), where the call lies in a larger problem, of whose dropout it draws its part: element (0, 0, 0, 0)
        of the call is that one there. (b, h, i, j, h_q) also says the query heads there, where they are more. j is a
        multiple of 4.
    used_q, used_k: (b) int32: how many rows of each sequence count. On the host lengths may also be a list or other
        whole numbers, which are converted once each was seen to fit.
    first_k: (b) int32: left padding: the first row of k and v that counts.
    cache: k and v are a KV cache, (b, capacity, h_k, d), and used_k says how many keys each sequence has. It takes no
        bias, mask or dropout. Only where q is packed (varlen) this says more than used_k does.
    page_table: (b, columns) int32: the cache lies in pages, k and v are (pages, size, h_k, d), and key j of sequence i
        is row j % size of page page_table[i, j // size]. Keys of a page that is not there are masked and not read.
    page_starts: (b + 1) int32: page_table is (total), and columns page_starts[i] to page_starts[i + 1] are sequence i's.
    k_new, v_new: (b, s_q, h_k, d), or packed as q is: the last keys of each sequence, one for each of its queries. They
        are written into the cache k, v, which has to be writable, and used_k counts them.
    rotary: (positions, 2, columns / 2) or (positions, columns) float32, cosines and then sines: that many columns of q
        and k_new are turned by the row of their place, which is used_k - first_k - s_q for the first query.
    rotary_pairs: column 2 i turns with 2 i + 1; without it column i with i + columns / 2.
    split_keys: a multiple of 64: parts of the keys begin at its multiples and are summed in order, so that the bits of a
        sequence do not depend on the others; 0 lets the plan decide.
    sinks: attention sinks, one a query head: the score of a key without V.
    k_scale, v_scale: float32 (b, keys, h_k), or with pages (pages, size, h_k), an axis of 1 shared, or fewer axes at the
        front: the scales of a cache of int8 or float8_e4m3fn. Numbers of k are k * k_scale; new keys are divided by it.
    q_scale, k_scale_rows: of q of 8 bits, below.
    layout: "bshd", or "bhsd", which is PyTorch's order of q, k, v, out.
    backend: "best", which stays on the device where q lies; "ref", the definition in double; "cpu"; "sm80", "sm90".
    threads: of the CPU; 0 is torch.get_num_threads() for PyTorch's tensors and all that there are for others.
    stream: of the GPU: a number, or a stream of torch or cupy; None is the one that the library works on now.
    return_lse: gives (O, LSE), with the logarithm of the sum of exponentials of each row, (b, h_q, s_q) float32.
    out, lse: arrays to write into. Without them the library of q makes them, in the order of their axes.

    Of 8 bits, without gradients: q, k and v of float8_e4m3fn; or q and k of int8 and v of float8_e4m3fn, bfloat16 or
    float16. O has the type of v of 16 bits, else bfloat16 or the type of a given out, which may be float16. Numbers of q
    are q * q_scale, float32 (b, s_q, h_q), packed (total_q, h_q), an axis of 1 shared, or fewer axes at the front; in
    that order whatever the layout is. k_scale is (b, 1, h_k), or with k_scale_rows = n, a multiple of 128, (b, ceil(s_k
    / n), h_k): n keys share one; packed (total_k // n + sequences, h_k), where those of sequence i begin at
    cu_seqlens_k[i] // n + i. v_scale, of v of 8 bits, is (b, 1, h_k), packed (1, h_k). falchion.quantise makes numbers
    and scales. Not with a cache, first_k, alibi, bias, mask and dropout.

    A row that sees no key has O = 0 and LSE = -inf. Rows past used_q are 0 (-inf), or left alone in a given out.
    Raises Invalid (a ValueError), Unsupported (NotImplementedError), Device and Workspace (RuntimeError), each an Error
    whose text names the argument, its value and the limit; TypeError for what is no array or no number. A number may be
    Python's, a scalar of NumPy or an array without axes; True and False may also be 1 and 0, or a bool of NumPy.
    """

@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    return_lse: Literal[True],
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> tuple[Array, AnyArray]: ...
@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    return_lse: bool,
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> Array | tuple[Array, AnyArray]: ...
def attention_backward(
    grad_o: Array,
    q: Array,
    k: Array,
    v: Array,
    o: Array,
    lse: AnyArray,
    *,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    any_order: bool = False,
    zero_unused: bool = False,
    grad_lse: AnyArray | None = None,
    grad_bias: AnyArray | None = None,
    grad_alibi: AnyArray | None = None,
    grad_sinks: AnyArray | None = None,
    grads: tuple[AnyArray | None, AnyArray | None, AnyArray | None] | None = None,
    accumulate: bool = False,
    f32: bool = False,
) -> tuple[Any, Any, Any]:
    """The gradients of attention: (grad_q, grad_k, grad_v), from o and lse of the forward pass and grad_o = dL/dO.

    The options are those of attention, with the same values, the seed and the offset too. grad_o has the shape of o and
    any strides.

    grad_lse: dL/dLSE, with the shape of lse, where the loss depends on it.
    any_order: sums of grad_q may be made in any order: faster on a GPU, but the bits differ from run to run.
    grad_bias, grad_alibi: float32 arrays that the gradients of bias and alibi are written into; an axis of extent 1 is
        summed over.
    grad_sinks: with the gradient of the sinks.
    grads: arrays to write into, a tuple of three. None in it is not computed, and None comes back; grad_k and grad_v
        are computed together.
    accumulate: adds to grads (and to grad_bias and grad_alibi), which are float32, instead of writing.
    f32: the gradients are float32 whatever the type of q.
    zero_unused: rows past used lengths and before first_k become 0 in given grads. In grads that are made they are 0.

    Raises what attention raises.
    """

@overload
def varlen(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: AnyArray,
    cu_seqlens_k: AnyArray | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    return_lse: Literal[False] = False,
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> Array:
    """Attention of sequences of unequal length that lie one after another, without padding.

    Shapes: q (total_q, h_q, d_qk), k (total_k, h_k, d_qk), v (total_k, h_k, d_v); the result is (total_q, h_q, d_v), and
    LSE (h_q, total_q) float32. With layout="bhsd" the heads come first.

    cu_seqlens_q: (sequences + 1) int32: sequence i has the rows cu_seqlens_q[i] to cu_seqlens_q[i + 1].
    cu_seqlens_k: the same for k and v; None where they are those of q, and then causal=True is taken.
    max_q, max_k: the longest length of a sequence, as a hint for planning: no row is dropped where it is too small. None
        reads it where the host can.

    With a cache q alone is packed: k and v are as in attention, used_k says how many keys each sequence has, and there
    is no cu_seqlens_k. max_k is then the most keys that a sequence may have, at most what there is room for.

    The other options are those of attention. bias and mask are not offered with packed sequences yet.
    Raises what attention raises; lengths on the host are checked. On a GPU nobody looks at them: rows past the last
    sequence come back as the memory was, here and in gradients, unless they are given or zero_unused is.
    """

@overload
def varlen(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: AnyArray,
    cu_seqlens_k: AnyArray | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    return_lse: Literal[True],
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> tuple[Array, AnyArray]: ...
@overload
def varlen(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: AnyArray,
    cu_seqlens_k: AnyArray | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    return_lse: bool,
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> Array | tuple[Array, AnyArray]: ...
def varlen_backward(
    grad_o: Array,
    q: Array,
    k: Array,
    v: Array,
    o: Array,
    lse: AnyArray,
    cu_seqlens_q: AnyArray,
    cu_seqlens_k: AnyArray | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: AnyArray | None = None,
    bias: AnyArray | None = None,
    mask: AnyArray | None = None,
    sinks: AnyArray | None = None,
    dropout: float = 0.0,
    seed: int | AnyArray | None = None,
    offset: int | None = None,
    origin: tuple[int, ...] | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    any_order: bool = False,
    zero_unused: bool = False,
    grad_lse: AnyArray | None = None,
    grad_bias: AnyArray | None = None,
    grad_alibi: AnyArray | None = None,
    grad_sinks: AnyArray | None = None,
    grads: tuple[AnyArray | None, AnyArray | None, AnyArray | None] | None = None,
    accumulate: bool = False,
    f32: bool = False,
) -> tuple[Any, Any, Any]:
    """The gradients of varlen: (grad_q, grad_k, grad_v). The options are those of varlen and attention_backward.

    Raises what attention raises.
    """

def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    feature_map: Literal["identity", "elu_plus_one"] | None = None,
    decay: AnyArray | None = None,
    normalise: bool = False,
    eps: float = 1e-06,
    scale: float | None = None,
    reverse: bool = False,
    initial_state: State | None = None,
    cu_seqlens: AnyArray | None = None,
    max_s: int | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    segments: int = 0,
    stream: Any = None,
    return_state: bool = False,
    out: Array | None = None,
    state_out: State | None = None,
) -> Any:
    """Causal linear attention: S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T and o_j = scale phi(q_j)^T S_j over the tokens j.

    Shapes: q, k (b, s, h_qk, d_qk), v (b, s, h_v, d_v); the result is as v. h_v is a multiple of h_qk. Types: float32,
    float16 or bfloat16; states and decay are float32.

    feature_map: phi: "identity" (None) or "elu_plus_one", x + 1 above 0 and exp(x) below.
    decay: g, a natural logarithm: (h_v), or one for each token, (b, s, h_v); with layout="bhsd" (b, h_v, s).
    normalise: divides o_j by scale phi(q_j) z_j + eps, with z_j = e^(g_j) z_(j-1) + phi(k_j).
    scale: None is 1/sqrt(d_qk).
    reverse: from the last token to the first.
    initial_state: S before the first token, (b, h_v, d_qk, d_v) float32; with normalise a pair (S, z), where z is
        (b, h_v, d_qk).
    cu_seqlens: (sequences + 1) int32, for packed sequences: q, k, v are then (total, h, d), and states still have one
        entry for each sequence.
    max_s: the longest of these, as a hint.
    segments: into how many parts a sequence is cut; 0 lets the plan decide.
    return_state: gives (O, state), the state after the last token in the form of initial_state.
    out, state_out: arrays to write into; state_out may be the very arrays of initial_state.

    layout, backend, threads, stream and what is raised: as in attention.
    """

def linear_attention_backward(
    grad_o: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    feature_map: Literal["identity", "elu_plus_one"] | None = None,
    decay: AnyArray | None = None,
    normalise: bool = False,
    eps: float = 1e-06,
    scale: float | None = None,
    reverse: bool = False,
    initial_state: State | None = None,
    cu_seqlens: AnyArray | None = None,
    max_s: int | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    segments: int = 0,
    stream: Any = None,
    grad_state: State | None = None,
) -> tuple[Any, Any, Any, Any, Any]:
    """The gradients of linear_attention: (grad_q, grad_k, grad_v, grad_decay, grad_initial_state).

    The last two are None without a decay or an initial state. The options are those of linear_attention.

    grad_state: dL/dstate of the last state, in its form, where the loss depends on it.

    Raises what attention raises.
    """

def gemm(
    a: Array,
    b: Array,
    *,
    c: AnyArray | None = None,
    bias: AnyArray | None = None,
    bias_m: AnyArray | None = None,
    residual: AnyArray | None = None,
    activation: Activation | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    scale_a: AnyArray | None = None,
    scale_b: AnyArray | None = None,
    scaling: Scaling | None = None,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out_dtype: Any = None,
    out: Array | None = None,
) -> Array:
    """A matrix product with what follows it in one kernel: activation(alpha A B^T + beta C + bias) + residual.

    Shapes: a (m, k), b (n, k), as the weight of a linear layer lies; the result is (m, n). Either may have a batch
    before, (batch, m, k) and (batch, n, k), and the result is then (batch, m, n); a batch of 1, or none, serves all.
    Strides may be anything, so a matrix w of shape (k, n) is given as its transpose, which copies nothing: gemm(a, w.T)
    is a @ w, and with a batch gemm(a, w.swapaxes(1, 2)).
    Types: float32, float16 or bfloat16, the same for a and b, or int8 or float8_e4m3fn. Sums of
    int8 are exact, all others and what follows them are float32.

    c: added before the activation, times beta (None is 1). It has the shape of the result, or is one matrix (m, n) for
        all of a batch. Its type is float32 or that of a, or where a has 8 bits that of the result.
    bias: (n), one number for each row of b, of a type that c may have. It is added before the activation too.
    bias_m: (m) or (batch, m), one for each row of a, likewise.
    activation: "relu", "gelu_tanh", "gelu_erf", "silu" or "swiglu". With "swiglu" b has 2 n rows, those of the n gates
        first, and bias 2 n numbers: the result is silu(gate) * up.
    residual: added after the activation, with the type of the result and its shape, or one matrix, as c may be.
    scale_a, scale_b: arrays of float32, both or none, where a and b have 8 bits: A B^T is multiplied by them. Each has
        one number in all, (1) or without axes, or one for each row: scale_a (m) or (batch, m), scale_b (n) or (batch, n).
        With scaling="block128" their shapes are those below.
    scaling: None is what the shapes of the scales say, "tensor" or "row_col". "block128", for float8_e4m3fn, has scales
        of blocks of 128, as DeepSeek-V3's weights and DeepGEMM have: scale_a (m, ceil(k / 128)) of each row and 128 of k,
        scale_b (ceil(n / 128), ceil(k / 128)) of 128 rows and 128 of k, each also with a batch before.
    out_dtype: the type of a result that is made: None is that of a, and float32 may be asked for. Where a has 8 bits
        None is float32, and float16, bfloat16 or, of int8 without more than the product, int32 may be asked for.
    out: an array to write into. It may be c or residual itself.

    An array may also have four axes, whose last two are its columns: a (b, s, h, d), as attention gives it, times a
    weight (n, h * d); and an out (b, s, h, d) takes a product with n = h * d, as q, k and v are.
    backend, threads, stream and what is raised: as in attention.
    """

@overload
def layer_norm(
    x: Array,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-05,
    *,
    residual: None = None,
    zero_centered: bool = False,
    return_stats: Literal[False] = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out_dtype: Any = None,
    out: AnyArray | None = None,
    residual_out: AnyArray | None = None,
) -> Array:
    """Layer norm over the last axis: (v - mean) rstd weight + bias with v = x + residual, rstd = 1 / sqrt(var + eps).

    Shapes: x (d), (s, d) up to (b, s, h, d). Strides may be anything. Types: float32, float16 or bfloat16, each array
    its own; sums are float32.

    weight, bias: the last axes of x, mostly (d). Any axis but the last one may have extent 1.
    eps: 0 or more.
    residual: as x; it is added before the norm, and then the call gives (y, residual_out), where residual_out is
        x + residual in the type of residual.
    zero_centered: the factor is 1 + weight.
    return_stats: gives mean and rstd of each row too, float32, with an extent of 1 in the place of d: (y, mean, rstd),
        or (y, residual_out, mean, rstd).
    out_dtype: the type of a y that is made; None is that of x.
    out, residual_out: arrays to write into. Each may be x or residual itself.

    backend, threads, stream and what is raised: as in attention.
    """

@overload
def layer_norm(
    x: Array,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-05,
    *,
    residual: AnyArray | None = None,
    zero_centered: bool = False,
    return_stats: bool = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out_dtype: Any = None,
    out: AnyArray | None = None,
    residual_out: AnyArray | None = None,
) -> Any: ...
@overload
def rms_norm(
    x: Array,
    weight: AnyArray | None = None,
    *,
    bias: AnyArray | None = None,
    eps: float = 1e-05,
    residual: None = None,
    zero_centered: bool = False,
    return_stats: Literal[False] = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out_dtype: Any = None,
    out: AnyArray | None = None,
    residual_out: AnyArray | None = None,
) -> Array:
    """RMSNorm over the last axis: v rstd weight + bias with v = x + residual, rstd = 1 / sqrt(mean of v^2 + eps).

    All arguments are those of layer_norm. There is no mean: return_stats gives (y, rstd), or (y, residual_out, rstd).
    Raises what attention raises.
    """

@overload
def rms_norm(
    x: Array,
    weight: AnyArray | None = None,
    *,
    bias: AnyArray | None = None,
    eps: float = 1e-05,
    residual: AnyArray | None = None,
    zero_centered: bool = False,
    return_stats: bool = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out_dtype: Any = None,
    out: AnyArray | None = None,
    residual_out: AnyArray | None = None,
) -> Any: ...

def layer_norm_backward(
    grad_y: AnyArray,
    x: Array,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-05,
    *,
    grad_residual_out: AnyArray | None = None,
    zero_centered: bool = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
) -> tuple[Array, Array | None, Array | None]:
    """The gradients of layer_norm: (grad_x, grad_weight, grad_bias), of which the last two are None without weight and bias.

    grad_y: the gradient of y, as x.
    x: what was normalised. With a residual that is residual_out of layer_norm, and grad_x is the gradient of x and of the
        residual alike.
    weight, bias, eps, zero_centered: as in layer_norm. bias is not read: grad_bias has its shape and type. grad_weight and
        grad_bias are sums over the rows that share their elements, in float32, with the same bits each time.
    grad_residual_out: the gradient of residual_out, as x; it is added to grad_x.

    backend, threads, stream and what is raised: as in attention.
    """

def rms_norm_backward(
    grad_y: AnyArray,
    x: Array,
    weight: AnyArray | None = None,
    *,
    bias: AnyArray | None = None,
    eps: float = 1e-05,
    grad_residual_out: AnyArray | None = None,
    zero_centered: bool = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
) -> tuple[Array, Array | None, Array | None]:
    """The gradients of rms_norm; the rest is as in layer_norm_backward."""
@overload
def quantise(
    x: Array,
    dtype: Any = "float8_e4m3fn",
    *,
    rows: int = 1,
    scale: AnyArray | None = None,
    mean: AnyArray | None = None,
    powers_of_two: bool = False,
    smooth: Literal[False] = False,
    rotate: bool = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out: AnyArray | None = None,
) -> tuple[AnyArray, AnyArray]:
    """x as 8-bit numbers with scales: (y, scale), where y * scale is about x. With smooth (y, scale, mean).

    Shapes: x (b, s, h, d), of float32, float16 or bfloat16, d up to 256; y as x; scale float32 (b, blocks, h). A block
    is some tokens of a head. The order is: subtract mean, rotate, divide by the scale, round to nearest even; what is
    beyond 448 (float8_e4m3fn) or 127 (int8) becomes that. Every backend gives the same bits.

    dtype: of y, "float8_e4m3fn" or "int8".
    rows: tokens of a block; the last one of a sequence may have fewer. 0: all tokens of the head.
    scale: scales to use, (b, blocks, h) float32, where each extent may be 1; None: those by which the largest number
        of each block becomes 448 or 127.
    mean: a vector a head to subtract, (b, h, d) float32. softmax(Q K^T) is the same without it in K.
    powers_of_two: scales that are made are rounded up to powers of two.
    smooth: subtracts the mean over the tokens of each head, and gives it, float32 (b, h, d).
    rotate: multiplies rows by an orthonormal Hadamard matrix, in blocks of the largest power of two that divides d.
        Q K^T is the same with both rotated.
    out: an array to write y into.

    A NaN or Inf becomes NaN in float8_e4m3fn; with int8 the scale of its block is NaN.
    backend, threads, stream and what is raised: as in attention.
    """

@overload
def quantise(
    x: Array,
    dtype: Any = "float8_e4m3fn",
    *,
    rows: int = 1,
    scale: AnyArray | None = None,
    mean: AnyArray | None = None,
    powers_of_two: bool = False,
    smooth: bool = False,
    rotate: bool = False,
    backend: Backend = "best",
    threads: int = 0,
    stream: Any = None,
    out: AnyArray | None = None,
) -> tuple[AnyArray, ...]: ...
@overload
def merge(
    o_a: Sequence[Array],
    lse_a: Sequence[AnyArray],
    o_b: None = None,
    lse_b: None = None,
    *,
    layout: Layout = "bshd",
    stream: Any = None,
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> tuple[Array, AnyArray]:
    """Partial results over disjoint sets of keys as one: (O, LSE). Two of them, or 1 to 32 in lists:
    merge([o, ...], [lse, ...]).

    Shapes: each o (b, s_q, h_q, d_v), each lse (b, h_q, s_q) float32. Types: float32, float16 or bfloat16, each o its own.

    An empty part (an LSE of -inf) adds nothing. out and lse may be arrays that are merged. What is made has the type of
    the first part.

    On a GPU it is one kernel, and an LSE of +inf or NaN makes its row NaN; on the host such an LSE is Invalid.
    stream and what is raised: as in attention.
    """

@overload
def merge(
    o_a: Array,
    lse_a: AnyArray,
    o_b: Array,
    lse_b: AnyArray,
    *,
    layout: Layout = "bshd",
    stream: Any = None,
    out: Array | None = None,
    lse: AnyArray | None = None,
) -> tuple[Array, AnyArray]: ...
def validate_lengths(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: AnyArray | None = None,
    cu_seqlens_k: AnyArray | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    used_q: AnyArray | None = None,
    used_k: AnyArray | None = None,
    first_k: AnyArray | None = None,
    cache: bool = False,
    page_table: AnyArray | None = None,
    k_new: AnyArray | None = None,
    v_new: AnyArray | None = None,
    rotary: AnyArray | None = None,
    k_scale: AnyArray | None = None,
    v_scale: AnyArray | None = None,
    page_starts: AnyArray | None = None,
    rotary_pairs: bool = False,
    split_keys: int = 0,
    q_scale: AnyArray | None = None,
    k_scale_rows: int = 0,
    layout: Layout = "bshd",
) -> None:
    """Raises Invalid where lengths are not what they must be. Kernels only clamp them.

    It reads the lengths, also from a GPU's memory, where it waits for the GPU. The arguments are those of attention, or
    with cu_seqlens_q those of varlen.
    """

def plan_cache_info() -> dict[str, int]:
    """How often a plan was found and made (hits, misses), how many are kept (size), and how many at most (limit)."""

def plan_cache_clear() -> None:
    """Frees the plans that are kept, and counts from 0 again."""

def release_workspaces() -> None:
    """Frees the workspace that the CPU's runs of this thread share. The next run allocates again."""

def version() -> str:
    """The version of the library, as "0.1.0"."""

def build_info() -> str:
    """How the library was built and what it found on this machine: compiler, CPU levels, GPUs, kernels."""

_options: tuple[tuple[str, str], ...]
_forwards: tuple[tuple[str, str], ...]
_gradients: tuple[tuple[str, str], ...]
_operands: tuple[tuple[str, str], ...]

def _explain_text(*args: Any, **keywords: Any) -> tuple[str, str]: ...
def _explain_call(*args: Any, **keywords: Any) -> tuple[str, str]: ...
def _number(*args: Any) -> float: ...
def _whole(*args: Any) -> int: ...
def _flag(*args: Any) -> bool: ...
def _no_argument(*args: Any) -> None: ...
def _torch_are_ordinary(*tensors: Any) -> bool: ...
def _torch_attention(*args: Any, **options: Any) -> Any: ...

@disjoint_base
class Plan:
    """A decided way to run one problem."""

    def __init__(
        self,
        q: Any,
        k: Any = None,
        v: Any = None,
        dtype: Any = None,
        *,
        causal: Causal = False,
        window: Window | None = None,
        align: Align | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        alibi: Any = False,
        bias: Any = False,
        mask: Any = False,
        sinks: Any = False,
        dropout: float = 0.0,
        used_q: Any = False,
        used_k: Any = False,
        first_k: Any = False,
        layout: Layout = "bshd",
        backend: Backend = "best",
        threads: int = 0,
        cache: bool = False,
        page_table: Any = False,
        k_new: Any = False,
        v_new: Any = False,
        rotary: Any = False,
        k_scale: Any = False,
        v_scale: Any = False,
        page_starts: Any = False,
        rotary_pairs: bool = False,
        split_keys: int = 0,
        q_scale: Any = False,
        k_scale_rows: int = 0,
        backward: bool = False,
        return_lse: bool = False,
        any_order: bool = False,
        zero_unused: bool = False,
        grad_lse: bool = False,
        grad_bias: bool = False,
        grad_alibi: bool = False,
        grad_sinks: bool = False,
        f32: bool = False,
        accumulate: bool = False,
        frozen: int = 0,
        sequences: int | None = None,
        max_q: int | None = None,
        max_k: int | None = None,
        target: str | None = None,
        sms: int = 0,
        dtype_v: Any = None,
    ) -> None: ...
    def __call__(self, *args: Any, **keywords: Any) -> Any: ...
    def __reduce__(self) -> Any: ...
    def __setstate__(self, state: Any, /) -> None: ...
    def describe(self) -> str: ...
    def _explain_text(self) -> tuple[str, str]: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def backend(self) -> str: ...
