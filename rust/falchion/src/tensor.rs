//! Views of slices and of device memory as tensors with four axes, and lengths.
use std::ffi::c_void;
use std::marker::PhantomData;

use falchion_sys as sys;

use crate::{DType, Error};

/// The bits of a number of IEEE's 16-bit format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of the bits of an f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of an 8-bit number with a sign, 4 bits of exponent and 3 of mantissa.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct E4m3(pub u8);

mod private {
    pub trait Sealed {}
}

/// What a tensor can be made of: f32, F16 and Bf16, bool for a mask; of a GEMM also i8, E4m3 and i32.
pub trait Element: private::Sealed + Copy {
    #[doc(hidden)]
    const CODE: i32;
}

macro_rules! elements {
    ($($name:ty: $code:expr),* $(,)?) => {$(
        impl private::Sealed for $name {}
        impl Element for $name {
            const CODE: i32 = $code;
        }
    )*};
}
elements! {
    f32: DType::F32 as i32,
    F16: DType::F16 as i32,
    Bf16: DType::Bf16 as i32,
    bool: DType::Bool as i32,
    E4m3: DType::E4m3 as i32,
    i8: DType::I8 as i32,
    i32: DType::I32 as i32,
}

/// A tensor that is read.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub(crate) raw: sys::fal_tensor,
    data: PhantomData<&'a ()>,
}

/// A tensor that is written.
pub struct TensorMut<'a> {
    pub(crate) raw: sys::fal_tensor,
    data: PhantomData<&'a mut ()>,
}

impl<'a> Tensor<'a> {
    /// A slice, whose axes lie one in another without gaps.
    pub fn new<T: Element>(data: &'a [T], shape: [usize; 4]) -> Result<Self, Error> {
        Ok(Self { raw: view(data.as_ptr().cast_mut().cast(), T::CODE, data.len(), shape)?, data: PhantomData })
    }

    /// Memory of a device, or of the host, with any strides, which are counted in elements.
    ///
    /// # Safety
    /// What the shape and the strides reach is there, and nobody writes to it until each run that reads it is done: on a
    /// GPU that is when its stream is.
    pub unsafe fn from_raw(data: *const c_void, dtype: DType, shape: [i64; 4], stride: [i64; 4]) -> Self {
        let raw = sys::fal_tensor { data: data.cast_mut(), dtype: dtype as i32, reserved: 0, shape, stride };
        Self { raw, data: PhantomData }
    }
}

impl<'a> TensorMut<'a> {
    /// A slice, whose axes lie one in another without gaps.
    pub fn new<T: Element>(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, Error> {
        Ok(Self { raw: view(data.as_mut_ptr().cast(), T::CODE, data.len(), shape)?, data: PhantomData })
    }

    /// Memory of a device, or of the host, with any strides, which are counted in elements.
    ///
    /// # Safety
    /// What the shape and the strides reach is there, and nobody else touches it until each run that writes it is done:
    /// on a GPU that is when its stream is.
    pub unsafe fn from_raw(data: *mut c_void, dtype: DType, shape: [i64; 4], stride: [i64; 4]) -> Self {
        let raw = sys::fal_tensor { data, dtype: dtype as i32, reserved: 0, shape, stride };
        Self { raw, data: PhantomData }
    }
}

/// Lengths of sequences: i32, a slice or memory of a device.
#[derive(Clone, Copy)]
pub struct Lengths<'a> {
    at: *const i32,
    count: usize,
    data: PhantomData<&'a ()>,
}

impl<'a> Lengths<'a> {
    pub fn new(data: &'a [i32]) -> Self {
        Self { at: data.as_ptr(), count: data.len(), data: PhantomData }
    }

    /// `count` numbers in a device's memory.
    ///
    /// # Safety
    /// They are there, and nobody writes to them until each run that reads them is done.
    pub unsafe fn from_raw(at: *const i32, count: usize) -> Self {
        Self { at, count, data: PhantomData }
    }
}

/// The address of lengths that have as many numbers as they must; null where they are not given.
pub(crate) fn lengths(name: &str, given: Option<Lengths<'_>>, needed: usize) -> Result<*const i32, Error> {
    match given {
        None => Ok(std::ptr::null()),
        Some(x) if x.count == needed => Ok(x.at),
        Some(x) => Err(Error::invalid(format!("{name} has {} numbers; it must have {needed}", x.count))),
    }
}

/// An optional tensor; one of zeroes is absent.
pub(crate) fn given(tensor: Option<Tensor<'_>>) -> sys::fal_tensor {
    tensor.map_or_else(sys::fal_tensor::zeroed, |tensor| tensor.raw)
}

pub(crate) fn given_mut(tensor: &Option<TensorMut<'_>>) -> sys::fal_tensor {
    tensor.as_ref().map_or_else(sys::fal_tensor::zeroed, |tensor| tensor.raw)
}

fn view(data: *mut c_void, dtype: i32, length: usize, shape: [usize; 4]) -> Result<sys::fal_tensor, Error> {
    let needed = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    if needed != Some(length) {
        return Err(Error::invalid(format!("a slice of {length} elements is no tensor of shape {shape:?}")));
    }
    let [b, s, h, d] = shape.map(|extent| extent as i64);
    // SAFETY: this only fills in a struct.
    Ok(unsafe { sys::fal_tensor_dense(data, dtype, b, s, h, d) })
}
