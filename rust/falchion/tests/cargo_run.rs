//! A program of somebody else, which depends on the crate by its path: cargo run, and what it built without cargo, both
//! find the library with no LD_LIBRARY_PATH.
use std::path::{Path, PathBuf};
use std::process::Command;

const MAIN: &str = "fn main() { println!(\"falchion {}\", falchion::version()); }";
const RPATH: &str =
    "fn main() { println!(\"cargo:rustc-link-arg=-Wl,-rpath,{}\", std::env::var(\"DEP_FALCHION_SAFE_LIBDIR\").unwrap()); }";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let crate_folder = env!("CARGO_MANIFEST_DIR");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\n\
         falchion = {{ path = {crate_folder:?} }}\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.join("src/main.rs"), MAIN).unwrap();
    folder
}

fn output(command: &mut Command) -> String {
    let done = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}\n{out}{error}");
    out.into_owned()
}

fn cargo(verb: &str, folder: &Path) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let target = folder.join("target");
    let mut command = Command::new(cargo);
    command.args([verb, "--quiet", "--offline"]).current_dir(folder).env("CARGO_TARGET_DIR", target);
    command
}

#[test]
fn cargo_run_finds_the_library() {
    let folder = folder("somebody");
    assert_eq!(output(&mut cargo("run", &folder)), format!("falchion {}\n", falchion::version()));
}

#[test]
fn a_build_script_of_one_line_sets_an_rpath() {
    let folder = folder("somebody_with_rpath");
    std::fs::write(folder.join("build.rs"), RPATH).unwrap();
    output(&mut cargo("build", &folder));
    let program = folder.join("target/debug/somebody_with_rpath");
    assert_eq!(output(&mut Command::new(program)), format!("falchion {}\n", falchion::version()));
}

#[test]
fn where_there_is_no_library_it_is_said_how_to_build_it() {
    let folder = folder("somebody_without_it");
    let done = cargo("build", &folder).env("FALCHION_LIB_DIR", folder.join("src")).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success());
    assert!(error.contains("has no libfalchion.so. Build it from source: in /"), "{error}");
    assert!(error.contains("ninja -C build/cpu falchion_shared") && !error.contains("pip install"), "{error}");
}
