//! Causal linear attention, a recurrence over tokens: the problem, the plan, and what it takes.
use std::mem::size_of;
use std::ops::Deref;

use falchion_sys as sys;

use crate::error::check;
use crate::problem::nonzero;
use crate::tensor::{given, given_mut, lengths};
use crate::{DType, Error, Handle, Lengths, Pass, Target, Tensor, TensorMut, Workspace};

/// What q and k go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum FeatureMap {
    #[default]
    Identity = sys::FAL_IDENTITY,
    EluPlusOne = sys::FAL_ELU_PLUS_ONE,
}

/// By what the state fades: nothing, a number for each head, or one for each head and token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Decay {
    #[default]
    None = sys::FAL_DECAY_NONE,
    Head = sys::FAL_DECAY_HEAD,
    Token = sys::FAL_DECAY_TOKEN,
}

/// With S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T each token gets o_j = scale phi(q_j)^T S_j.
#[derive(Clone, Copy, Debug)]
pub struct LinearProblem {
    pub dtype: DType,
    pub batch: usize,
    pub tokens: usize,
    pub heads_qk: usize,
    /// heads_v / heads_qk value heads share each head of q and k.
    pub heads_v: usize,
    pub d_qk: usize,
    pub d_v: usize,
    /// `None` is 1 / sqrt(d_qk). 0 is refused, which the C API takes for that too.
    pub scale: Option<f32>,
    pub feature_map: FeatureMap,
    pub decay: Decay,
    /// o_j is divided by scale phi(q_j) z_j + eps, where z is the same sum without v.
    pub normalise: bool,
    pub eps: f32,
    /// From the last token to the first.
    pub reverse: bool,
    /// `batch` sequences lie one after another in tensors (1, total, h, d), and `tokens` is the longest length.
    pub packed: bool,
    /// Whether a run gives these.
    pub initial_state: bool,
    pub final_state: bool,
}

impl LinearProblem {
    /// Tensors of the shape (b, s, h, d), with no decay and nothing else.
    pub fn new(dtype: DType, [batch, tokens, heads, d]: [usize; 4]) -> Self {
        Self {
            dtype,
            batch,
            tokens,
            heads_qk: heads,
            heads_v: heads,
            d_qk: d,
            d_v: d,
            scale: None,
            feature_map: FeatureMap::Identity,
            decay: Decay::None,
            normalise: false,
            eps: 1e-6,
            reverse: false,
            packed: false,
            initial_state: false,
            final_state: false,
        }
    }

    fn raw(&self) -> Result<sys::fal_linear_attention, Error> {
        Ok(sys::fal_linear_attention {
            size: size_of::<sys::fal_linear_attention>(),
            dtype: self.dtype as i32,
            b: self.batch as i64,
            s: self.tokens as i64,
            h_qk: self.heads_qk as i64,
            h_v: self.heads_v as i64,
            d_qk: self.d_qk as i64,
            d_v: self.d_v as i64,
            scale: nonzero("scale", self.scale)?,
            eps: self.eps,
            feature_map: self.feature_map as i32,
            decay: self.decay as i32,
            normalise: self.normalise.into(),
            reverse: self.reverse.into(),
            packed: self.packed.into(),
            initial_state: self.initial_state.into(),
            final_state: self.final_state.into(),
            ..sys::fal_linear_attention::zeroed()
        })
    }
}

/// The tensors of a forward run: q, k (b, s, h_qk, d_qk), v, o (b, s, h_v, d_v); in f32 decay (b, s, h_v, 1) or of heads
/// alone (1, 1, h_v, 1), states (b, h_v, d_qk, d_v) and z (b, h_v, d_qk, 1).
pub struct LinearForward<'a> {
    pub q: Tensor<'a>,
    pub k: Tensor<'a>,
    pub v: Tensor<'a>,
    pub o: TensorMut<'a>,
    pub decay: Option<Tensor<'a>>,
    pub initial_state: Option<Tensor<'a>>,
    pub initial_z: Option<Tensor<'a>>,
    pub final_state: Option<TensorMut<'a>>,
    pub final_z: Option<TensorMut<'a>>,
    pub cu_seqlens: Option<Lengths<'a>>,
}

