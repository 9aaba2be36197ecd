//! The optional parts of softmax attention, each once: a part costs its line here. problem.rs and plan.rs make of them the
//! fields of `Problem`, `Sequences`, `Forward` and `Backward`, which they hand over under the same names in C.

/// Calls the macro `$make` with these parts.
macro_rules! with_fields {
    ($make:ident) => {
        $make! {
            numbers {
                /// `None` is 1 / sqrt(d_qk). 0 is refused, which the C API takes for that too.
                scale,
                /// `None` is off. 0 is refused for the same reason.
                softcap,
            }
            lengths { used_q, used_k, first_k }
            tensors { bias, mask }
        }
    };
}
pub(crate) use with_fields;
