// tools/main_demo.cpp: the command as `./dev demo` builds it: with the subcommands whose sources the demo needs anyway.
#include "command/start.hpp"

namespace falchion::tools {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"demo", "A real model's attention here: how fast, how exact, and a picture", add_demo},
    {"explain", "A problem in, the plan's whole story out; needs no GPU to plan for one", add_explain},
    {"info", "This machine and this build: CPU levels, GPUs, kernels, versions", add_info},
    {"map", "An SVG picture of one head: which token looks at which", add_map},
};

}  // namespace
}  // namespace falchion::tools

int main(int argc, char** argv) { return falchion::tools::start(falchion::tools::kSubcommands, argc, argv); }
