// tools/problem/work.hpp: the work of a problem, and its name in a table.
#pragma once

#include <string>

#include "falchion/falchion.hpp"
#include "plan/json.hpp"

namespace falchion::tools {

/// 2 (d_qk + d_v) flop for each score that counts, times b and h_q. Without a band every score counts. In a causal
/// square half of them count, as is usual. Otherwise those inside the band count. Operands, if given, have the packed
/// lengths, and those in use.
double flop_count(const Attention& problem, const Operands* operands = nullptr);

/// The bytes of q, k, v and o, each moved once. No schedule can move fewer. Of a cache its keys in use count.
double byte_count(const Attention& problem, const Operands* operands = nullptr);

/// Whether there are fewer than 16 query rows for each K/V head. Then the run is bound by reading K and V, and it is
/// reported in GB/s.
bool is_decode(const Attention& problem);

std::string size_name(const Attention& problem);     // "b1 h9/3 s509 d64"
std::string feature_name(const Attention& problem);  // "causal bias", "full"
std::string problem_name(const Attention& problem);  // both
/// Its fields as explain() names them (docs/explain.md), and "features".
Json to_json(const Attention& problem);

/// A problem of attention's backward pass.
struct BackwardProblem : Attention {};

/// 2 (3 d_qk + 2 d_v) flop for each score that counts: those of S, of the gradient of P, and of grad_q, grad_k and
/// grad_v. With d_qk = d_v that is 2.5 times forward's. Frozen gradients cost nothing.
double flop_count(const BackwardProblem& problem, const Operands* operands = nullptr);
/// The bytes of q, k, v, o and grad_o, and of the gradients that are wanted, each moved once; and of lse.
double byte_count(const BackwardProblem& problem, const Operands* operands = nullptr);

std::string feature_name(const BackwardProblem& problem);  // "backward", "causal backward any-order"
std::string problem_name(const BackwardProblem& problem);
Json to_json(const BackwardProblem& problem);

/// A problem of linear attention, and which pass of it.
struct LinearProblem : LinearAttention {
  Pass pass = Pass::forward;
};

/// The flop of the chunked algorithm that no kernel can leave out, with E = d_qk, M = d_v and chunks of C tokens. For
/// each token and value head the forward pass takes C (E + M) for the scores up to the diagonal, which are half of each
/// chunk's square, and 4 E M for the state. The backward pass takes C (3 E + 2 M) and 10 E M. The tokens of one chunk
/// need no state: at first it is 0, and the last chunk's contribution is not needed. (plan/work.hpp counts whole
/// squares, and the state for all tokens.)
double flop_count(const LinearProblem& problem, int chunk);
double byte_count(const LinearProblem& problem);  // q, k, v, o, or q, k, v, dO, dQ, dK, dV, and decays, each once

std::string size_name(const LinearProblem& problem);     // "b1 h4/8 s4096 d64": heads of q and k, of v
std::string feature_name(const LinearProblem& problem);  // "linear", "linear backward elu decay head"
std::string problem_name(const LinearProblem& problem);  // both
Json to_json(const LinearProblem& problem);

}  // namespace falchion::tools
