/* arguments/foreign_names.c: what arguments are called elsewhere. Who comes from another library has the names of its
 * functions in mind, and the TypeError for one of them says what the argument is called here. One table serves all
 * functions: those that have another library's signature too, where a name of ours is the foreign one. */
#include <string.h>

#include "fal.h"

/* `own` and all that stand beside it mean the same, but for what `note` says. */
static const struct {
  const char *own, *foreign, *note;
} synonyms[] = {
    {"q", "query", NULL},
    {"q", "queries", NULL},
    {"q", "Q", NULL},
    {"k", "key", NULL},
    {"k", "keys", NULL},
    {"k", "K", NULL},
    {"v", "value", NULL},
    {"v", "values", NULL},
    {"v", "V", NULL},
    {"scale", "softmax_scale", NULL},
    {"scale", "sm_scale", NULL},
    {"scale", "scaling", NULL},
    {"scale", "attn_scale", NULL},
    {"scale", "attention_scale", NULL},
    {"scale", "qk_scale", NULL},
    {"scale", "scale_factor", NULL},
    {"scale", "scaling_factor", NULL},
    {"causal", "is_causal", "PyTorch's and JAX's are causal=\"top_left\""},
    {"causal", "use_causal_mask", NULL},
    {"causal", "causal_mask", NULL},
    {"window", "window_size", NULL},
    {"window", "local_window_size", NULL},
    {"window", "sliding_window", "a pair (left, right)"},
    {"window", "window_left", "a pair (left, right)"},
    {"softcap", "logits_soft_cap", NULL},
    {"softcap", "logit_soft_cap", NULL},
    {"softcap", "logits_softcap", NULL},
    {"softcap", "logit_cap", NULL},
    {"softcap", "soft_cap", NULL},
    {"softcap", "attn_logits_soft_cap", NULL},
    {"softcap", "attn_logit_softcapping", NULL},
    {"mask", "attn_mask", "of bool; numbers that are added are bias="},
    {"mask", "attention_mask", "of bool; numbers that are added are bias="},
    {"mask", "key_padding_mask", "of bool, (b, 1, 1, s_k), True where a key counts; or used_k="},
    {"bias", "attn_bias", NULL},
    {"bias", "attention_bias", NULL},
    {"bias", "position_bias", NULL},
    {"alibi", "alibi_slopes", NULL},
    {"alibi", "slopes", NULL},
    {"dropout", "dropout_p", NULL},
    {"dropout", "p_dropout", NULL},
    {"dropout", "p", NULL},
    {"dropout", "dropout_rate", NULL},
    {"dropout", "dropout_prob", NULL},
    {"dropout", "attention_dropout", NULL},
    {"dropout", "attn_dropout", NULL},
    {"seed", "dropout_seed", NULL},
    {"seed", "philox_seed", NULL},
    {"seed", "dropout_rng", NULL},
    {"seed", "rng", NULL},
    {"seed", "key_rng", NULL},
    {"offset", "philox_offset", NULL},
    {"used_q", "query_seq_lengths", NULL},
    {"used_q", "seqused_q", NULL},
    {"used_q", "q_seq_lengths", NULL},
    {"used_q", "actual_seq_lengths", NULL},
    {"used_q", "seqlens_q", NULL},
    {"used_k", "key_value_seq_lengths", NULL},
    {"used_k", "kv_seq_lengths", NULL},
    {"used_k", "seqused_k", NULL},
    {"used_k", "cache_seqlens", NULL},
    {"used_k", "actual_seq_lengths_kv", NULL},
    {"used_k", "seqlens_k", NULL},
    {"used_k", "seq_lens", NULL},
    {"used_k", "kv_lens", NULL},
    {"first_k", "cache_leftpad", NULL},
    {"first_k", "leftpad_k", NULL},
    {"first_k", "left_padding", NULL},
    {"q_scale", "q_descale", "one for each query and head, where FlashAttention-3 has one for each K/V head"},
    {"k_scale", "k_descale", "with an axis of keys, which may be 1"},
    {"v_scale", "v_descale", "with an axis of keys, which may be 1"},
    {"q_scale", "descale_q", NULL},
    {"k_scale", "descale_k", NULL},
    {"v_scale", "descale_v", NULL},
    {"page_table", "block_table", NULL},
    {"page_table", "block_tables", NULL},
    {"page_table", "kv_indices", "with page_starts"},
    {"page_starts", "kv_indptr", NULL},
    {"cu_seqlens_q", "cu_seqlens", NULL},
    {"cu_seqlens_q", "cu_seq_lens_q", NULL},
    {"cu_seqlens_q", "cu_seq_q", NULL},
    {"cu_seqlens_q", "qo_indptr", NULL},
    {"cu_seqlens_q", "q_start_loc", NULL},
    {"cu_seqlens_q", "query_start_loc", NULL},
    {"cu_seqlens_k", "cu_seqlens_kv", NULL},
    {"cu_seqlens_k", "cu_seq_lens_k", NULL},
    {"cu_seqlens_k", "cu_seq_k", NULL},
    {"cu_seqlens_k", "kv_indptr", NULL},
    {"max_q", "max_seqlen_q", NULL},
    {"max_q", "max_length_q", NULL},
    {"max_q", "max_seqlen", NULL},
    {"max_k", "max_seqlen_k", NULL},
    {"max_k", "max_seqlen_kv", NULL},
    {"max_k", "max_length_k", NULL},
    {"max_s", "max_seqlen", NULL},
    {"return_lse", "return_softmax_lse", NULL},
    {"return_lse", "return_attn_probs", "it gives (O, LSE)"},
    {"return_lse", "return_residual", NULL},
    {"lse", "softmax_lse", NULL},
    {"lse", "logsumexp", NULL},
    {"out", "output", NULL},
    {"grad_o", "dout", NULL},
    {"grad_o", "do", NULL},
    {"grad_o", "grad_out", NULL},
    {"grad_o", "grad_output", NULL},
    {"layout", "tensor_layout", NULL},
    {"layout", "qkv_format", NULL},
    {"layout", "input_layout", NULL},
    {"layout", "data_format", NULL},
    {"layout", "head_first", "layout=\"bhsd\" has the heads first"},
    {"backend", "implementation", NULL},
    {"threads", "num_threads", NULL},
    {"threads", "n_threads", NULL},
    {"a", "A", NULL},
    {"a", "input", NULL},
    {"b", "B", "(n, k), as torch's linear has its weight"},
    {"b", "weight", NULL},
    {"b", "mat2", "(n, k): give the transpose of a matrix (k, n)"},
    {"c", "C", NULL},
    {"out_dtype", "output_dtype", NULL},
    {"out_dtype", "preferred_element_type", NULL},
    {"out_dtype", "dtype", NULL},
    {"scale_a", "a_scale", NULL},
    {"scale_b", "b_scale", NULL},
    {"scale_a", "scales_a", NULL},
    {"scale_b", "scales_b", NULL},
    {"activation", "epilogue", NULL},
    {"activation", "act", NULL},
    {"x", "input", NULL},
    {"x", "hidden_states", NULL},
    {"eps", "epsilon", NULL},
    {"eps", "variance_epsilon", NULL},
    {"eps", "rms_norm_eps", NULL},
    {"eps", "layer_norm_eps", NULL},
    {"weight", "gamma", NULL},
    {"weight", "scale", NULL},
    {"bias", "beta", NULL},
    {"decay", "g", NULL},
    {"decay", "log_decay", NULL},
    {"decay", "gk", NULL},
    {"initial_state", "h0", NULL},
    {"return_state", "output_final_state", NULL},
    {"normalise", "normalize", NULL},
    {"feature_map", "feature_fn", NULL},
};

