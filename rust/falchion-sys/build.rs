//! Finds libfalchion: in FALCHION_LIB_DIR, by pkg-config, or in the Python package that `python3` has. Crates that
//! depend on this one find its folder in DEP_FALCHION_LIBDIR, for an rpath.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for name in ["FALCHION_LIB_DIR", "PKG_CONFIG_PATH", "PYTHONPATH", "VIRTUAL_ENV", "PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let library = find().unwrap_or_else(|why| {
        eprintln!("{why}");
        std::process::exit(1)
    });
    let folder = library.parent().expect("a file lies in a folder").display();
    let name = library.file_name().expect("a file has a name").to_string_lossy();
    println!("cargo:rerun-if-changed={}", library.display());
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib:+verbatim={name}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:libdir={folder}");
}

fn find() -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("FALCHION_LIB_DIR") {
        return library_in(Path::new(&folder))
            .ok_or_else(|| format!("FALCHION_LIB_DIR={} has no libfalchion.so", Path::new(&folder).display()));
    }
    let by_pkg_config = output("pkg-config", &["--variable=libdir", "falchion"]);
    let by_python = || output("python3", &["-m", "falchion.sdk", "library"]);
    by_pkg_config
        .and_then(|folder| library_in(Path::new(&folder)))
        .or_else(|| by_python().map(PathBuf::from))
        .ok_or_else(|| {
            "libfalchion.so was not found. Set FALCHION_LIB_DIR to its folder, or PKG_CONFIG_PATH to the folder of \
             falchion.pc, or install the Python package (pip install falchion)."
                .to_string()
        })
}

/// libfalchion.so, or with a version behind it, as the Python package has it.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libfalchion.so")))
        .collect();
    found.sort();
    found.into_iter().next()
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?.trim().to_string();
    (done.status.success() && !text.is_empty()).then_some(text)
}
