//! Layer norm and RMSNorm: the problem, the plan, and what it takes.
use std::ops::Deref;

use falchion_sys as sys;

use crate::tensor::{given, given_mut};
use crate::{DType, Error, Handle, Target, Tensor, TensorMut, Workspace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NormKind {
    Layer = sys::FAL_LAYER_NORM,
    Rms = sys::FAL_RMS_NORM,
}

/// Of rows of d numbers: with v = x + residual, Y = (v - mean) rstd weight + bias, where RMSNorm has no mean.
#[derive(Clone, Copy, Debug)]
pub struct NormProblem {
    pub dtype: DType,
    /// `None`: as x.
    pub dtype_y: Option<DType>,
    /// Of residual and residual_out; `None`: as x.
    pub dtype_residual: Option<DType>,
    pub kind: NormKind,
    pub rows: usize,
    pub d: usize,
    pub eps: f32,
    /// The factor is 1 + weight.
    pub zero_centered: bool,
    /// Whether a run gives these.
    pub weight: bool,
    pub bias: bool,
    pub residual: bool,
    pub residual_out: bool,
    pub mean: bool,
    pub rstd: bool,
    /// Of the backward pass: no grad_x, no grad_weight.
    pub no_grad_x: bool,
    pub no_grad_weight: bool,
}

impl NormProblem {
    /// x and y alone.
    pub fn new(kind: NormKind, dtype: DType, [rows, d]: [usize; 2]) -> Self {
        Self {
            dtype,
            dtype_y: None,
            dtype_residual: None,
            kind,
            rows,
            d,
            eps: 1e-5,
            zero_centered: false,
            weight: false,
            bias: false,
            residual: false,
            residual_out: false,
            mean: false,
            rstd: false,
            no_grad_x: false,
            no_grad_weight: false,
        }
    }

    fn raw(&self) -> sys::fal_norm {
        let code = |dtype: Option<DType>| dtype.map_or(sys::FAL_AS_Q, |dtype| dtype as i32);
        sys::fal_norm {
            dtype: self.dtype as i32,
            dtype_y: code(self.dtype_y),
            dtype_residual: code(self.dtype_residual),
            kind: self.kind as i32,
            rows: self.rows as i64,
            d: self.d as i64,
            eps: self.eps,
            zero_centered: self.zero_centered.into(),
            weight: self.weight.into(),
            bias: self.bias.into(),
            residual: self.residual.into(),
            residual_out: self.residual_out.into(),
            mean: self.mean.into(),
            rstd: self.rstd.into(),
            frozen: u8::from(self.no_grad_x) + 2 * u8::from(self.no_grad_weight),
            ..sys::fal_norm::sized()
        }
    }
}

/// The tensors of a run: x, y, residual and residual_out (b, s, h, d), weight and bias (1, 1, 1, d) or more of them, mean
/// and rstd (b, s, h, 1) in f32.
pub struct Norm<'a> {
    pub x: Tensor<'a>,
    pub y: TensorMut<'a>,
    pub weight: Option<Tensor<'a>>,
    pub bias: Option<Tensor<'a>>,
    pub residual: Option<Tensor<'a>>,
    pub residual_out: Option<TensorMut<'a>>,
    pub mean: Option<TensorMut<'a>>,
    pub rstd: Option<TensorMut<'a>>,
}

impl<'a> Norm<'a> {
    /// Nothing but x and y.
    pub fn new(x: Tensor<'a>, y: TensorMut<'a>) -> Self {
        Self { x, y, weight: None, bias: None, residual: None, residual_out: None, mean: None, rstd: None }
    }
}

/// The tensors of a backward run: x is what was normalised, residual_out where there was a residual, and grad_x is the
/// gradient of both. grad_residual_out is added to it.
pub struct NormBackward<'a> {
    pub grad_y: Tensor<'a>,
    pub x: Tensor<'a>,
    pub weight: Option<Tensor<'a>>,
    pub grad_residual_out: Option<Tensor<'a>>,
    pub grad_x: Option<TensorMut<'a>>,
    pub grad_weight: Option<TensorMut<'a>>,
    pub grad_bias: Option<TensorMut<'a>>,
}

/// A decided way to compute one norm, or its gradients.
#[derive(Debug)]
pub struct NormPlan {
    handle: Handle,
}

impl Deref for NormPlan {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl NormPlan {
    pub fn new(problem: &NormProblem, target: Target) -> Result<Self, Error> {
        // SAFETY: both structs live during the call, which writes the plan only.
        let make = |made| unsafe { sys::fal_norm_plan_make(&problem.raw(), &target.raw(), made) };
        Ok(Self { handle: Handle::make(make)? })
    }

    /// A plan of the gradients: the problem has a weight, a bias and a residual_out where their gradients are to be
    /// computed, or added, and no residual, mean and rstd.
    pub fn backward(problem: &NormProblem, target: Target) -> Result<Self, Error> {
        // SAFETY: both structs live during the call, which writes the plan only.
        let make = |made| unsafe { sys::fal_norm_backward_plan_make(&problem.raw(), &target.raw(), made) };
        Ok(Self { handle: Handle::make(make)? })
    }

    pub fn run_backward(&self, x: NormBackward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_norm_operands {
            x: x.x.raw,
            weight: given(x.weight),
            grad_y: x.grad_y.raw,
            grad_residual_out: given(x.grad_residual_out),
            grad_x: given_mut(&x.grad_x),
            grad_weight: given_mut(&x.grad_weight),
            grad_bias: given_mut(&x.grad_bias),
            ..sys::fal_norm_operands::sized()
        };
        // SAFETY: as for softmax attention.
        self.handle.run(workspace, |plan, memory, bytes, stream| unsafe {
            sys::fal_norm_plan_run(plan, &operands, memory, bytes, stream)
        })
    }

    pub fn run(&self, x: Norm<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_norm_operands {
            x: x.x.raw,
            y: x.y.raw,
            weight: given(x.weight),
            bias: given(x.bias),
            residual: given(x.residual),
            residual_out: given_mut(&x.residual_out),
            mean: given_mut(&x.mean),
            rstd: given_mut(&x.rstd),
            ..sys::fal_norm_operands::sized()
        };
        // SAFETY: as for softmax attention.
        self.handle.run(workspace, |plan, memory, bytes, stream| unsafe {
            sys::fal_norm_plan_run(plan, &operands, memory, bytes, stream)
        })
    }
}
