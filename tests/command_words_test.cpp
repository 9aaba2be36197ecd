// tests/command_words_test.cpp: how the values of options may be spelled, what is proposed for a word that nothing
// spells, and how a shell completes lists.
#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

TEST_F(CommandLines, ValuesMayBeSpelledAsElsewhere) {
  const struct {
    const char *arguments, *as;
  } table[] = {
      {"explain --s-q 4 --s-k 8 --causal bottom_right", "explain --s-q 4 --s-k 8 --causal bottom-right"},
      {"explain --s-q 4 --s-k 8 --causal top_left", "explain --s-q 4 --s-k 8 --causal top-left"},
      {"explain --s-q 4 --s-k 8 --window 1,0 --align top_left",
       "explain --s-q 4 --s-k 8 --window 1,0 --align top-left"},
      {"explain --s 8 --dtype float32,bfloat16,float16", "explain --s 8 --dtype f32,bf16,f16"},
      {"explain --s 8 --dtype fp32,BF16,half", "explain --s 8 --dtype f32,bf16,f16"},
      {"explain --op gemm --dtype int8,float8_e4m3fn", "explain --op gemm --dtype i8,e4m3"},
      {"explain --op gemm --activation gelu-tanh --scaling row-col --dtype fp8",
       "explain --op gemm --activation gelu_tanh --scaling row_col --dtype e4m3"},
      {"explain --op attention_backward --s 8", "explain --op attention-backward --s 8"},
      {"explain --s 8 --target sm_90", "explain --s 8 --target sm90"},
      {"explain --s 8 --target h100", "explain --s 8 --target sm90"},
      {"explain --s 8 --target H200", "explain --s 8 --target sm90"},
      {"explain --s 8 --target a100", "explain --s 8 --target sm80"},
      {"roofline --dtype e4m3 --device h200", "roofline --dtype fp8 --device h200"},
      {"roofline --dtype float16", "roofline --dtype f16"},
      {"layout tile_to_shape 4:1 8", "layout tile-to-shape 4:1 8"},
  };
  for (const auto& [arguments, as] : table) {
    const CommandResult one = run(arguments), other = run(as);
    EXPECT_EQ(one.code, 0) << arguments << "\n" << one.error;
    EXPECT_EQ(one.out, other.out) << arguments;
  }
  const char* runs[] = {
      "run --no-limit "
      "--q q.npy --k k.npy --v v.npy --dtype float32 --as bfloat16 --causal bottom_right",
      "verify --types float32 --match empty --backend ref --op attention_backward",
      "verify --problem 'op=attention_backward dtype=float16 s_q=2 s_k=3 d_qk=8 d_v=8 align=bottom-right right=0'",
      "bench --op attention_backward --s 8 --dtype float32 --runs 1 --backend ref"};
  for (const char* arguments : runs) EXPECT_EQ(run(arguments).code, 0) << arguments << "\n" << run(arguments).error;
}

TEST_F(CommandLines, ANearWordIsProposed) {
  const Refusal table[] = {
      {"verfy", R"(there is no subcommand "verfy".*did you mean verify\?)"},
      {"explian", R"(did you mean explain\?)"},
      {"explain --causl", R"(--causl.*did you mean --causal\?)"},
      {"explain --soft-cap 3", R"(did you mean --softcap\?)"},
      {"bench --drop_out=0.1 --s 8", R"(did you mean --dropout\?)"},
      {"run --grad-0 q.npy", R"(did you mean --grad-o\?)"},
      {"explain --op atention", R"("atention" is not one of attention, .*did you mean attention\?)"},
      {"bench --op attention,lienar", R"(--op: "lienar" is not one of.*did you mean linear\?)"},
      {"explain --s 8 --target h1000", R"(did you mean h100\?)"},
      {"explain --s 8 --causal botom-right", R"(--causal: "botom-right".*did you mean bottom-right\?)"},
      {"explain --dtype bfloat15", R"("bfloat15" is not one of f32, f16, bf16)"},
      {"explain --s 8 --level avx512x", R"(level "avx512x" does not exist.*did you mean avx512\?)"},
      {"layout complment 4:1 8", R"(did you mean complement\?)"},
      {"ladder attention --cpu --step naieve --s 8", R"(there is no step "naieve" here)"},
      {"verify --problem 'op=attention lenghts_q=1'", R"(there is no key "lenghts_q"; did you mean lengths_q\?)"},
      {"verify --problem 'op=norm kind=rsm'", R"("rsm" is not one of layer, rms; did you mean rms\?)"},
      {"completion bsh", R"(did you mean bash\?)"},
  };
  expect_refusals(table);
  for (const char* far : {"frobnicate", "explain --frobnicate", "explain --op softmax", "info --s 8"})
    EXPECT_EQ(run(far).error.find("did you mean"), std::string::npos) << far << ": " << run(far).error;
}

TEST_F(CommandLines, AShellCompletesLists) {
  std::ofstream(folder_ / "completion") << run("completion bash").out << R"(
complete_words() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); COMPREPLY=(); _falchion; echo "${COMPREPLY[*]}"; }
complete_words falchion bench --dtype f
complete_words falchion bench --dtype f32,b
complete_words falchion bench --dtype f32 e4
complete_words falchion verify --op attention,lin
complete_words falchion roofline --device h200,a100-
complete_words falchion explain --causal b
complete_words falchion explain --backend sm
complete_words falchion bench --dtype f32 --so
)";
  FILE* pipe = popen(("bash " + (folder_ / "completion").string() + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 2048> out{};
  const std::size_t n = fread(out.data(), 1, out.size() - 1, pipe);
  pclose(pipe);
  EXPECT_EQ(std::string(out.data(), n),
            "f32 f16\nf32,bf16\ne4m3\nattention,linear attention,linear-backward\nh200,a100-80 h200,a100-40\n"
            "bottom-right\nsm80 sm90\n--softcap\n");
  EXPECT_NE(run("completion fish").out.find("(__fish_append , f32 f16 bf16 e4m3 i8)"), std::string::npos);
  EXPECT_NE(run("completion zsh").out.find("_values -s , value f32 f16 bf16 e4m3 i8"), std::string::npos);
}

}  // namespace
}  // namespace falchion::testing
