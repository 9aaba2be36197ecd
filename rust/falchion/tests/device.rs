//! Attention over a GPU's memory, on a stream, with lengths that lie there too, against the same on the CPU. Where there is
//! no GPU, or the library has no kernel for it, the test says so and does nothing.
mod support;

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;

use falchion::*;
use support::{distance, numbers};

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// What the test needs of CUDA's driver, which is looked for when it runs.
struct Driver {
    library: *mut c_void,
}

impl Driver {
    /// The driver with the context of device 0.
    fn start() -> Option<Self> {
        // SAFETY: the types are those of CUDA's driver API, and each call is given what it asks for.
        unsafe {
            let driver = Self { library: dlopen(c"libcuda.so.1".as_ptr(), 2) };
            if driver.library.is_null() {
                return None;
            }
            let init: extern "C" fn(u32) -> c_int = driver.function(c"cuInit");
            let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int = driver.function(c"cuDevicePrimaryCtxRetain");
            let set: extern "C" fn(*mut c_void) -> c_int = driver.function(c"cuCtxSetCurrent");
            let mut context = null_mut();
            (init(0) == 0 && retain(&mut context, 0) == 0 && set(context) == 0).then_some(driver)
        }
    }

    /// # Safety
    /// `F` is the type of a function of that name.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        let found = dlsym(self.library, name.as_ptr());
        assert!(!found.is_null(), "{name:?}");
        std::mem::transmute_copy(&found)
    }

    /// Memory of the device, never freed, with these numbers in it.
    fn upload<T: Copy>(&self, from: &[T]) -> *mut c_void {
        let bytes = std::mem::size_of_val(from);
        let mut at: u64 = 0;
        // SAFETY: as above.
        unsafe {
            let allocate: extern "C" fn(*mut u64, usize) -> c_int = self.function(c"cuMemAlloc_v2");
            let copy: extern "C" fn(u64, *const c_void, usize) -> c_int = self.function(c"cuMemcpyHtoD_v2");
            assert_eq!(allocate(&mut at, bytes.max(64)), 0);
            assert_eq!(copy(at, from.as_ptr().cast(), bytes), 0);
        }
        at as *mut c_void
    }

    fn download(&self, to: &mut [f32], from: *mut c_void) {
        // SAFETY: as above.
        unsafe {
            let copy: extern "C" fn(*mut c_void, u64, usize) -> c_int = self.function(c"cuMemcpyDtoH_v2");
            assert_eq!(copy(to.as_mut_ptr().cast(), from as u64, std::mem::size_of_val(to)), 0);
        }
    }

    fn stream(&self) -> *mut c_void {
        let mut stream = null_mut();
        // SAFETY: as above.
        let create: extern "C" fn(*mut *mut c_void, u32) -> c_int = unsafe { self.function(c"cuStreamCreate") };
        assert_eq!(create(&mut stream, 0), 0);
        stream
    }

    fn wait_for(&self, stream: *mut c_void) {
        // SAFETY: as above.
        let wait: extern "C" fn(*mut c_void) -> c_int = unsafe { self.function(c"cuStreamSynchronize") };
        assert_eq!(wait(stream), 0);
    }
}

const SHAPE: [usize; 4] = [2, 33, 4, 64];
const COUNT: usize = 2 * 33 * 4 * 64;
const USED: [i32; 2] = [33, 7];

fn problem() -> Problem {
    Problem { used_k: true, ..Problem::new(DType::F32, SHAPE) }
}

fn on_the_host(x: &[Vec<f32>]) -> Result<Vec<f32>, Error> {
    let mut o = vec![f32::NAN; COUNT];
    let tensor = |i: usize| Tensor::new(&x[i], SHAPE);
    let sequences = Sequences { used_k: Some(Lengths::new(&USED)), ..Sequences::default() };
    let run = Forward::new(tensor(0)?, tensor(1)?, tensor(2)?, TensorMut::new(&mut o, SHAPE)?);
    let plan = Plan::new(&problem(), Pass::Forward, Target::default())?;
    plan.forward(Forward { sequences, ..run }, &mut Workspace::default())?;
    Ok(o)
}

#[test]
fn memory_of_a_gpu() -> Result<(), Error> {
    let Some(driver) = Driver::start() else {
        println!("skipped: no CUDA device");
        return Ok(());
    };
    let target = Target { backend: Backend::Best, device: Some(0), ..Target::default() };
    let plan = match Plan::new(&problem(), Pass::Forward, target) {
        Ok(plan) if matches!(plan.backend(), Backend::Sm80 | Backend::Sm90) => plan,
        other => {
            println!("skipped: no kernel for this GPU: {other:?}");
            return Ok(());
        }
    };
    println!("{}", plan.describe());
    let x: Vec<_> = (0..3).map(|i| numbers(i, COUNT)).collect();
    let stream = driver.stream();
    let shape = SHAPE.map(|extent| extent as i64);
    let stride = [33 * 4 * 64, 4 * 64, 64, 1];
    let o = driver.upload(&vec![f32::NAN; COUNT]);
    let memory = driver.upload(&vec![0_u8; plan.workspace_bytes()]);
    // SAFETY: the memory is never freed, and nothing else uses it.
    let (run, mut workspace) = unsafe {
        let tensor = |i: usize| Tensor::from_raw(driver.upload(&x[i]), DType::F32, shape, stride);
        let used_k = Some(Lengths::from_raw(driver.upload(&USED).cast(), 2));
        let o = TensorMut::from_raw(o, DType::F32, shape, stride);
        let sequences = Sequences { used_k, ..Sequences::default() };
        let run = Forward { sequences, ..Forward::new(tensor(0), tensor(1), tensor(2), o) };
        (run, Workspace::from_raw(memory, plan.workspace_bytes(), stream))
    };
    plan.forward(run, &mut workspace)?;
    driver.wait_for(stream);
    let mut found = vec![f32::NAN; COUNT];
    driver.download(&mut found, o);
    assert!(distance(&found, &on_the_host(&x)?) < 1e-4);

    let mut o = vec![0.0; COUNT];
    let slices = Forward::new(
        Tensor::new(&x[0], SHAPE)?,
        Tensor::new(&x[1], SHAPE)?,
        Tensor::new(&x[2], SHAPE)?,
        TensorMut::new(&mut o, SHAPE)?,
    );
    let why = plan.forward(slices, &mut Workspace::default()).unwrap_err();
    assert!(why.why.contains("from_raw"), "{why}");
    Ok(())
}
