//! The C API of Falchion (include/falchion/falchion.h) as it is: the same names, in the same order. The header says what
//! each of them means, and tests/sizes.rs compares every struct and field with a C compiler's.
//!
//! A struct with a `size` is ready for use when it is zeroed and `size` is set (`sized`).
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_void};

pub type fal_status = u32;
pub const FAL_OK: fal_status = 0;
pub const FAL_INVALID: fal_status = 1;
pub const FAL_UNSUPPORTED: fal_status = 2;
pub const FAL_WORKSPACE: fal_status = 3;
pub const FAL_DEVICE: fal_status = 4;

pub const FAL_AS_Q: i32 = 0;
pub const FAL_F32: i32 = 1;
pub const FAL_F16: i32 = 2;
pub const FAL_BF16: i32 = 3;
pub const FAL_BOOL: i32 = 4;
pub const FAL_E4M3: i32 = 5;
pub const FAL_E5M2: i32 = 6;
pub const FAL_I8: i32 = 7;
pub const FAL_I32: i32 = 8;

pub const FAL_BEST: i32 = 0;
pub const FAL_REF: i32 = 1;
pub const FAL_CPU: i32 = 2;
pub const FAL_SM80: i32 = 3;
pub const FAL_SM90: i32 = 4;

pub const FAL_FORWARD: i32 = 0;
pub const FAL_BACKWARD: i32 = 1;
pub const FAL_TEXT: i32 = 0;
pub const FAL_JSON: i32 = 1;
pub const FAL_ALIGN_UNSET: i32 = 0;
pub const FAL_BOTTOM_RIGHT: i32 = 1;
pub const FAL_TOP_LEFT: i32 = 2;
pub const FAL_AT: i32 = 3;
pub const FAL_IDENTITY: i32 = 0;
pub const FAL_ELU_PLUS_ONE: i32 = 1;
pub const FAL_DECAY_NONE: i32 = 0;
pub const FAL_DECAY_HEAD: i32 = 1;
pub const FAL_DECAY_TOKEN: i32 = 2;
pub const FAL_GRADS_ROUNDED: u8 = 0;
pub const FAL_GRADS_F32: u8 = 1;
pub const FAL_GRADS_ACCUMULATE: u8 = 2;
pub const FAL_UNBOUNDED: i64 = -1;
pub const FAL_ACTIVATION_NONE: i32 = 0;
pub const FAL_RELU: i32 = 1;
pub const FAL_GELU_TANH: i32 = 2;
pub const FAL_GELU_ERF: i32 = 3;
pub const FAL_SILU: i32 = 4;
pub const FAL_SWIGLU: i32 = 5;
pub const FAL_SCALING_NONE: u8 = 0;
pub const FAL_SCALING_TENSOR: u8 = 1;
pub const FAL_SCALING_ROW_COL: u8 = 2;
pub const FAL_SCALING_BLOCK128: u8 = 3;
pub const FAL_LAYER_NORM: i32 = 0;
pub const FAL_RMS_NORM: i32 = 1;

macro_rules! structs {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $(pub $field: $type),* }

        impl $name {
            /// All zero: what "absent" and "default" are for every field.
            pub fn zeroed() -> Self {
                // SAFETY: each field is a number, a pointer, an optional function or a struct of those.
                unsafe { std::mem::zeroed() }
            }

            /// The name, the size and the offsets of the fields, for the comparison with C.
            pub fn layout() -> (&'static str, usize, Vec<(&'static str, usize)>) {
                (stringify!($name), std::mem::size_of::<$name>(),
                 vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*])
            }
        }
    )*};
}

