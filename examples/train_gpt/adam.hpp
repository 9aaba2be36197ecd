// examples/train_gpt/adam.hpp: Adam (arXiv:1412.6980) with a learning rate that rises linearly over the first steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "layers.hpp"

namespace train_gpt {

class Adam {
 public:
  Adam(std::vector<Parameter*> parameters, float learning_rate, int rising_steps)
      : parameters_(std::move(parameters)), learning_rate_(learning_rate), rising_steps_(rising_steps) {
    for (const Parameter* p : parameters_) {
      mean_.emplace_back(p->value.data.size(), 0.F);
      mean_of_squares_.emplace_back(p->value.data.size(), 0.F);
    }
  }

  void step() {
    constexpr float kKeepMean = 0.9F, kKeepSquares = 0.95F, kEpsilon = 1e-8F;
    ++steps_;
    const float rate = learning_rate_ * std::min(1.F, static_cast<float>(steps_) / static_cast<float>(rising_steps_));
    const float mean_so_far = 1 - std::pow(kKeepMean, static_cast<float>(steps_));
    const float squares_so_far = 1 - std::pow(kKeepSquares, static_cast<float>(steps_));
    for (std::size_t n = 0; n < parameters_.size(); ++n) {
      std::vector<float>&value = parameters_[n]->value.data, &mean = mean_[n], &squares = mean_of_squares_[n];
      const std::vector<float>& grad = parameters_[n]->grad.data;
      for (std::size_t i = 0; i < value.size(); ++i) {
        mean[i] = kKeepMean * mean[i] + (1 - kKeepMean) * grad[i];
        squares[i] = kKeepSquares * squares[i] + (1 - kKeepSquares) * grad[i] * grad[i];
        value[i] -= rate * (mean[i] / mean_so_far) / (std::sqrt(squares[i] / squares_so_far) + kEpsilon);
      }
    }
  }

 private:
  std::vector<Parameter*> parameters_;
  float learning_rate_;
  int rising_steps_, steps_ = 0;
  std::vector<std::vector<float>> mean_, mean_of_squares_;
};

}  // namespace train_gpt
