//! Lets this crate's own tests find the library when they run, and hands its folder on: a crate that depends on this one
//! finds it in DEP_FALCHION_SAFE_LIBDIR, for an rpath (see lib.rs).
fn main() {
    if let Some(folder) = std::env::var_os("DEP_FALCHION_LIBDIR") {
        let folder = std::path::Path::new(&folder).display();
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:libdir={folder}");
    }
}