structs! {
    fal_tensor { data: *mut c_void, dtype: i32, reserved: i32, shape: [i64; 4], stride: [i64; 4] }
    fal_band { left: i64, right: i64, align: i32, offset: i32 }
    fal_rng { seed: u64, offset: u64, at: *const u64, reserved: u64 }
    fal_origin { b: i64, h: i64, i: i64, j: i64, h_q: i64 }
    fal_attention {
        size: usize, dtype: i32, dtype_k: i32, dtype_v: i32, dtype_o: i32,
        b: i64, s_q: i64, s_k: i64, h_q: i64, h_k: i64, d_qk: i64, d_v: i64,
        band: fal_band, scale: f32, softcap: f32, dropout: f32, reserved: u32,
        packed: u8, used_q: u8, used_k: u8, first_k: u8, alibi: u8, bias: u8, mask: u8, lse: u8, row_max: u8,
        probabilities: u8, any_order: u8, grads: u8, zero_unused: u8, grad_lse: u8, grad_bias: u8, grad_alibi: u8,
        frozen: u8,
        cache: u8, append: u8, rotary_pairs: u8, sinks: u8, grad_sinks: u8, k_scale: u8, v_scale: u8,
        page_size: i64, rotary_dim: i64, split_keys: i64, k_scale_rows: i64, q_scale: u8, reserved_bytes: [u8; 7],
    }
    fal_operands {
        size: usize, q: fal_tensor, k: fal_tensor, v: fal_tensor, o: fal_tensor,
        lse: fal_tensor, row_max: fal_tensor, probabilities: fal_tensor,
        bias: fal_tensor, mask: fal_tensor, alibi: fal_tensor,
        cu_seqlens_q: *const i32, cu_seqlens_k: *const i32, used_q: *const i32, used_k: *const i32,
        first_k: *const i32, rng: fal_rng,
        grad_o: fal_tensor, grad_lse: fal_tensor, grad_q: fal_tensor, grad_k: fal_tensor, grad_v: fal_tensor,
        grad_bias: fal_tensor, grad_alibi: fal_tensor, origin: fal_origin,
        page_table: fal_tensor, page_starts: *const i32,
        k_new: fal_tensor, v_new: fal_tensor, rotary: fal_tensor, sinks: fal_tensor, grad_sinks: fal_tensor,
        k_scale: fal_tensor, v_scale: fal_tensor, q_scale: fal_tensor,
    }
    fal_linear_attention {
        size: usize, dtype: i32, dtype_k: i32, dtype_v: i32, dtype_o: i32,
        b: i64, s: i64, h_qk: i64, h_v: i64, d_qk: i64, d_v: i64,
        scale: f32, eps: f32, feature_map: i32, decay: i32,
        normalise: u8, reverse: u8, packed: u8, initial_state: u8, final_state: u8, reserved: [u8; 11],
    }
    fal_linear_operands {
        size: usize, q: fal_tensor, k: fal_tensor, v: fal_tensor, o: fal_tensor, decay: fal_tensor,
        initial_state: fal_tensor, final_state: fal_tensor, initial_z: fal_tensor, final_z: fal_tensor,
        cu_seqlens: *const i32,
        grad_o: fal_tensor, grad_final_state: fal_tensor, grad_final_z: fal_tensor,
        grad_q: fal_tensor, grad_k: fal_tensor, grad_v: fal_tensor, grad_decay: fal_tensor,
        grad_initial_state: fal_tensor, grad_initial_z: fal_tensor,
    }
    fal_gemm {
        size: usize, dtype: i32, dtype_b: i32, dtype_c: i32, dtype_d: i32,
        batch: i64, m: i64, n: i64, k: i64, alpha: f32, beta: f32, activation: i32,
        bias_n: u8, bias_m: u8, residual: u8, scaling: u8, reserved: [u8; 24],
    }
    fal_gemm_operands {
        size: usize, a: fal_tensor, b: fal_tensor, c: fal_tensor, d: fal_tensor, residual: fal_tensor,
        bias_n: fal_tensor, bias_m: fal_tensor, scale_a: fal_tensor, scale_b: fal_tensor,
    }
    fal_norm {
        size: usize, dtype: i32, dtype_y: i32, dtype_residual: i32, kind: i32, rows: i64, d: i64, eps: f32,
        zero_centered: u8, weight: u8, bias: u8, residual: u8, residual_out: u8, mean: u8, rstd: u8,
        frozen: u8, reserved: [u8; 20],
    }
    fal_norm_operands {
        size: usize, x: fal_tensor, residual: fal_tensor, weight: fal_tensor, bias: fal_tensor, y: fal_tensor,
        residual_out: fal_tensor, mean: fal_tensor, rstd: fal_tensor, grad_y: fal_tensor,
        grad_residual_out: fal_tensor, grad_x: fal_tensor, grad_weight: fal_tensor, grad_bias: fal_tensor,
    }
    fal_quantise {
        size: usize, dtype: i32, dtype_y: i32, b: i64, s: i64, h: i64, d: i64, rows: i64,
        scale_given: u8, powers_of_two: u8, smooth: u8, mean_given: u8, rotate: u8, reserved: [u8; 27],
    }
    fal_quantise_operands { size: usize, x: fal_tensor, mean: fal_tensor, scale: fal_tensor, y: fal_tensor }
    fal_executor { size: usize, parallel_for: Option<fal_parallel_for>, self_: *mut c_void, threads: i32, reserved: i32 }
    fal_target {
        size: usize, backend: i32, threads: i32, sm: i32, segments: i32,
        cpu_level: *const c_char, executor: *const fal_executor, device: i32,
        use_device: u8, trust_pointers: u8, sms: u16, reserved: [u8; 8],
    }
}

/// Calls task(context, i) once for each i in [0, n), and returns when all are done.
pub type fal_parallel_for = unsafe extern "C" fn(
    self_: *mut c_void,
    n: c_int,
    task: Option<unsafe extern "C" fn(context: *mut c_void, i: c_int)>,
    context: *mut c_void,
);

/// A zeroed struct whose `size` is set.
macro_rules! sized {
    ($($name:ident)*) => {$(
        impl $name {
            pub fn sized() -> Self {
                Self { size: std::mem::size_of::<Self>(), ..Self::zeroed() }
            }
        }
    )*};
}
sized! {
    fal_attention fal_operands fal_linear_attention fal_linear_operands fal_gemm fal_gemm_operands fal_norm
    fal_norm_operands fal_quantise fal_quantise_operands fal_executor fal_target
}

#[repr(C)]
pub struct fal_plan {
    _private: [u8; 0],
}