impl<'a> LinearForward<'a> {
    /// Nothing but q, k, v and o.
    pub fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>, o: TensorMut<'a>) -> Self {
        Self {
            q,
            k,
            v,
            o,
            decay: None,
            initial_state: None,
            initial_z: None,
            final_state: None,
            final_z: None,
            cu_seqlens: None,
        }
    }
}

/// The tensors of a backward run. Each gradient has its tensor's shape.
pub struct LinearBackward<'a> {
    pub q: Tensor<'a>,
    pub k: Tensor<'a>,
    pub v: Tensor<'a>,
    pub o: Tensor<'a>,
    pub decay: Option<Tensor<'a>>,
    pub initial_state: Option<Tensor<'a>>,
    pub initial_z: Option<Tensor<'a>>,
    pub cu_seqlens: Option<Lengths<'a>>,
    pub grad_o: Tensor<'a>,
    pub grad_final_state: Option<Tensor<'a>>,
    pub grad_final_z: Option<Tensor<'a>>,
    pub grad_q: TensorMut<'a>,
    pub grad_k: TensorMut<'a>,
    pub grad_v: TensorMut<'a>,
    pub grad_decay: Option<TensorMut<'a>>,
    pub grad_initial_state: Option<TensorMut<'a>>,
    pub grad_initial_z: Option<TensorMut<'a>>,
}

/// A decided way to compute one problem of linear attention.
#[derive(Debug)]
pub struct LinearPlan {
    handle: Handle,
    problem: sys::fal_linear_attention,
    pass: Pass,
}

impl Deref for LinearPlan {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl LinearPlan {
    pub fn new(problem: &LinearProblem, pass: Pass, target: Target) -> Result<Self, Error> {
        let problem = problem.raw()?;
        // SAFETY: both structs live during the call, which writes the plan only.
        let make = |made| unsafe { sys::fal_linear_plan_make(&problem, pass as i32, &target.raw(), made) };
        Ok(Self { handle: Handle::make(make)?, problem, pass })
    }

    pub fn forward(&self, x: LinearForward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_linear_operands {
            q: x.q.raw,
            k: x.k.raw,
            v: x.v.raw,
            o: x.o.raw,
            decay: given(x.decay),
            initial_state: given(x.initial_state),
            initial_z: given(x.initial_z),
            final_state: given_mut(&x.final_state),
            final_z: given_mut(&x.final_z),
            ..sys::fal_linear_operands::sized()
        };
        self.run(Pass::Forward, operands, x.cu_seqlens, workspace)
    }

    pub fn backward(&self, x: LinearBackward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_linear_operands {
            q: x.q.raw,
            k: x.k.raw,
            v: x.v.raw,
            o: x.o.raw,
            decay: given(x.decay),
            initial_state: given(x.initial_state),
            initial_z: given(x.initial_z),
            grad_o: x.grad_o.raw,
            grad_final_state: given(x.grad_final_state),
            grad_final_z: given(x.grad_final_z),
            grad_q: x.grad_q.raw,
            grad_k: x.grad_k.raw,
            grad_v: x.grad_v.raw,
            grad_decay: given_mut(&x.grad_decay),
            grad_initial_state: given_mut(&x.grad_initial_state),
            grad_initial_z: given_mut(&x.grad_initial_z),
            ..sys::fal_linear_operands::sized()
        };
        self.run(Pass::Backward, operands, x.cu_seqlens, workspace)
    }

    fn run(
        &self,
        pass: Pass,
        operands: sys::fal_linear_operands,
        cu_seqlens: Option<Lengths<'_>>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        if pass != self.pass {
            return Err(Error::invalid(format!("a plan of the pass {:?} was run as {pass:?}", self.pass)));
        }
        let cu_seqlens = lengths("cu_seqlens", cu_seqlens, self.problem.b as usize + 1)?;
        let operands = sys::fal_linear_operands { cu_seqlens, ..operands };
        if self.handle.is_on_host() && self.problem.packed != 0 {
            // SAFETY: as below.
            check(unsafe { sys::fal_linear_validate_lengths(&self.problem, &operands) })?;
        }
        // SAFETY: as for softmax attention.
        self.handle.run(workspace, |plan, memory, bytes, stream| unsafe {
            sys::fal_linear_plan_run(plan, &operands, memory, bytes, stream)
        })
    }
}
