//! A plan, what it takes, and the memory that it works in.
use std::ptr::{null_mut, NonNull};

use falchion_sys as sys;

use crate::error::{check, text};
use crate::{Error, Pass, Problem, Target, Tensor, TensorMut};

/// A decided way to compute one problem. Making one takes tens of microseconds; running it allocates nothing.
#[derive(Debug)]
pub struct Plan {
    raw: NonNull<sys::fal_plan>,
    pass: Pass,
}

// SAFETY: a plan is not changed after it was made, and the library promises runs from any thread. Its texts are made
// under a lock.
unsafe impl Send for Plan {}
unsafe impl Sync for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: `raw` came from fal_plan_make and is freed once.
        unsafe { sys::fal_plan_free(self.raw.as_ptr()) }
    }
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
    pub grad_o: Tensor<'a>,
    pub grad_q: TensorMut<'a>,
    pub grad_k: TensorMut<'a>,
    pub grad_v: TensorMut<'a>,
}

/// The memory that runs work in: it grows to what a plan needs, and is kept. Two runs at the same time need two.
#[derive(Debug, Default)]
pub struct Workspace {
    lines: Vec<Line>,
}

/// What the library wants its workspace aligned to.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Plan {
    pub fn new(problem: &Problem, pass: Pass, target: Target) -> Result<Self, Error> {
        let mut made = null_mut();
        // SAFETY: both structs live during the call, which writes `made` only.
        check(unsafe { sys::fal_plan_make(&problem.raw()?, pass as i32, &target.raw(), &mut made) })?;
        Ok(Self { raw: NonNull::new(made).expect("a plan that was made is not null"), pass })
    }

    pub fn workspace_bytes(&self) -> usize {
        // SAFETY: the plan lives.
        unsafe { sys::fal_plan_workspace(self.raw.as_ptr()) }
    }

    /// The decision in one line.
    pub fn describe(&self) -> String {
        // SAFETY: the plan lives, and its text lives as long.
        unsafe { text(sys::fal_plan_describe(self.raw.as_ptr())) }
    }

    /// The whole story, in many lines.
    pub fn explain(&self) -> String {
        // SAFETY: the plan lives, and its text lives as long.
        unsafe { text(sys::fal_plan_explain(self.raw.as_ptr(), sys::FAL_TEXT)) }
    }

    pub fn forward(&self, x: Forward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        let operands = sys::fal_operands {
            q: x.q.raw,
            k: x.k.raw,
            v: x.v.raw,
            o: x.o.raw,
            lse: x.lse.as_ref().map_or_else(sys::fal_tensor::zeroed, |lse| lse.raw),
            bias: given(x.bias),
            mask: given(x.mask),
            ..sys::fal_operands::sized()
        };
        self.run(Pass::Forward, &operands, workspace)
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
        self.run(Pass::Backward, &operands, workspace)
    }

    // The library compares shapes and types with the plan's, so a wrong tensor is refused before it is touched. The pass
    // is compared here, because a forward plan writes o and lse, which `Backward` only borrows to be read.
    fn run(&self, pass: Pass, operands: &sys::fal_operands, workspace: &mut Workspace) -> Result<(), Error> {
        if pass != self.pass {
            return Err(Error::invalid(format!("a plan of the pass {:?} was run as {pass:?}", self.pass)));
        }
        let bytes = self.workspace_bytes();
        if workspace.lines.len() * 64 < bytes {
            workspace.lines.resize(bytes.div_ceil(64), Line([0; 64]));
        }
        let memory = workspace.lines.as_mut_ptr().cast();
        // SAFETY: tensors borrow slices of the lengths that their shapes say, those that are written exclusively, and
        // the workspace has as many bytes as the plan asks for.
        check(unsafe { sys::fal_plan_run(self.raw.as_ptr(), operands, memory, workspace.lines.len() * 64, null_mut()) })
    }
}

fn given(tensor: Option<Tensor<'_>>) -> sys::fal_tensor {
    tensor.map_or_else(sys::fal_tensor::zeroed, |tensor| tensor.raw)
}
