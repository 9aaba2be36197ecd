//! Softmax attention: a plan and what it takes.
use std::ops::Deref;

use falchion_sys as sys;

use crate::error::check;
use crate::tensor::{given, given_mut, lengths};
use crate::{Error, Handle, Lengths, Pass, Problem, Target, Tensor, TensorMut, Workspace};

/// A decided way to compute one problem of softmax attention.
#[derive(Debug)]
pub struct Plan {
    handle: Handle,
    problem: sys::fal_attention,
    pass: Pass,
}

impl Deref for Plan {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

/// The lengths of a run, as far as the problem says that there are some. Packed tensors have cu_seqlens (batch + 1), which
/// start at 0 and end at the total; the others are (batch), and the keys of a sequence are the rows [first_k, used_k).
#[derive(Clone, Copy, Default)]
pub struct Sequences<'a> {
    pub cu_seqlens_q: Option<Lengths<'a>>,
    pub cu_seqlens_k: Option<Lengths<'a>>,
    pub used_q: Option<Lengths<'a>>,
    pub used_k: Option<Lengths<'a>>,
    pub first_k: Option<Lengths<'a>>,
}

/// The tensors of a forward run: q, o (b, s_q, h_q, d), k, v (b, s_k, h_k, d), lse (b, h_q, s_q, 1) in f32, bias and mask
/// (b, h_q, s_q, s_k).
pub struct Forward<'a> {
    pub q: Tensor<'a>,
    pub k: Tensor<'a>,
    pub v: Tensor<'a>,
    pub o: TensorMut<'a>,
    pub lse: Option<TensorMut<'a>>,
    pub bias: Option<Tensor<'a>>,
    pub mask: Option<Tensor<'a>>,
    pub sequences: Sequences<'a>,
}

impl<'a> Forward<'a> {
    /// Nothing but q, k, v and o: `Forward { lse: Some(lse), ..Forward::new(q, k, v, o) }` has an LSE too.
    pub fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>, o: TensorMut<'a>) -> Self {
        Self { q, k, v, o, lse: None, bias: None, mask: None, sequences: Sequences::default() }
    }
}

/// The tensors of a backward run: o and lse are what the forward run wrote, and each gradient has its tensor's shape.
pub struct Backward<'a> {
    pub q: Tensor<'a>,
    pub k: Tensor<'a>,
    pub v: Tensor<'a>,
    pub o: Tensor<'a>,
    pub lse: Tensor<'a>,
    pub bias: Option<Tensor<'a>>,
    pub mask: Option<Tensor<'a>>,
    pub sequences: Sequences<'a>,
    pub grad_o: Tensor<'a>,
    pub grad_q: TensorMut<'a>,
    pub grad_k: TensorMut<'a>,
    pub grad_v: TensorMut<'a>,
}

impl Plan {
    pub fn new(problem: &Problem, pass: Pass, target: Target) -> Result<Self, Error> {
        let problem = problem.raw()?;
        // SAFETY: both structs live during the call, which writes the plan only.
        let make = |made| unsafe { sys::fal_plan_make(&problem, pass as i32, &target.raw(), made) };
        Ok(Self { handle: Handle::make(make)?, problem, pass })
    }

    pub fn forward(&self, x: Forward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_operands {
            q: x.q.raw,
            k: x.k.raw,
            v: x.v.raw,
            o: x.o.raw,
            lse: given_mut(&x.lse),
            bias: given(x.bias),
            mask: given(x.mask),
            ..sys::fal_operands::sized()
        };
        self.run(Pass::Forward, operands, x.sequences, workspace)
    }

    pub fn backward(&self, x: Backward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_operands {
            q: x.q.raw,
            k: x.k.raw,
            v: x.v.raw,
            o: x.o.raw,
            lse: x.lse.raw,
            bias: given(x.bias),
            mask: given(x.mask),
            grad_o: x.grad_o.raw,
            grad_q: x.grad_q.raw,
            grad_k: x.grad_k.raw,
            grad_v: x.grad_v.raw,
            ..sys::fal_operands::sized()
        };
        self.run(Pass::Backward, operands, x.sequences, workspace)
    }

    // The library compares shapes and types with the plan's, so a wrong tensor is refused before it is touched. The pass
    // is compared here, because a forward plan writes o and lse, which `Backward` only borrows to be read; and so is how
    // many lengths there are. What they say is asked where they lie on the host.
    fn run(
        &self,
        pass: Pass,
        operands: sys::fal_operands,
        x: Sequences<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        if pass != self.pass {
            return Err(Error::invalid(format!("a plan of the pass {:?} was run as {pass:?}", self.pass)));
        }
        let b = self.problem.b as usize;
        let operands = sys::fal_operands {
            cu_seqlens_q: lengths("cu_seqlens_q", x.cu_seqlens_q, b + 1)?,
            cu_seqlens_k: lengths("cu_seqlens_k", x.cu_seqlens_k, b + 1)?,
            used_q: lengths("used_q", x.used_q, b)?,
            used_k: lengths("used_k", x.used_k, b)?,
            first_k: lengths("first_k", x.first_k, b)?,
            ..operands
        };
        let p = &self.problem;
        if self.handle.is_on_host() && [p.packed, p.used_q, p.used_k, p.first_k] != [0; 4] {
            // SAFETY: as below.
            check(unsafe { sys::fal_validate_lengths(p, &operands) })?;
        }
        // SAFETY: tensors borrow slices of the lengths that their shapes say, those that are written exclusively, and
        // the workspace has as many bytes as the plan asks for; or their makers promised as much.
        self.handle.run(workspace, |plan, memory, bytes, stream| unsafe {
            sys::fal_plan_run(plan, &operands, memory, bytes, stream)
        })
    }
}
