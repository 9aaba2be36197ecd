// tools/main.cpp: the command `falchion`, with all its subcommands.
#include "command/start.hpp"

namespace falchion::tools {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"demo", "A real model's attention here: how fast, how exact, and a picture", add_demo},
    {"run", "Attention, a GEMM or a norm on tensors from .npy or .safetensors files", add_run},
    {"verify", "Check every backend here against the definition in double", add_verify},
    {"bench", "Measure speed beside this machine's own limits, measured in the same run", add_bench},
    {"ladder", "From the naive kernel to the library's own, step by step: each timed, checked, explained", add_ladder},
    {"explain", "A problem in, the plan's whole story out; needs no GPU to plan for one", add_explain},
    {"info", "This machine and this build: CPU levels, GPUs, kernels, versions", add_info},
    {"map", "An SVG picture of one head: which token looks at which", add_map},
    {"layout", "CuTe layouts: what they mean, who holds what, which banks conflict; text and pictures", add_layout},
    {"roofline", "What limits attention: memory or arithmetic, from counted work and a device's rates", add_roofline},
};

}  // namespace
}  // namespace falchion::tools

int main(int argc, char** argv) { return falchion::tools::start(falchion::tools::kSubcommands, argc, argv); }
