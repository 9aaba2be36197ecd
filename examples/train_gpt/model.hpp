// examples/train_gpt/model.hpp: a GPT that predicts bytes, its loss and the gradients of all its parameters.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "attention.hpp"
#include "layers.hpp"

namespace train_gpt {

struct Sizes {
  std::int64_t layers = 4, width = 256, heads = 4, context = 128, batch = 4;
  falchion::DType dtype = falchion::DType::f32;  // of attention; the gradients of q, k and v are f32 in any case
};

/// One layer: x += attention(norm(x)), then x += MLP(norm(x)). It keeps what its backward pass needs.
class Block {
 public:
  Block(const Sizes& sizes, int number, std::mt19937_64* random)
      : norm_1_(name(number, "norm_1"), 1, sizes.width, 1),
        qkv_(name(number, "qkv"), sizes.width, 3 * sizes.width),
        out_(name(number, "out"), sizes.width, sizes.width),
        norm_2_(name(number, "norm_2"), 1, sizes.width, 1),
        up_(name(number, "up"), sizes.width, 4 * sizes.width),
        down_(name(number, "down"), 4 * sizes.width, sizes.width) {
    // As in GPT-2: what is added to x is smaller the more layers add to it.
    const float last = 0.02F / std::sqrt(2 * static_cast<float>(sizes.layers));
    qkv_.randomise(random, 0.02F);
    out_.randomise(random, last);
    up_.randomise(random, 0.02F);
    down_.randomise(random, last);
  }

  void forward(CausalAttention* attention, Matrix* x) {
    before_attention_ = *x;
    normed_1_ = rms_norm(*x, norm_1_);
    qkv_of_x_ = linear(normed_1_, qkv_);
    attention->forward(qkv_of_x_, &o_, &lse_);
    add(linear(o_, out_), x);
    before_mlp_ = *x;
    normed_2_ = rms_norm(*x, norm_2_);
    hidden_ = linear(normed_2_, up_);
    active_ = squared_relu(hidden_);
    add(linear(active_, down_), x);
  }

  /// The same steps from the last to the first. grad_x comes in as the gradient of forward()'s result and goes out as
  /// that of its argument.
  void backward(CausalAttention* attention, Matrix* grad_x) {
    const Matrix grad_active = linear_backward(active_, *grad_x, &down_);
    const Matrix grad_hidden = squared_relu_backward(hidden_, grad_active);
    const Matrix grad_normed_2 = linear_backward(normed_2_, grad_hidden, &up_);
    add(rms_norm_backward(before_mlp_, grad_normed_2, &norm_2_), grad_x);
    Matrix grad_o = linear_backward(o_, *grad_x, &out_);
    const Matrix grad_qkv = attention->backward(qkv_of_x_, o_, lse_, grad_o);
    const Matrix grad_normed_1 = linear_backward(normed_1_, grad_qkv, &qkv_);
    add(rms_norm_backward(before_attention_, grad_normed_1, &norm_1_), grad_x);
  }

  std::vector<Parameter*> parameters() { return {&norm_1_, &qkv_, &out_, &norm_2_, &up_, &down_}; }

 private:
  static std::string name(int number, const char* what) { return "layer " + std::to_string(number) + " " + what; }

  Parameter norm_1_, qkv_, out_, norm_2_, up_, down_;
  Matrix before_attention_, normed_1_, qkv_of_x_, o_, before_mlp_, normed_2_, hidden_, active_;
  std::vector<float> lse_;
};

/// The bytes that the model reads, and for each of them the byte that follows it.
struct Batch {
  std::vector<std::uint8_t> tokens, targets;
};

class Gpt {
 public:
  static constexpr std::int64_t kBytes = 256;

  Gpt(const Sizes& sizes, std::uint64_t seed, falchion::Target target)
      : attention_(sizes.batch, sizes.context, sizes.heads, sizes.width / sizes.heads, sizes.dtype, target),
        tokens_("tokens", kBytes, sizes.width),
        places_("places", sizes.context, sizes.width),
        norm_("last norm", 1, sizes.width, 1),
        head_("head", sizes.width, kBytes) {
    std::mt19937_64 random(seed);
    tokens_.randomise(&random, 0.02F);
    places_.randomise(&random, 0.02F);
    head_.randomise(&random, 0.02F);
    for (int i = 0; i < sizes.layers; ++i) blocks_.emplace_back(sizes, i, &random);
  }

  /// Returns the loss, the mean over all bytes in nats, and sets the gradients of all parameters.
  double loss_and_gradients(const Batch& batch) {
    for (Parameter* p : parameters()) std::fill(p->grad.data.begin(), p->grad.data.end(), 0.F);
    Matrix x = embed(batch.tokens, tokens_, places_);
    for (Block& block : blocks_) block.forward(&attention_, &x);
    const Matrix normed = rms_norm(x, norm_);
    Matrix logits = linear(normed, head_);
    const double loss = cross_entropy(batch.targets, &logits);
    Matrix grad_x = rms_norm_backward(x, linear_backward(normed, logits, &head_), &norm_);
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) block->backward(&attention_, &grad_x);
    embed_backward(batch.tokens, grad_x, &tokens_, &places_);
    return loss;
  }

  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all = {&tokens_, &places_, &norm_, &head_};
    for (Block& block : blocks_)
      for (Parameter* p : block.parameters()) all.push_back(p);
    return all;
  }
  std::string describe() const { return attention_.describe(); }

 private:
  CausalAttention attention_;  // all layers have the same problem, so they share both plans
  Parameter tokens_, places_, norm_, head_;
  std::deque<Block> blocks_;
};

}  // namespace train_gpt
