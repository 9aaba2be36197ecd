//! Views of slices as tensors with four axes.
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

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for super::F16 {}
    impl Sealed for super::Bf16 {}
    impl Sealed for bool {}
}

/// What a tensor can be made of: f32, F16 and Bf16, and bool for a mask.
pub trait Element: private::Sealed + Copy {
    #[doc(hidden)]
    const CODE: i32;
}
impl Element for f32 {
    const CODE: i32 = sys::FAL_F32;
}
impl Element for F16 {
    const CODE: i32 = DType::F16 as i32;
}
impl Element for Bf16 {
    const CODE: i32 = DType::Bf16 as i32;
}
impl Element for bool {
    const CODE: i32 = sys::FAL_BOOL;
}

/// A dense tensor that is read.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub(crate) raw: sys::fal_tensor,
    data: PhantomData<&'a ()>,
}

/// A dense tensor that is written.
pub struct TensorMut<'a> {
    pub(crate) raw: sys::fal_tensor,
    data: PhantomData<&'a mut ()>,
}

impl<'a> Tensor<'a> {
    pub fn new<T: Element>(data: &'a [T], shape: [usize; 4]) -> Result<Self, Error> {
        Ok(Self { raw: view(data.as_ptr().cast_mut().cast(), T::CODE, data.len(), shape)?, data: PhantomData })
    }
}

impl<'a> TensorMut<'a> {
    pub fn new<T: Element>(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, Error> {
        Ok(Self { raw: view(data.as_mut_ptr().cast(), T::CODE, data.len(), shape)?, data: PhantomData })
    }
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
