//! Softmax attention: a plan and what it takes.
use std::ops::Deref;

use falchion_sys as sys;

use crate::error::check;
use crate::fields::with_fields;
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

macro_rules! make_runs {
    (
        numbers { $($(#[$text:meta])* $number:ident,)* }
        lengths { $($length:ident),* }
        tensors { $($tensor:ident),* }
    ) => {
        /// The lengths of a run, as far as the problem says that there are some. Packed tensors have cu_seqlens (batch + 1),
        /// which start at 0 and end at the total; the others are (batch): how many rows of a sequence count, and the first
        /// row of its keys that does. page_starts (batch + 1) cut a table of pages that is one row.
        #[derive(Clone, Copy, Default)]
        pub struct Sequences<'a> {
            pub cu_seqlens_q: Option<Lengths<'a>>,
            pub cu_seqlens_k: Option<Lengths<'a>>,
            pub page_starts: Option<Lengths<'a>>,
            $(pub $length: Option<Lengths<'a>>,)*
        }

        /// The tensors of a forward run: q, o (b, s_q, h_q, d), k, v (b, s_k, h_k, d), lse (b, h_q, s_q, 1) in f32, bias and
        /// mask (b, h_q, s_q, s_k). page_table (b, columns, 1, 1) of i32, or (1, columns, 1, 1) with page_starts, says where
        /// the pages of a cache are: keys of one that is not there are masked.
        pub struct Forward<'a> {
            pub q: Tensor<'a>,
            pub k: Tensor<'a>,
            pub v: Tensor<'a>,
            pub o: TensorMut<'a>,
            pub lse: Option<TensorMut<'a>>,
            pub page_table: Option<Tensor<'a>>,
            /// With `rotary_dim`: (1, positions, 2, rotary_dim / 2) f32, cosines and then sines.
            pub rotary: Option<Tensor<'a>>,
            $(pub $tensor: Option<Tensor<'a>>,)*
            pub sequences: Sequences<'a>,
        }

        impl<'a> Forward<'a> {
            /// Nothing but q, k, v and o: `Forward { lse: Some(lse), ..Forward::new(q, k, v, o) }` has an LSE too.
            pub fn new(q: Tensor<'a>, k: Tensor<'a>, v: Tensor<'a>, o: TensorMut<'a>) -> Self {
                Self { q, k, v, o, lse: None, page_table: None, rotary: None, $($tensor: None,)* sequences: Sequences::default() }
            }

            fn raw(&self) -> sys::fal_operands {
                sys::fal_operands {
                    q: self.q.raw,
                    k: self.k.raw,
                    v: self.v.raw,
                    o: self.o.raw,
                    lse: given_mut(&self.lse),
                    page_table: given(self.page_table),
                    rotary: given(self.rotary),
                    $($tensor: given(self.$tensor),)*
                    ..sys::fal_operands::sized()
                }
            }
        }

        /// The tensors of a run that writes its keys into the cache k, v, as the last ones of each sequence: k_new and v_new
        /// have rows as q has them, and heads as k has. The others are those of `Forward`.
        pub struct Append<'a> {
            pub q: Tensor<'a>,
            pub k: TensorMut<'a>,
            pub v: TensorMut<'a>,
            pub k_new: Tensor<'a>,
            pub v_new: Tensor<'a>,
            pub o: TensorMut<'a>,
            pub lse: Option<TensorMut<'a>>,
            pub page_table: Option<Tensor<'a>>,
            pub rotary: Option<Tensor<'a>>,
            pub sequences: Sequences<'a>,
        }

        impl Append<'_> {
            fn raw(&self) -> sys::fal_operands {
                sys::fal_operands {
                    q: self.q.raw,
                    k: self.k.raw,
                    v: self.v.raw,
                    k_new: self.k_new.raw,
                    v_new: self.v_new.raw,
                    o: self.o.raw,
                    lse: given_mut(&self.lse),
                    page_table: given(self.page_table),
                    rotary: given(self.rotary),
                    ..sys::fal_operands::sized()
                }
            }
        }

        /// The tensors of a backward run: o and lse are what the forward run wrote, and each gradient has its tensor's shape.
        pub struct Backward<'a> {
            pub q: Tensor<'a>,
            pub k: Tensor<'a>,
            pub v: Tensor<'a>,
            pub o: Tensor<'a>,
            pub lse: Tensor<'a>,
            $(pub $tensor: Option<Tensor<'a>>,)*
            pub sequences: Sequences<'a>,
            pub grad_o: Tensor<'a>,
            pub grad_q: TensorMut<'a>,
            pub grad_k: TensorMut<'a>,
            pub grad_v: TensorMut<'a>,
        }

        impl Backward<'_> {
            fn raw(&self) -> sys::fal_operands {
                sys::fal_operands {
                    q: self.q.raw,
                    k: self.k.raw,
                    v: self.v.raw,
                    o: self.o.raw,
                    lse: self.lse.raw,
                    $($tensor: given(self.$tensor),)*
                    grad_o: self.grad_o.raw,
                    grad_q: self.grad_q.raw,
                    grad_k: self.grad_k.raw,
                    grad_v: self.grad_v.raw,
                    ..sys::fal_operands::sized()
                }
            }
        }

        impl Sequences<'_> {
            /// Puts the lengths into the operands of a run of b sequences, each list as long as it must be.
            fn add_to(&self, operands: &mut sys::fal_operands, b: usize) -> Result<(), Error> {
                operands.cu_seqlens_q = lengths("cu_seqlens_q", self.cu_seqlens_q, b + 1)?;
                operands.cu_seqlens_k = lengths("cu_seqlens_k", self.cu_seqlens_k, b + 1)?;
                operands.page_starts = lengths("page_starts", self.page_starts, b + 1)?;
                $(operands.$length = lengths(stringify!($length), self.$length, b)?;)*
                Ok(())
            }
        }

        fn has_lengths(problem: &sys::fal_attention) -> bool {
            [problem.packed, $(problem.$length),*].contains(&1)
        }
    };
}
with_fields!(make_runs);

impl Plan {
    pub fn new(problem: &Problem, pass: Pass, target: Target) -> Result<Self, Error> {
        let problem = problem.raw()?;
        // SAFETY: both structs live during the call, which writes the plan only.
        let make = |made| unsafe { sys::fal_plan_make(&problem, pass as i32, &target.raw(), made) };
        Ok(Self { handle: Handle::make(make)?, problem, pass })
    }

    pub fn forward(&self, x: Forward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        self.run(Pass::Forward, x.raw(), x.sequences, workspace)
    }

    /// A run of a problem with `append`.
    pub fn append(&self, x: Append<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        self.run(Pass::Forward, x.raw(), x.sequences, workspace)
    }

    pub fn backward(&self, x: Backward<'_>, workspace: &mut Workspace) -> Result<(), Error> {
        self.run(Pass::Backward, x.raw(), x.sequences, workspace)
    }

    // The library compares shapes and types with the plan's, so a wrong tensor is refused before it is touched. The pass
    // is compared here, because a forward plan writes o and lse, which `Backward` only borrows to be read; and so is how
    // many lengths there are. What they say is asked where they lie on the host.
    fn run(
        &self,
        pass: Pass,
        mut operands: sys::fal_operands,
        sequences: Sequences<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        if pass != self.pass {
            return Err(Error::invalid(format!("a plan of the pass {:?} was run as {pass:?}", self.pass)));
        }
        sequences.add_to(&mut operands, self.problem.b as usize)?;
        let p = &self.problem;
        if self.handle.is_on_host() && has_lengths(p) {
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