/* Arguments of others that stand for nothing here. */
static const struct {
  const char *foreign, *why;
} needless[] = {
    {"enable_gqa", "q may have a multiple of the heads of k as it is"},
    {"deterministic", "gradients have the same bits in each run, unless any_order=True"},
    {"num_splits", "the plan decides it"},
    {"pack_gqa", "the plan decides it"},
    {"normalized_shape", "the last axis is normalised"},
    {"transpose_b", "b is (n, k); give b.T of a matrix (k, n)"},
    {"trans_b", "b is (n, k); give b.T of a matrix (k, n)"},
    {"need_weights", "probabilities are not returned"},
    {"precision", "sums are float32"},
};

static const char* among(const char* name, PyObject* parameters) {
  const Py_ssize_t count = PySequence_Size(parameters);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* known = PySequence_GetItem(parameters, i);
    const int is = known != NULL && PyUnicode_Check(known) && PyUnicode_CompareWithASCIIString(known, name) == 0;
    Py_XDECREF(known);
    if (is) return name;
  }
  PyErr_Clear();
  return NULL;
}

/* One of the names that mean what `own` means and that the function has, or null. */
static const char* here(const char* own, PyObject* parameters) {
  const size_t count = sizeof synonyms / sizeof synonyms[0];
  if (among(own, parameters) != NULL) return own;
  for (size_t i = 0; i < count; ++i)
    if (strcmp(synonyms[i].own, own) == 0 && among(synonyms[i].foreign, parameters) != NULL) return synonyms[i].foreign;
  return NULL;
}

void raise_no_argument(const char* function, PyObject* name, PyObject* parameters) {
  for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; ++i) {
    const int is_own = PyUnicode_CompareWithASCIIString(name, synonyms[i].own) == 0;
    const char* found = NULL;
    const char* note;
    if (is_own || PyUnicode_CompareWithASCIIString(name, synonyms[i].foreign) == 0)
      found = here(synonyms[i].own, parameters);
    if (found == NULL) continue;
    note = !is_own && strcmp(found, synonyms[i].own) == 0 ? synonyms[i].note : NULL;
    PyErr_Format(PyExc_TypeError, "%s() has no argument '%U': here it is %s=%s%s%s", function, name, found,
                 note != NULL ? " (" : "", note != NULL ? note : "", note != NULL ? ")" : "");
    return;
  }
  for (size_t i = 0; i < sizeof needless / sizeof needless[0]; ++i)
    if (PyUnicode_CompareWithASCIIString(name, needless[i].foreign) == 0) {
      PyErr_Format(PyExc_TypeError, "%s() has no argument '%U', and needs none: %s", function, name, needless[i].why);
      return;
    }
  PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'", function, name);
}

/* _no_argument(function's name, name, its parameters): raises for a function that is written in Python. */
PyObject* no_argument(PyObject* module, PyObject* args) {
  const char* function;
  PyObject *name, *parameters;
  (void)module;
  if (PyArg_ParseTuple(args, "sUO", &function, &name, &parameters)) raise_no_argument(function, name, parameters);
  return NULL;
}
