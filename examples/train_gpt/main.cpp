// examples/train_gpt/main.cpp: trains a small GPT on the bytes of a text, on the CPU. README.md beside this file says
// what it shows.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "adam.hpp"
#include "model.hpp"
#include "text.hpp"

namespace {

using namespace train_gpt;

struct Options {
  Sizes sizes;
  int steps = 300, threads = 0, every = 20;
  float learning_rate = 1e-3F;
  std::uint64_t seed = 1;
  std::string text = TRAIN_GPT_TEXT, backend = "cpu", dtype = "f32", json;
  bool nudge = false;

  explicit Options(CLI::App* app) {
    const auto number = [app](const char* name, auto* value, const char* what, double low, double high) {
      app->add_option(name, *value, what)->capture_default_str()->check(CLI::Range(low, high));
    };
    app->add_option("--text", text, "The file to learn")->capture_default_str();
    number("--steps", &steps, "Steps", 1, 1e6);
    number("--layers", &sizes.layers, "Layers", 1, 100);
    number("--width", &sizes.width, "Channels, a multiple of the heads", 1, 8192);
    number("--heads", &sizes.heads, "Heads", 1, 256);
    number("--context", &sizes.context, "Bytes that the model sees at once", 1, 65536);
    number("--batch", &sizes.batch, "Pieces of text in a step", 1, 4096);
    number("--learning-rate", &learning_rate, "Adam's", 0, 1);
    number("--seed", &seed, "Another one gives other weights and other pieces of text", 0, 1e15);
    number("--threads", &threads, "Of attention; 0: all", 0, 1024);
    number("--every", &every, "A line of the table each so many steps", 1, 1e6);
    app->add_option("--backend", backend, "Attention by the CPU's kernels, or by its definition in double: cpu, ref")
        ->capture_default_str()
        ->check(CLI::IsMember({"cpu", "ref"}));
    app->add_option("--dtype", dtype, "Of attention: f32, bf16")
        ->capture_default_str()
        ->check(CLI::IsMember({"f32", "bf16"}));
    app->add_option("--json", json, "Write the losses to this file");
    app->add_flag("--nudge", nudge, "Begin with one weight one unit in its last place away");
  }
};

/// Trains, prints a table and returns the loss of each step.
nlohmann::json train(const Options& options) {
  const Text text(options.text);
  Sizes sizes = options.sizes;
  if (options.dtype == "bf16") sizes.dtype = falchion::DType::bf16;
  falchion::Target target(options.backend == "ref" ? falchion::Backend::ref : falchion::Backend::cpu);
  target.threads = options.threads;
  Gpt gpt(sizes, options.seed, target);
  std::size_t weights = 0;
  for (const Parameter* p : gpt.parameters()) weights += p->value.data.size();
  if (options.nudge) {
    float& weight = gpt.parameters().back()->value.data.front();  // of the last layer's MLP
    weight = std::nextafter(weight, std::numeric_limits<float>::infinity());
  }
  fmt::print("{} bytes of text, {} weights\n{}\n\n step    loss  tokens/s\n", text.size(), weights, gpt.describe());
  Adam adam(gpt.parameters(), options.learning_rate, 20);
  std::mt19937_64 random(options.seed);
  std::vector<double> losses;
  auto before = std::chrono::steady_clock::now();
  for (int step = 0, since = 0; step < options.steps; ++step) {
    losses.push_back(gpt.loss_and_gradients(text.draw(sizes, &random)));
    adam.step();
    ++since;
    if (step % options.every != 0 && step + 1 != options.steps) continue;
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - before).count();
    fmt::print("{:>5}{:>8.4f}{:>10.0f}\n", step, losses.back(),
               static_cast<double>(since * sizes.batch * sizes.context) / seconds);
    std::fflush(stdout);
    before = now;
    since = 0;
  }
  return {{"plans", gpt.describe()}, {"weights", weights}, {"losses", losses}, {"build_info", falchion::build_info()}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a small GPT on the bytes of a text. Attention, forward and backward, is Falchion's.");
  const Options options(&app);
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.sizes.width % options.sizes.heads != 0)
      throw std::runtime_error(fmt::format("--width is {}; it must be a multiple of --heads, which is {}",
                                           options.sizes.width, options.sizes.heads));
    const nlohmann::json result = train(options);
    if (options.json.empty()) return 0;
    std::ofstream file(options.json);
    if (!(file << result.dump(1) << "\n")) throw std::runtime_error("cannot write " + options.json);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_gpt: {}\n", error.what());
    return 2;
  }
}
