//! Finds libfalchion: in FALCHION_LIB_DIR, by pkg-config, in the Python package that `python3` has, or in what this
//! checkout has built. Crates that depend on this one find its folder in DEP_FALCHION_LIBDIR, for an rpath.
//!
//! `cargo run` and `cargo test` set the path of the loader to the folders that build scripts name, where these lie in
//! cargo's target folder. So the library is linked there, and a program finds it without LD_LIBRARY_PATH, whichever crates
//! lie between. Only a program that is started without cargo needs an rpath.
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
    let ours = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in [name.to_string(), soname(&library).unwrap_or_default()].iter().filter(|name| !name.is_empty()) {
        link(&library, &ours.join(name));
    }
    for needed in beside_in_a_wheel(&library) {
        link(&needed, &ours.join(needed.file_name().expect("a file has a name")));
    }
    println!("cargo:rerun-if-changed={}", library.display());
    println!("cargo:rustc-link-search=native={}", ours.display());
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib:+verbatim={name}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:libdir={folder}");
}

fn link(file: &Path, at: &Path) {
    let _ = std::fs::remove_file(at);
    if let Err(why) = std::os::unix::fs::symlink(file, at) {
        println!("cargo:warning={} could not be made: {why}", at.display());
    }
}

/// The runtimes that a wheel has for its library, in a folder that the loader finds from the library's own place only.
fn beside_in_a_wheel(library: &Path) -> Vec<PathBuf> {
    let folder = library.ancestors().nth(3).map(|packages| packages.join("falchion.libs"));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    entries.into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// The name by which the loader looks for a library: its longest name in its folder that the file itself contains.
fn soname(library: &Path) -> Option<String> {
    let bytes = std::fs::read(library).ok()?;
    let contains = |name: &str| {
        bytes.windows(name.len() + 1).any(|part| part[..name.len()] == *name.as_bytes() && part[name.len()] == 0)
    };
    let names =
        std::fs::read_dir(library.parent()?).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("libfalchion.so") && contains(name)).max_by_key(String::len)
}

fn find() -> Result<PathBuf, String> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let checkout = manifest.join("../..").canonicalize().unwrap_or(manifest);
    let how = format!(
        "Build it from source: in {}, run `cmake --preset cpu && ninja -C build/cpu falchion_shared`. For another build set \
         FALCHION_LIB_DIR to the folder of libfalchion.so, or PKG_CONFIG_PATH to that of falchion.pc. (A wheel that `./dev \
         wheel` builds has the library too, once it is installed.)",
        checkout.display()
    );
    if let Some(folder) = env::var_os("FALCHION_LIB_DIR") {
        let folder = Path::new(&folder);
        return library_in(folder)
            .ok_or_else(|| format!("FALCHION_LIB_DIR={} has no libfalchion.so. {how}", folder.display()));
    }
    let by_pkg_config = output("pkg-config", &["--variable=libdir", "falchion"]);
    let by_python = || output("python3", &["-m", "falchion.sdk", "library"]);
    let built =
        || ["cpu", "cuda", "release"].iter().find_map(|preset| library_in(&checkout.join("build").join(preset)));
    by_pkg_config
        .and_then(|folder| library_in(Path::new(&folder)))
        .or_else(|| by_python().map(PathBuf::from))
        .or_else(built)
        .ok_or_else(|| format!("libfalchion.so was not found. {how}"))
}

/// libfalchion.so, or with a version behind it, as the Python package has it.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder.canonicalize().ok()?)
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