extern "C" {
    pub fn fal_attention_init() -> fal_attention;
    pub fn fal_tensor_dense(data: *mut c_void, dtype: i32, b: i64, s: i64, h: i64, d: i64) -> fal_tensor;
    pub fn fal_tensor_heads_first(data: *mut c_void, dtype: i32, b: i64, s: i64, h: i64, d: i64) -> fal_tensor;
    pub fn fal_plan_make(
        problem: *const fal_attention,
        pass: i32,
        target: *const fal_target,
        out: *mut *mut fal_plan,
    ) -> fal_status;
    pub fn fal_plan_free(plan: *mut fal_plan);
    pub fn fal_plan_workspace(plan: *const fal_plan) -> usize;
    pub fn fal_plan_backend(plan: *const fal_plan) -> i32;
    pub fn fal_plan_describe(plan: *const fal_plan) -> *const c_char;
    pub fn fal_plan_explain(plan: *const fal_plan, format: i32) -> *const c_char;
    pub fn fal_plan_run(
        plan: *const fal_plan,
        operands: *const fal_operands,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_explain(
        problem: *const fal_attention,
        pass: i32,
        target: *const fal_target,
        format: i32,
    ) -> *const c_char;
    pub fn fal_attention_run(
        operands: *const fal_operands,
        options: *const fal_attention,
        target: *const fal_target,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_linear_attention_init() -> fal_linear_attention;
    pub fn fal_linear_plan_make(
        problem: *const fal_linear_attention,
        pass: i32,
        target: *const fal_target,
        out: *mut *mut fal_plan,
    ) -> fal_status;
    pub fn fal_linear_plan_run(
        plan: *const fal_plan,
        operands: *const fal_linear_operands,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_linear_explain(
        problem: *const fal_linear_attention,
        pass: i32,
        target: *const fal_target,
        format: i32,
    ) -> *const c_char;
    pub fn fal_linear_attention_run(
        operands: *const fal_linear_operands,
        options: *const fal_linear_attention,
        target: *const fal_target,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_linear_validate_lengths(
        problem: *const fal_linear_attention,
        operands: *const fal_linear_operands,
    ) -> fal_status;
    pub fn fal_gemm_init() -> fal_gemm;
    pub fn fal_gemm_plan_make(
        problem: *const fal_gemm,
        target: *const fal_target,
        out: *mut *mut fal_plan,
    ) -> fal_status;
    pub fn fal_gemm_plan_run(
        plan: *const fal_plan,
        operands: *const fal_gemm_operands,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_gemm_explain(problem: *const fal_gemm, target: *const fal_target, format: i32) -> *const c_char;
    pub fn fal_gemm_run(
        operands: *const fal_gemm_operands,
        options: *const fal_gemm,
        target: *const fal_target,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_norm_init() -> fal_norm;
    pub fn fal_norm_plan_make(
        problem: *const fal_norm,
        target: *const fal_target,
        out: *mut *mut fal_plan,
    ) -> fal_status;
    pub fn fal_norm_backward_plan_make(
        problem: *const fal_norm,
        target: *const fal_target,
        out: *mut *mut fal_plan,
    ) -> fal_status;
    pub fn fal_norm_plan_run(
        plan: *const fal_plan,
        operands: *const fal_norm_operands,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_norm_explain(problem: *const fal_norm, target: *const fal_target, format: i32) -> *const c_char;
    pub fn fal_norm_backward_explain(problem: *const fal_norm, target: *const fal_target, format: i32)
        -> *const c_char;
    pub fn fal_norm_run(
        operands: *const fal_norm_operands,
        options: *const fal_norm,
        target: *const fal_target,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_quantise_init() -> fal_quantise;
    pub fn fal_quantise_plan_make(
        problem: *const fal_quantise,
        target: *const fal_target,
        out: *mut *mut fal_plan,
    ) -> fal_status;
    pub fn fal_quantise_plan_run(
        plan: *const fal_plan,
        operands: *const fal_quantise_operands,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_quantise_explain(problem: *const fal_quantise, target: *const fal_target, format: i32) -> *const c_char;
    pub fn fal_quantise_run(
        operands: *const fal_quantise_operands,
        options: *const fal_quantise,
        target: *const fal_target,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_release_workspaces();
    pub fn fal_merge_parts(
        o_parts: *const fal_tensor,
        lse_parts: *const fal_tensor,
        parts: usize,
        o: *const fal_tensor,
        lse: *const fal_tensor,
        stream: *mut c_void,
    ) -> fal_status;
    pub fn fal_merge(
        o_a: *const fal_tensor,
        lse_a: *const fal_tensor,
        o_b: *const fal_tensor,
        lse_b: *const fal_tensor,
        o: *const fal_tensor,
        lse: *const fal_tensor,
    ) -> fal_status;
    pub fn fal_validate_lengths(problem: *const fal_attention, operands: *const fal_operands) -> fal_status;
    pub fn fal_why() -> *const c_char;
    pub fn fal_version() -> *const c_char;
    pub fn fal_build_info() -> *const c_char;
}
