#!/usr/bin/env python3
# usage: fields_test.py [libfalchion.so]    Each field of attention's problem is a row of src/base/fields.def, and it is
# wherever a caller meets it and nothing makes it from that row: the C++ and the C struct, Rust's struct, Python's stub and
# the keywords of torch and JAX. Who adds a field is told here what is missing. With the library also: the structs that
# bench/falchion_ctypes.py reads from the headers have the sizes that the library says.
import ctypes
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"dtype", "b", "s_q", "s_k", "h_q", "h_k", "d_qk", "d_v"}  # of the tensors, where there are tensors


def text(path):
    return (ROOT / path).read_text()


def between(path, begin, end):
    found = re.search(begin + r"(.*?)" + end, text(path), re.S)
    return found[1] if found else ""


def rows():
    """[(kind, key, member, pass)] of fields.def"""
    found = []
    for macro, of, arguments in re.findall(r"^FALCHION_((\w*)_?FIELD|LENGTHS)\((.*)\)$", text("src/base/fields.def"), re.M):
        words = [word.strip() for word in arguments.split(",")]
        if macro == "LENGTHS":
            found.append(("lengths", words[0], words[0], ""))
        else:
            found.append((words[0], words[1], words[2], of.strip("_").lower()))
    return found


def members(body):
    """The names that a struct declares, in order. Of C, C++ and Rust."""
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", body, flags=re.S)
    if re.search(r"\w+: \w+,", body):
        return re.findall(r"(\w+): ", body)
    names = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        if "(" not in declaration:
            names += [re.sub(r"[\[={].*", "", part).split()[-1].strip("*") for part in re.sub(r"\{[^}]*\}", "", declaration).split(",")]
    return names


def places():
    """{where: (its names, which fields it must have as {key: names that will do})}"""
    all_rows = rows()
    of_c = {key: {"band"} if kind == "band" else {key} for kind, key, _, _ in all_rows}
    of_python = {key: {key, "window"} for kind, key, _, _ in all_rows if kind == "band"} | {"offset": {"align"}}
    of_cpp = {**of_c, "scale": {"score"}, "softcap": {"score"}}
    options = [key for kind, key, _, of in all_rows if not of and key not in SIZES | {"packed"}]
    words = lambda body: set(re.findall(r"\w+", body))
    c = between("include/falchion/attention.h", r"typedef struct fal_attention {", r"\n} fal_attention;")
    cpp = between("include/falchion/attention.hpp", r"\nstruct Attention {", r"\n  bool operator==")
    rust = between("rust/falchion-sys/src/lib.rs", r"\n    fal_attention \{", r"\n    \}")
    stub = between("python/falchion/_fal.pyi", r"\ndef attention\(", r"\) ->")
    keywords = between("python/falchion/types.py", r"\nclass PackedOptions\(", r"\Z")
    only = lambda chosen, names: {key: names.get(key, of_python.get(key, {key})) for key in chosen}
    return {
        "include/falchion/attention.h": (members(c), of_c),
        "include/falchion/attention.hpp": (members(cpp), of_cpp),
        "rust/falchion-sys/src/lib.rs": (members(rust), of_c),
        "python/falchion/_fal.pyi": (words(stub), only(options, {})),
        "python/falchion/types.py": (words(keywords), only(options, {})),
    }


def faults(where):
    for place, (names, wanted) in where.items():
        missing = [key for key, any_of in wanted.items() if any_of and not any_of & set(names)]
        if missing:
            yield f"{place} has no {', '.join(missing)}, which src/base/fields.def has"
    known = {name for any_of in where["include/falchion/attention.hpp"][1].values() for name in any_of}
    extra = [name for name in where["include/falchion/attention.hpp"][0] if name not in known | {"dtype_k", "dtype_v", "dtype_o"}]
    if extra:
        yield f"src/base/fields.def has no row for {', '.join(extra)} of include/falchion/attention.hpp"
    yield from operand_faults()
    if where["include/falchion/attention.h"][0] != where["rust/falchion-sys/src/lib.rs"][0]:
        yield "rust/falchion-sys/src/lib.rs: the members of fal_attention are not those of the header, in its order"


OTHER_OPERANDS = {"size", "cu_seqlens_q", "cu_seqlens_k", "page_starts", "rng", "origin"}


def operand_faults(planted=""):
    """The operands of a run have rows too; what is made of them does not compile where a struct lacks one."""
    rows = set(re.findall(r"^FALCHION_(?:OPERAND|CACHE_OPERAND|LENGTHS)\((\w+),", text("src/base/fields.def"), re.M)) | OTHER_OPERANDS
    c = members(between("include/falchion/attention.h", r"typedef struct fal_operands {", r"\n} fal_operands;"))
    for name, names in (("attention.h", c), ("attention.hpp", members(between("include/falchion/attention.hpp", r"\nstruct Operands {", r"\n};")))):
        extra = set(names) - rows | {planted} - {""}
        if extra:
            yield f"src/base/fields.def has no row for the operand {', '.join(sorted(extra))} of include/falchion/{name}"
    if c != members(between("rust/falchion-sys/src/lib.rs", r"\n    fal_operands \{", r"\n    \}")):
        yield "rust/falchion-sys/src/lib.rs: the members of fal_operands are not those of the header, in its order"


def stub():
    sys.path.insert(0, str(ROOT / "python"))
    import docstrings
    have = docstrings.STUB.read_text()
    if docstrings.written(have) != have:
        yield "python/falchion/_fal.pyi lacks an option of src/base/fields.def: run python/docstrings.py"


def struct_sizes(library):
    sys.path.insert(0, str(ROOT / "bench"))
    import falchion_ctypes
    lib = falchion_ctypes.Falchion(library).lib
    for name in ("attention", "linear_attention", "gemm", "norm", "quantise"):
        struct = falchion_ctypes.S[f"fal_{name}"]
        said = getattr(lib, f"fal_{name}_init")().size
        if said != ctypes.sizeof(struct):
            yield f"bench/falchion_ctypes.py: fal_{name} has {ctypes.sizeof(struct)} bytes, of the library's {said}"


def main():
    where = places()
    bad = list(faults(where)) + list(stub()) + (list(struct_sizes(sys.argv[1])) if len(sys.argv) > 1 else [])
    for place, (names, wanted) in where.items():  # Each place must notice a field that only fields.def has.
        if not any(fault.startswith(f"{place} has no ") and "planted" in fault for fault in faults({**where, place: (names, {**wanted, "planted": {"planted"}})})):
            bad.append(f"{place} may lack a field")
    if len(list(operand_faults("planted"))) != 2:
        bad.append("an operand may have no row")
    if len(rows()) < 30:
        bad.append(f"src/base/fields.def has {len(rows())} rows")
    print("\n".join(bad) or f"{len(rows())} fields are in {len(where)} places")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
