//! What can go wrong: the library's status, and its words.
use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

use falchion_sys as sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bad argument.
    Invalid,
    /// No kernel does it.
    Unsupported,
    /// The workspace is too small.
    Workspace,
    /// The device or its driver failed, or there is no memory.
    Device,
}

/// A failure, in words that name the argument, its value and the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub why: String,
}

impl Error {
    pub(crate) fn invalid(why: String) -> Self {
        Self { kind: Kind::Invalid, why }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.why)
    }
}

impl std::error::Error for Error {}

/// The result of a call of the library, with this thread's last failure in words.
pub(crate) fn check(status: sys::fal_status) -> Result<(), Error> {
    let kind = match status {
        sys::FAL_OK => return Ok(()),
        sys::FAL_INVALID => Kind::Invalid,
        sys::FAL_UNSUPPORTED => Kind::Unsupported,
        sys::FAL_WORKSPACE => Kind::Workspace,
        _ => Kind::Device,
    };
    // SAFETY: the text lives until this thread's next call, and it is copied here.
    Err(Error { kind, why: unsafe { text(sys::fal_why()) } })
}

/// A copy of a text of the library; null, where it could not be made, is empty.
///
/// # Safety
/// `at` is null or a text that lives during this call.
pub(crate) unsafe fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    CStr::from_ptr(at).to_string_lossy().into_owned()
}
