//! What is to be computed, and where.
use std::mem::size_of;

use falchion_sys as sys;

use crate::fields::with_fields;
use crate::Error;

/// The type of a tensor's elements. Attention, linear attention and norms take the first three; Bool is a mask's, and the
/// others are of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DType {
    F32 = sys::FAL_F32,
    F16 = sys::FAL_F16,
    Bf16 = sys::FAL_BF16,
    Bool = sys::FAL_BOOL,
    E4m3 = sys::FAL_E4M3,
    I8 = sys::FAL_I8,
    I32 = sys::FAL_I32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Pass {
    Forward = sys::FAL_FORWARD,
    Backward = sys::FAL_BACKWARD,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The last query stands beside the last key.
    BottomRight,
    /// The first query stands beside the first key.
    TopLeft,
    /// The first query stands beside this key, from -2^30 to 2^30: a chunk of a prompt, or one step of a ring.
    At(i32),
}

/// Query i sees the keys from i - left to i + right, counted after aligning; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Band {
    pub left: Option<u32>,
    pub right: Option<u32>,
    /// A bounded side needs it.
    pub align: Option<Align>,
}

impl Band {
    /// Each query sees all keys: what `default()` is too.
    pub fn full() -> Self {
        Self::default()
    }

    pub fn causal(align: Align) -> Self {
        Self { left: None, right: Some(0), align: Some(align) }
    }

    pub fn window(left: u32, right: u32, align: Align) -> Self {
        Self { left: Some(left), right: Some(right), align: Some(align) }
    }

    fn raw(&self) -> sys::fal_band {
        let bound = |side: Option<u32>| side.map_or(sys::FAL_UNBOUNDED, i64::from);
        let (align, offset) = match self.align {
            None => (sys::FAL_ALIGN_UNSET, 0),
            Some(Align::BottomRight) => (sys::FAL_BOTTOM_RIGHT, 0),
            Some(Align::TopLeft) => (sys::FAL_TOP_LEFT, 0),
            Some(Align::At(key)) => (sys::FAL_AT, key),
        };
        sys::fal_band { left: bound(self.left), right: bound(self.right), align, offset }
    }
}

macro_rules! make_problem {
    (
        numbers { $($(#[$text:meta])* $number:ident,)* }
        lengths { $($length:ident),* }
        tensors { $($tensor:ident),* }
    ) => {
        /// Softmax attention: O = softmax(S) V, where S is scale Q K^T, capped, plus the bias, and band and mask select what
        /// counts.
        #[derive(Clone, Copy, Debug)]
        pub struct Problem {
            pub dtype: DType,
            pub batch: usize,
            pub queries: usize,
            pub keys: usize,
            pub heads_q: usize,
            /// heads_q / heads_k query heads share each head of K and V.
            pub heads_k: usize,
            pub d_qk: usize,
            pub d_v: usize,
            pub band: Band,
            $($(#[$text])* pub $number: Option<f32>,)*
            /// Whether a run gives these. With `packed` there are `batch` sequences one after another in tensors (1, total,
            /// h, d), and queries and keys are the longest lengths.
            pub packed: bool,
            /// K and V are a KV cache: `used_k` says how many keys each sequence has, and `packed` cuts q and o alone. With a
            /// `page_size` they are (pages, page_size, h, d) in the order of `Forward::page_table`; 0: (b, keys, h, d).
            pub cache: bool,
            pub page_size: usize,
            /// The last keys of each sequence are new: a run is `Plan::append`, which writes them into the cache.
            pub append: bool,
            /// So many columns of q and of new keys turn by the place of their row; 0: none. With `rotary_pairs` column 2 i
            /// turns with 2 i + 1, without it column i with i + rotary_dim / 2.
            pub rotary_dim: usize,
            pub rotary_pairs: bool,
            /// Parts of the keys begin at its multiples, so that the bits of a sequence are its own; 0: anywhere.
            pub split_keys: usize,
            $(pub $length: bool,)*
            $(pub $tensor: bool,)*
            pub lse: bool,
        }

        impl Problem {
            /// Self attention of q, k and v of the shape (b, s, h, d), with the full band.
            pub fn new(dtype: DType, [batch, s, heads, d]: [usize; 4]) -> Self {
                Self {
                    dtype,
                    batch,
                    queries: s,
                    keys: s,
                    heads_q: heads,
                    heads_k: heads,
                    d_qk: d,
                    d_v: d,
                    band: Band::full(),
                    $($number: None,)*
                    packed: false,
                    cache: false,
                    page_size: 0,
                    append: false,
                    rotary_dim: 0,
                    rotary_pairs: false,
                    split_keys: 0,
                    $($length: false,)*
                    $($tensor: false,)*
                    lse: false,
                }
            }

            pub(crate) fn raw(&self) -> Result<sys::fal_attention, Error> {
                Ok(sys::fal_attention {
                    size: size_of::<sys::fal_attention>(),
                    dtype: self.dtype as i32,
                    b: self.batch as i64,
                    s_q: self.queries as i64,
                    s_k: self.keys as i64,
                    h_q: self.heads_q as i64,
                    h_k: self.heads_k as i64,
                    d_qk: self.d_qk as i64,
                    d_v: self.d_v as i64,
                    band: self.band.raw(),
                    $($number: nonzero(stringify!($number), self.$number)?,)*
                    packed: self.packed.into(),
                    cache: self.cache.into(),
                    page_size: self.page_size as i64,
                    append: self.append.into(),
                    rotary_dim: self.rotary_dim as i64,
                    rotary_pairs: self.rotary_pairs.into(),
                    split_keys: self.split_keys as i64,
                    $($length: self.$length.into(),)*
                    $($tensor: self.$tensor.into(),)*
                    lse: self.lse.into(),
                    ..sys::fal_attention::zeroed()
                })
            }
        }
    };
}
with_fields!(make_problem);

/// A number for which 0 stands for "not given" in C.
pub(crate) fn nonzero(name: &str, value: Option<f32>) -> Result<f32, Error> {
    match value {
        Some(0.0) => Err(Error::invalid(format!("{name} = Some(0.0): leave it out (None), or give another number"))),
        other => Ok(other.unwrap_or(0.0)),
    }
}

/// Whose kernels. The first two read slices. The others read a device's memory: `Tensor::from_raw`,
/// `Workspace::from_raw`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Backend {
    /// The definition, in double.
    Reference = sys::FAL_REF,
    #[default]
    Cpu = sys::FAL_CPU,
    /// Ampere and newer.
    Sm80 = sys::FAL_SM80,
    /// Hopper.
    Sm90 = sys::FAL_SM90,
    /// The best that there is: a GPU's, where one is.
    Best = sys::FAL_BEST,
}

/// Where a plan runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target {
    pub backend: Backend,
    /// `None` is all that the process may use.
    pub threads: Option<u32>,
    /// The CUDA number of the GPU; `None` is the one that is current when the plan is made.
    pub device: Option<u32>,
}

impl Target {
    pub(crate) fn raw(&self) -> sys::fal_target {
        let number = |x: Option<u32>| x.map_or(0, |x| i32::try_from(x).unwrap_or(i32::MAX));
        sys::fal_target {
            backend: self.backend as i32,
            threads: number(self.threads),
            device: number(self.device),
            use_device: self.device.is_some().into(),
            ..sys::fal_target::sized()
        }
    }
}
