//! Lets this crate's own tests find the library when they run. A program of yours does the same, or it is started with
//! LD_LIBRARY_PATH.
fn main() {
    if let Some(folder) = std::env::var_os("DEP_FALCHION_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", std::path::Path::new(&folder).display());
    }
}
