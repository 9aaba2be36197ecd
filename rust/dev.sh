# rust/dev.sh: the verb of ./dev about the Rust crates. ./dev reads this file.

# Tests the crates with the library of build/cpu. Where ./dev python has installed a wheel, the bindings are also linked
# with the library in there, as pkg-config and as python3 find it.
rust() {  # [cargo test arguments]
  local venv=$PWD/build/python-venv/bin
  command -v cargo >/dev/null || die "cargo is missing: install Rust 1.77 or newer (https://rustup.rs)"
  need $packages_build
  configure_native
  build cpu falchion_shared
  say "Tests of the Rust crates"
  if cargo fmt --version >/dev/null 2>&1; then (cd rust && cargo fmt --check) || die "cargo fmt --manifest-path rust/Cargo.toml repairs it"; fi
  in_rust FALCHION_LIB_DIR="$PWD/build/cpu" cargo test --offline "$@"
  [[ -n $("$venv/python" -m falchion.sdk library 2>/dev/null) ]] || return 0
  say "The library of the wheel, by pkg-config and by Python"
  in_rust PKG_CONFIG_PATH="$("$venv/python" -m falchion.sdk pkgconfig)" cargo test --quiet --offline -p falchion-sys
  in_rust PATH="$venv:$PATH" cargo test --quiet --offline -p falchion-sys
}
in_rust() { (cd rust && env -u FALCHION_LIB_DIR -u PKG_CONFIG_PATH "$@"); }
