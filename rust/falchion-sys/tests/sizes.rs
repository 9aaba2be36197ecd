//! Compares every struct of the bindings with the header, by asking a C compiler for sizes and offsets, and the defaults
//! of the library with the header's.
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use falchion_sys::*;

#[test]
fn structs_are_those_of_the_header() {
    let layouts = [
        fal_tensor::layout(),
        fal_band::layout(),
        fal_rng::layout(),
        fal_origin::layout(),
        fal_attention::layout(),
        fal_operands::layout(),
        fal_linear_attention::layout(),
        fal_linear_operands::layout(),
        fal_gemm::layout(),
        fal_gemm_operands::layout(),
        fal_norm::layout(),
        fal_norm_operands::layout(),
        fal_quantise::layout(),
        fal_quantise_operands::layout(),
        fal_executor::layout(),
        fal_target::layout(),
    ];
    let mut program = "#include <falchion/falchion.h>\n#include <stdio.h>\nint main(void) {\n".to_string();
    let mut ours = String::new();
    for (name, size, fields) in layouts {
        writeln!(program, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
        writeln!(ours, "{name} {size}").unwrap();
        for (field, offset) in fields {
            let in_c = field.trim_end_matches('_'); // `self` is a word of Rust
            writeln!(program, "printf(\"{name}.{in_c} %zu\\n\", offsetof({name}, {in_c}));").unwrap();
            writeln!(ours, "{name}.{in_c} {offset}").unwrap();
        }
    }
    program.push_str("return 0;\n}\n");
    assert_eq!(output_of_c(&program), ours);
}

#[test]
fn constants_are_those_of_the_header() {
    let pairs = [
        ("FAL_DEVICE", i64::from(FAL_DEVICE)),
        ("FAL_BF16", i64::from(FAL_BF16)),
        ("FAL_BOOL", i64::from(FAL_BOOL)),
        ("FAL_I32", i64::from(FAL_I32)),
        ("FAL_SWIGLU", i64::from(FAL_SWIGLU)),
        ("FAL_SCALING_ROW_COL", i64::from(FAL_SCALING_ROW_COL)),
        ("FAL_SCALING_BLOCK128", i64::from(FAL_SCALING_BLOCK128)),
        ("FAL_RMS_NORM", i64::from(FAL_RMS_NORM)),
        ("FAL_SM90", i64::from(FAL_SM90)),
        ("FAL_BACKWARD", i64::from(FAL_BACKWARD)),
        ("FAL_JSON", i64::from(FAL_JSON)),
        ("FAL_TOP_LEFT", i64::from(FAL_TOP_LEFT)),
        ("FAL_AT", i64::from(FAL_AT)),
        ("FAL_ELU_PLUS_ONE", i64::from(FAL_ELU_PLUS_ONE)),
        ("FAL_DECAY_TOKEN", i64::from(FAL_DECAY_TOKEN)),
        ("FAL_GRADS_ACCUMULATE", i64::from(FAL_GRADS_ACCUMULATE)),
        ("FAL_UNBOUNDED", FAL_UNBOUNDED),
    ];
    let mut program = "#include <falchion/falchion.h>\n#include <stdio.h>\nint main(void) {\n".to_string();
    let mut ours = String::new();
    for (name, value) in pairs {
        writeln!(program, "printf(\"{name} %d\\n\", (int)({name}));").unwrap();
        writeln!(ours, "{name} {value}").unwrap();
    }
    program.push_str("return 0;\n}\n");
    assert_eq!(output_of_c(&program), ours);
}

#[test]
fn the_library_has_the_same_structs() {
    // SAFETY: these take nothing, and their sizes are compared with the header's above.
    let (attention, linear) = unsafe { (fal_attention_init(), fal_linear_attention_init()) };
    assert_eq!(attention.size, std::mem::size_of::<fal_attention>());
    assert_eq!(attention.dtype, FAL_BF16);
    assert_eq!(attention.band.left, FAL_UNBOUNDED);
    assert_eq!(linear.size, std::mem::size_of::<fal_linear_attention>());
    assert_eq!(linear.eps, 1e-6);
    // SAFETY: as above.
    let (gemm, norm) = unsafe { (fal_gemm_init(), fal_norm_init()) };
    assert_eq!((gemm.size, gemm.alpha), (std::mem::size_of::<fal_gemm>(), 1.0));
    assert_eq!((norm.size, norm.eps), (std::mem::size_of::<fal_norm>(), 1e-5));
    // SAFETY: as above.
    let quantise = unsafe { fal_quantise_init() };
    assert_eq!((quantise.size, quantise.rows), (std::mem::size_of::<fal_quantise>(), 1));
}

/// What the headers declare and define, by name, is in the bindings.
#[test]
fn nothing_of_the_headers_is_missing() {
    let bindings = include_str!("../src/lib.rs");
    let has = |name: &str| bindings.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
    let mut names = 0;
    for entry in std::fs::read_dir(include().join("falchion")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().map_or(true, |extension| extension != "h") {
            continue;
        }
        let header = std::fs::read_to_string(&path).unwrap();
        let functions =
            header.split("FAL_API ").skip(1).filter_map(|rest| rest.split('(').next()?.split([' ', '*']).next_back());
        let constants = header.split("enum {").skip(1).filter_map(|rest| rest.split('}').next());
        let constants =
            constants.flat_map(|rest| rest.split('=')).filter_map(|rest| rest.trim().split([' ', '\n']).next_back());
        for name in functions.chain(constants).filter(|name| name.to_lowercase().starts_with("fal_")) {
            assert!(has(name), "{name} of {} is missing", path.display());
            names += 1;
        }
    }
    assert!(names > 60, "only {names} names were found in the headers");
}

fn include() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

/// Compiles a C program with the header of this repository, and runs it.
fn output_of_c(program: &str) -> String {
    let include = include();
    let folder = std::env::temp_dir().join(format!("falchion-sys-{}-{}", std::process::id(), program.len()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let built = Command::new(compiler).arg("-I").arg(include).arg(&source).arg("-o").arg(&binary).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(ran.stdout).unwrap()
}
