//! Exact softmax attention and linear attention, forward and backward, matrix products and norms, by Falchion's kernels.
//!
//! A [`Plan`] is made once for a [`Problem`] and run often, from any thread; so are [`LinearPlan`], [`GemmPlan`] and
//! [`NormPlan`]. Axes are (b, s, h, d).
//!
//! ```
//! use falchion::{Align, Band, DType, Forward, Pass, Plan, Problem, Tensor, TensorMut, Workspace};
//!
//! // One sequence of three tokens, two heads of four numbers; each token sees itself and what is before it.
//! let problem = Problem {
//!     lse: true,
//!     band: Band::causal(Align::BottomRight),
//!     ..Problem::new(DType::F32, [1, 3, 2, 4])
//! };
//! let plan = Plan::new(&problem, Pass::Forward, Default::default())?;
//!
//! let (q, k) = (vec![0.5_f32; 24], vec![0.25_f32; 24]);
//! let v: Vec<f32> = (0..24).map(|i| (i / 8) as f32).collect(); // each token's values are its number
//! let (mut o, mut lse) = (vec![0.0_f32; 24], vec![0.0_f32; 6]);
//! plan.forward(
//!     Forward {
//!         lse: Some(TensorMut::new(&mut lse, [1, 2, 3, 1])?),
//!         ..Forward::new(
//!             Tensor::new(&q, [1, 3, 2, 4])?,
//!             Tensor::new(&k, [1, 3, 2, 4])?,
//!             Tensor::new(&v, [1, 3, 2, 4])?,
//!             TensorMut::new(&mut o, [1, 3, 2, 4])?,
//!         )
//!     },
//!     &mut Workspace::default(),
//! )?;
//! // All keys are alike, so each token gets the mean of the values that it sees: 0, 0.5 and 1.
//! assert_eq!((o[0], o[8], o[16]), (0.0, 0.5, 1.0));
//!
//! // A bad problem is refused with words.
//! let refused = Plan::new(&Problem { heads_k: 3, ..problem }, Pass::Forward, Default::default());
//! assert_eq!(refused.unwrap_err().to_string(), "h_q = 2 is not a multiple of h_k = 3");
//! # Ok::<(), falchion::Error>(())
//! ```
//!
//! # On a GPU
//!
//! A plan of [`Backend::Sm80`], [`Backend::Sm90`] or [`Backend::Best`] reads a device's memory, which you have from a
//! crate for CUDA: [`Tensor::from_raw`], [`TensorMut::from_raw`], [`Lengths::from_raw`]. Its [`Workspace::from_raw`] has
//! the stream. These are unsafe, because a run returns before the GPU is done. Slices are refused, with words.
//!
//! # Where the library is
//!
//! The build script of falchion-sys finds libfalchion.so and says how to build it where there is none. `cargo run` and
//! `cargo test` find it again. For a program that is started without cargo, let its own build.rs set an rpath:
//!
//! ```no_run
//! println!("cargo:rustc-link-arg=-Wl,-rpath,{}", std::env::var("DEP_FALCHION_SAFE_LIBDIR").unwrap());
//! ```
mod error;
mod fields;
mod gemm;
mod handle;
mod linear;
mod norm;
mod plan;
mod problem;
mod tensor;

pub use error::{Error, Kind};
pub use gemm::{Activation, Gemm, GemmPlan, GemmProblem, Scaling};
pub use handle::{Handle, Workspace};
pub use linear::{Decay, FeatureMap, LinearBackward, LinearForward, LinearPlan, LinearProblem};
pub use norm::{Norm, NormBackward, NormKind, NormPlan, NormProblem};
pub use plan::{Append, Backward, Forward, Plan, Sequences};
pub use problem::{Align, Backend, Band, DType, Pass, Problem, Target};
pub use tensor::{Bf16, E4m3, Element, Lengths, Tensor, TensorMut, F16};

/// The version of the library that is linked, such as "0.1.0".
pub fn version() -> String {
    // SAFETY: the text is a constant of the library.
    unsafe { error::text(falchion_sys::fal_version()) }
}
