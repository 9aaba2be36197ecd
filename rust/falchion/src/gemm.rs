//! A matrix product with what follows it: the problem, the plan, and what it takes.
use std::ops::Deref;

use falchion_sys as sys;

use crate::tensor::given;
use crate::{DType, Error, Handle, Target, Tensor, TensorMut, Workspace};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Activation {
    #[default]
    None = sys::FAL_ACTIVATION_NONE,
    Relu = sys::FAL_RELU,
    GeluTanh = sys::FAL_GELU_TANH,
    GeluErf = sys::FAL_GELU_ERF,
    Silu = sys::FAL_SILU,
    /// b has 2 n rows, the gates first.
    Swiglu = sys::FAL_SWIGLU,
}

/// How many scales 8-bit a and b have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Scaling {
    #[default]
    None = sys::FAL_SCALING_NONE,
    /// One for each tensor.
    Tensor = sys::FAL_SCALING_TENSOR,
    /// One for each row of a and of b.
    RowCol = sys::FAL_SCALING_ROW_COL,
    /// Of e4m3: one for each row of a and 128 of k, and for each block of 128 rows of b and 128 of k.
    Block128 = sys::FAL_SCALING_BLOCK128,
}

/// Z = alpha s_a s_b A B^T + beta C + bias, D = activation(Z) + R.
#[derive(Clone, Copy, Debug)]
pub struct GemmProblem {
    /// The type of a and b.
    pub dtype: DType,
    /// `None`: as d.
    pub dtype_c: Option<DType>,
    /// `None`: as a. Where a has 8 bits it must be named.
    pub dtype_d: Option<DType>,
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f32,
    pub beta: f32,
    pub activation: Activation,
    pub scaling: Scaling,
    /// Whether a run gives these.
    pub bias_n: bool,
    pub bias_m: bool,
    pub residual: bool,
}

impl GemmProblem {
    /// D = A B^T of a (m, k) and b (n, k).
    pub fn new(dtype: DType, [m, n, k]: [usize; 3]) -> Self {
        Self {
            dtype,
            dtype_c: None,
            dtype_d: None,
            batch: 1,
            m,
            n,
            k,
            alpha: 1.0,
            beta: 0.0,
            activation: Activation::None,
            scaling: Scaling::None,
            bias_n: false,
            bias_m: false,
            residual: false,
        }
    }

    fn raw(&self) -> sys::fal_gemm {
        let code = |dtype: Option<DType>| dtype.map_or(sys::FAL_AS_Q, |dtype| dtype as i32);
        sys::fal_gemm {
            dtype: self.dtype as i32,
            dtype_c: code(self.dtype_c),
            dtype_d: code(self.dtype_d),
            batch: self.batch as i64,
            m: self.m as i64,
            n: self.n as i64,
            k: self.k as i64,
            alpha: self.alpha,
            beta: self.beta,
            activation: self.activation as i32,
            bias_n: self.bias_n.into(),
            bias_m: self.bias_m.into(),
            residual: self.residual.into(),
            scaling: self.scaling as u8,
            ..sys::fal_gemm::sized()
        }
    }
}

/// The tensors of a run: a (batch, m, 1, k), b (batch or 1, n, 1, k), c, d and residual (batch, m, 1, n), bias_n (1, 1, 1,
/// rows of b), bias_m (batch or 1, m, 1, 1). The scales are f32: (batch or 1, 1, 1, 1) each, or by rows (batch or 1, m, 1,
/// 1) and (batch or 1, rows of b, 1, 1), or by blocks (batch or 1, m, blocks of k, 1) and (batch or 1, blocks of the rows of
/// b, blocks of k, 1).
pub struct Gemm<'a> {
    pub a: Tensor<'a>,
    pub b: Tensor<'a>,
    pub c: Option<Tensor<'a>>,
    pub d: TensorMut<'a>,
    pub residual: Option<Tensor<'a>>,
    pub bias_n: Option<Tensor<'a>>,
    pub bias_m: Option<Tensor<'a>>,
    pub scale_a: Option<Tensor<'a>>,
    pub scale_b: Option<Tensor<'a>>,
}

impl<'a> Gemm<'a> {
    /// Nothing but a, b and d.
    pub fn new(a: Tensor<'a>, b: Tensor<'a>, d: TensorMut<'a>) -> Self {
        Self { a, b, d, c: None, residual: None, bias_n: None, bias_m: None, scale_a: None, scale_b: None }
    }
}

/// A decided way to compute one matrix product.
#[derive(Debug)]
pub struct GemmPlan {
    handle: Handle,
}

impl Deref for GemmPlan {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl GemmPlan {
    pub fn new(problem: &GemmProblem, target: Target) -> Result<Self, Error> {
        // SAFETY: both structs live during the call, which writes the plan only.
        let make = |made| unsafe { sys::fal_gemm_plan_make(&problem.raw(), &target.raw(), made) };
        Ok(Self { handle: Handle::make(make)? })
    }

    pub fn run(&self, x: Gemm<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_gemm_operands {
            a: x.a.raw,
            b: x.b.raw,
            c: given(x.c),
            d: x.d.raw,
            residual: given(x.residual),
            bias_n: given(x.bias_n),
            bias_m: given(x.bias_m),
            scale_a: given(x.scale_a),
            scale_b: given(x.scale_b),
            ..sys::fal_gemm_operands::sized()
        };
        // SAFETY: as for softmax attention.
        self.handle.run(workspace, |plan, memory, bytes, stream| unsafe {
            sys::fal_gemm_plan_run(plan, &operands, memory, bytes, stream)
        })
    }
}
