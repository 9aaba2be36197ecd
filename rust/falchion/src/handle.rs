//! What plans of every operation share, and the memory that they work in.
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};

use falchion_sys as sys;

use crate::error::{check, text};
use crate::{Backend, Error, Kind};

/// A decided way to compute one problem. Making one takes tens of microseconds; running it allocates nothing.
#[derive(Debug)]
pub struct Handle {
    raw: NonNull<sys::fal_plan>,
}

// SAFETY: a plan is not changed after it was made, and the library promises runs from any thread. Its texts are made
// under a lock.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `raw` came from a function that makes plans, and is freed once.
        unsafe { sys::fal_plan_free(self.raw.as_ptr()) }
    }
}

impl Handle {
    /// `make` is one of the functions that make plans, which writes the plan to where it is told.
    pub(crate) fn make(make: impl FnOnce(*mut *mut sys::fal_plan) -> sys::fal_status) -> Result<Self, Error> {
        let mut made = null_mut();
        check(make(&mut made))?;
        Ok(Self { raw: NonNull::new(made).expect("a plan that was made is not null") })
    }

    pub fn workspace_bytes(&self) -> usize {
        // SAFETY: the plan lives.
        unsafe { sys::fal_plan_workspace(self.raw.as_ptr()) }
    }

    /// Whose kernels were taken.
    pub fn backend(&self) -> Backend {
        // SAFETY: the plan lives.
        match unsafe { sys::fal_plan_backend(self.raw.as_ptr()) } {
            sys::FAL_REF => Backend::Reference,
            sys::FAL_CPU => Backend::Cpu,
            sys::FAL_SM80 => Backend::Sm80,
            _ => Backend::Sm90,
        }
    }

    /// Whether it reads the host's memory, so that a run is done when it returns.
    pub(crate) fn is_on_host(&self) -> bool {
        matches!(self.backend(), Backend::Reference | Backend::Cpu)
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

    /// `run` is a function that runs plans, and gets the plan, memory, how many bytes that is, and the stream.
    pub(crate) fn run(
        &self,
        workspace: &mut Workspace,
        run: impl FnOnce(*const sys::fal_plan, *mut c_void, usize, *mut c_void) -> sys::fal_status,
    ) -> Result<(), Error> {
        let on_host = matches!(workspace.memory, Memory::Host(_));
        if on_host != self.is_on_host() {
            let (plan, needed) =
                (self.backend(), if on_host { "from_raw, with a device's memory" } else { "default()" });
            let why = format!("a plan of the backend {plan:?} needs a Workspace of {needed}");
            return Err(Error { kind: Kind::Invalid, why });
        }
        let (memory, bytes) = match &mut workspace.memory {
            Memory::Raw(memory, bytes) => (*memory, *bytes),
            Memory::Host(lines) => {
                let bytes = self.workspace_bytes();
                if lines.len() * 64 < bytes {
                    lines.resize(bytes.div_ceil(64), Line([0; 64]));
                }
                (lines.as_mut_ptr().cast(), lines.len() * 64)
            }
        };
        check(run(self.raw.as_ptr(), memory, bytes, workspace.stream))
    }
}

/// The memory that runs work in. Of the host it grows to what a plan needs, and is kept: `Workspace::default()`. Two runs
/// at the same time need two.
#[derive(Debug)]
pub struct Workspace {
    memory: Memory,
    stream: *mut c_void,
}

#[derive(Debug)]
enum Memory {
    Host(Vec<Line>),
    Raw(*mut c_void, usize),
}

// SAFETY: memory of a device, and a stream, may be used from any thread.
unsafe impl Send for Workspace {}

/// What the library wants its workspace aligned to.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Default for Workspace {
    fn default() -> Self {
        Self { memory: Memory::Host(Vec::new()), stream: null_mut() }
    }
}

impl Workspace {
    /// Memory of a device (`workspace_bytes` of the plan say how much; null where that is 0), and the CUDA stream on which
    /// runs are put (null: the default one).
    ///
    /// # Safety
    /// The memory is there, aligned to 64 bytes, and is used for nothing else until the stream is done with each run that
    /// got this workspace. Until then, what those runs read and write is kept too, though the calls have returned.
    pub unsafe fn from_raw(data: *mut c_void, bytes: usize, stream: *mut c_void) -> Self {
        Self { memory: Memory::Raw(data, bytes), stream }
    }
}
