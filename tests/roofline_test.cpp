// tests/roofline_test.cpp: checks the roofline's numbers against those worked out by hand, its pictures, and its
// measured points.
#include "roofline/model.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "roofline/points.hpp"
#include "roofline/svg.hpp"
#include "tool.hpp"

namespace falchion::tools::roofline {
namespace {

namespace fs = std::filesystem;

const Device& device(const std::string& key) { return *find_device(key); }

std::string cell(const Device& device, const std::string& key) {
  for (const Row& row : column(device))
    if (row.key == key) return row.cell();
  return "no such variant";
}

TEST(Roofline, TheTableOfTheSpecificationToItsLastDigit) {
  const char* keys[] = {"a100-80", "a100-40", "h100", "h200", "h200-measured"};
  const std::pair<const char*, std::array<const char*, 5>> rows[] = {
      {"tflops", {"312", "312", "989.4", "989.4", "788"}},
      {"tbps", {"2.039", "1.555", "3.35", "4.8", "4.3"}},
      {"ridge", {"153", "201", "295", "206", "183"}},
      {"mha", {"306 / 612", "401 / 803", "591 / 1181", "412 / 824", "367 / 733"}},
      {"gqa8", {"172 / 344", "226 / 451", "332 / 665", "232 / 464", "206 / 412"}},
      {"compute", {"0.881", "0.881", "0.278", "0.278", "0.349"}},
      {"memory", {"0.041 / 2.15", "0.054 / 2.82", "0.025 / 1.31", "0.017 / 0.91", "0.020 / 1.02"}},
      {"decode", {"16.5", "21.6", "10.0", "7.0", "7.8"}},
      {"mla", {"compute", "compute", "memory", "compute", "compute"}},
      {"chunk", {"memory", "memory", "memory", "memory", "memory"}},
  };
  for (const auto& [key, cells] : rows)
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(cell(device(keys[i]), key), cells[i]) << key << " " << keys[i];
  EXPECT_EQ(cell(device("a100-80"), "exp"), "0.25 / 0.50");
  EXPECT_EQ(cell(device("h100"), "exp"), "0.50 / 1.00");
  EXPECT_NEAR(exp_share(device("h200"), 256, 2), 0.25, 1e-4);
  EXPECT_EQ(find_device("a100"), find_device("a100-80"));
  EXPECT_EQ(find_device("b200"), nullptr);
}

Attention square(double s, double group, double d, bool causal = false) {
  Attention a;
  a.h_k = a.h_q / group;
  a.s_q = a.s_k = s;
  a.d = a.d_v = d;
  a.causal = causal;
  return a;
}

TEST(Roofline, IntensitiesOfAttentionAreThoseOfTheFormulas) {
  EXPECT_DOUBLE_EQ(attention(square(4096, 1, 128)).intensity(), 2048);          // This is s / 2.
  EXPECT_DOUBLE_EQ(attention(square(4096, 1, 64, true)).intensity(), 1024);     // A causal band halves it.
  EXPECT_DOUBLE_EQ(attention(square(4096, 8, 128)).intensity(), 4096 / 1.125);  // This is s / (1 + 1 / g).
  for (const double d : {64.0, 128.0}) {
    Attention a = square(1 << 20, 1, d);
    a.unfused = true;
    EXPECT_LT(attention(a).intensity(), d / 2);
    EXPECT_NEAR(attention(a).intensity(), d / 2, 0.05);
  }
  Attention lse = square(4096, 1, 128);
  lse.lse = true;
  EXPECT_DOUBLE_EQ(attention(lse).hbm - attention(square(4096, 1, 128)).hbm, 4.0 * 32 * 4096);
  Attention decode = square(131072, 8, 128);
  decode.s_q = 1;
  EXPECT_NEAR(attention(decode).intensity(), 8, 0.01);  // This is g in bf16.
  decode.element_bytes = 1;
  EXPECT_NEAR(attention(decode).intensity(), 16, 0.02);  // This is 2 g in fp8.
  Attention mla;
  mla.h_q = 128;
  mla.s_q = 1;
  mla.s_k = 8192;
  mla.d = 576;
  mla.d_v = 512;
  EXPECT_NEAR(mla_decode(mla).intensity(), 128.0 * 1088 / 576, 1e-9);
  // Each block of 128 rows reads K and V again. So the intensity at the L2 is near 128 FLOP/B, and near 64 with blocks
  // of 64.
  Attention blocks = square(1 << 16, 1, 128);
  EXPECT_NEAR(attention(blocks).l2_intensity(), 128, 0.5);
  blocks.block_rows = 64;
  EXPECT_NEAR(attention(blocks).l2_intensity(), 64, 0.5);
}

TEST(Roofline, LinearAttentionAndProducts) {
  // A token moves 4.2 MB, and each head has 64 KiB of state.
  EXPECT_DOUBLE_EQ(linear_recurrent(1, 32, 128, 128, 2).hbm, 4194304);
  EXPECT_DOUBLE_EQ(linear_recurrent(3, 5, 64, 128, 2).intensity(), 0.5);
  const auto chunked = [](double chunk, bool spill) {
    Chunked c;
    c.chunk = chunk;
    c.spill = spill;
    return linear_chunked(c).intensity();
  };
  EXPECT_DOUBLE_EQ(chunked(64, false), 96);  // This is (d + C) / 2.
  EXPECT_DOUBLE_EQ(chunked(64, true), 32);
  EXPECT_DOUBLE_EQ(chunked(128, true), 64);
  EXPECT_DOUBLE_EQ(chunked(256, true), 128);
  const Work product = gemm({});
  EXPECT_DOUBLE_EQ(product.flop, 2.0 * 4096 * 4096 * 4096);
  EXPECT_DOUBLE_EQ(product.hbm, 3 * 2.0 * 4096 * 4096);
  EXPECT_DOUBLE_EQ(product.l2, 2.0 * 4096 * 4096 * (16 + 32 + 1));
}

TEST(Roofline, AtEachCrossoverTheIntensityIsTheRidge) {
  for (const Device& x : devices())
    for (const int bytes : {1, 2}) {
      const double ridge = x.ridge(bytes);
      Attention a = square(1, 4, 96, true);
      a.element_bytes = bytes;
      a.lse = true;
      a.d_v = 128;
      a.s_q = a.s_k = prefill_crossover(x, a);
      EXPECT_NEAR(attention(a).intensity() / ridge, 1, 1e-9) << x.key;
      a.unfused = true;
      a.causal = false;
      EXPECT_TRUE(std::isinf(prefill_crossover(x, a))) << x.key;
      for (const bool spill : {false, true}) {
        Chunked c;
        c.element_bytes = bytes;
        c.spill = spill;
        c.chunk = chunk_crossover(x, c.d, spill, bytes);
        EXPECT_NEAR(linear_chunked(c).intensity() / ridge, 1, 1e-9) << x.key;
      }
      Gemm g;
      g.element_bytes = bytes;
      g.m = g.n = g.k = gemm_crossover(x, bytes);
      EXPECT_NEAR(gemm(g).intensity() / ridge, 1, 1e-9) << x.key;
    }
  // The ridge lies below d / bytes, so even unfused attention is compute bound in the end.
  Device slow = device("h200");
  slow.flops_16 = 20 * slow.hbm;
  Attention a = square(1, 1, 128);
  a.unfused = true;
  a.s_q = a.s_k = prefill_crossover(slow, a);
  EXPECT_NEAR(attention(a).intensity(), 20, 1e-9);
}

TEST(Roofline, TheRoofThatBinds) {
  const auto binds = [](const Device& x, const Work& work) { return binds_text(x, bound(x, work)); };
  const Device& h200 = device("h200");
  Attention unfused = square(4096, 4, 128);
  unfused.unfused = true;
  EXPECT_EQ(binds(h200, attention(unfused)), "HBM");
  EXPECT_EQ(binds(h200, attention(square(4096, 4, 128))), "tensor cores");
  EXPECT_EQ(binds(h200, attention(square(128, 1, 128))), "HBM");
  EXPECT_EQ(binds(h200, attention(square(16384, 4, 64))), "tensor cores = exp units");
  EXPECT_EQ(binds(h200, attention(square(16384, 4, 32))), "exp units");
  EXPECT_EQ(binds(device("a100"), attention(square(16384, 4, 64))), "tensor cores");
  Attention small = square(16384, 1, 128);
  small.block_rows = 16;
  EXPECT_EQ(binds(h200, attention(small)), "L2");
  EXPECT_EQ(binds(h200, linear_recurrent(1, 32, 128, 128, 2)), "HBM");
  Device unknown = h200;
  unknown.l2 = unknown.exps = 0;  // An unknown roof limits nothing.
  EXPECT_EQ(binds(unknown, attention(small)), "tensor cores");
}

const std::string kResults = std::string(FALCHION_SOURCE_DIR) + "/bench/results/";

TEST(RooflinePoints, OfACheckedInRunAreRead) {
  const auto all = read_points(kResults + "h200/2026-11-21-90d4871-prefill.json");
  EXPECT_EQ(all.size(), 216u);  // These are 72 cells with three points each.
  const auto one = matching(all, {"falchion", "burst", "d:128/s:4096/full"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].series, "falchion d 128 full, burst");
  EXPECT_DOUBLE_EQ(one[0].intensity, 2048);
  EXPECT_NEAR(one[0].flops, 727.475e12, 1e9);
  EXPECT_EQ(matching(all, {"falchion", "burst"}).size(), 36u);
  EXPECT_TRUE(matching(all, {"warp9"}).empty());

  const auto decode =
      matching(read_points(kResults + "h200/2026-11-21-00ef490-torch.json"), {"falchion", "b:64/s_k:32768"});
  ASSERT_EQ(decode.size(), 1u);
  EXPECT_NEAR(decode[0].intensity, 4, 0.01);  // There are 32 query heads on 8 heads of K and V.
  EXPECT_NEAR(decode[0].flops / decode[0].intensity, 4.5738e12, 1e9);  // This is 4.57 TB/s, as in the file.

  const auto bench = read_points(kResults + "h200-host/2026-11-21-39ff524-cpu_t2_full.json");
  ASSERT_FALSE(bench.empty());
  EXPECT_DOUBLE_EQ(bench[0].intensity, 2048);
  EXPECT_EQ(bench[0].series, "falchion bf16 d 128 full");
}

TEST(RooflinePoints, WhatCannotBeReadIsRefusedByName) {
  const fs::path path = fs::path(::testing::TempDir()) / ("falchion_points_" + std::to_string(getpid()) + ".json");
  const char* texts[] = {"",
                         "{",
                         "[1, 2]",
                         "{}",
                         "null",
                         R"({"rows": 3})",
                         R"({"rows": []})",
                         R"({"benchmarks": [{"aggregate_name": "median", "problem": 5}]})",
                         R"({"rows": [{"section": "prefill", "name": "bf16/d:0/s:8", "ms": {"x": 1}}]})",
                         R"({"rows": [{"section": "prefill", "name": "bf16/d:8/s:8", "ms": {"x": -1}}]})",
                         R"({"rows": [{"section": "prefill", "name": "bf16/d:8/s:8", "ms": {"x": "fast"}}]})"};
  for (const char* text : texts) {
    std::ofstream(path) << text;
    try {
      read_points(path.string());
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_NE(error.what.find(path.filename().string()), std::string::npos) << error.what;
    }
  }
  fs::remove(path);
  EXPECT_THROW(read_points("/nowhere/points.json"), UsageError);
}

/// Whether every element is closed, in order, and no attribute holds a raw < or &.
bool well_formed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag(R"(<(/?)([a-z]+)((?: [a-zA-Z:-]+="[^"<]*")*)(/?)>)");
  std::size_t at = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), tag), end; it != end; ++it) {
    const std::string between = svg.substr(at, static_cast<std::size_t>(it->position()) - at);
    if (between.find_first_of("<>") != std::string::npos) return false;
    if (std::regex_search(between, std::regex("&(?!amp;|lt;|gt;|quot;)"))) return false;
    at = static_cast<std::size_t>(it->position() + it->length());
    if ((*it)[1] == "/") {
      if (open.empty() || open.back() != (*it)[2]) return false;
      open.pop_back();
    } else if ((*it)[4] != "/") {
      open.push_back((*it)[2]);
    }
  }
  return open.empty() && at > 0 && svg.substr(at) == "\n";
}

struct Text {
  double x0, y0, x1, y1;
  std::string words;
};
/// Returns where the texts stand. A letter counts as 0.55 of the font's height wide.
std::vector<Text> texts_of(const std::string& svg) {
  std::vector<Text> out;
  const std::regex text(R"re(<text x="([-0-9.]+)" y="([-0-9.]+)"(?: text-anchor="(\w+)")?([^>]*)>([^<]*)</text>)re");
  for (std::sregex_iterator it(svg.begin(), svg.end(), text), end; it != end; ++it) {
    if ((*it)[4].str().find("rotate") != std::string::npos) continue;  // This text is the name of the y axis.
    const double size = (*it)[4].str().find("18") != std::string::npos ? 18 : 12;
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]),
                 w = size * 0.55 * static_cast<double>((*it)[5].length());
    const double left = (*it)[3] == "end" ? x - w : (*it)[3] == "middle" ? x - w / 2 : x;
    out.push_back({left, y - 0.75 * size, left + w, y + 0.2 * size, (*it)[5]});
  }
  return out;
}

Picture prefill_picture() {
  Picture picture;
  picture.device = device("h200");
  picture.title = "a < b & \"c\"";
  for (const double s : {128.0, 512.0, 513.0, 4096.0, 4097.0, 5000.0, 5600.0, 6300.0})
    for (const double d : {64.0, 128.0}) picture.cases.push_back({"shape", attention(square(s, 4, d))});
  picture.points = matching(read_points(kResults + "h200/2026-11-21-90d4871-prefill.json"), {"falchion", "burst"});
  return picture;
}

TEST(RooflineSvg, IsWellFormedAndNoTwoTextsOverlap) {
  const std::string svg = roofline_svg(prefill_picture());
  EXPECT_TRUE(well_formed(svg)) << svg;
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  for (const char* part :
       {"HBM 4.8 TB/s", "L2 ", "tensor cores 989 TFLOP/s", "exp units, d 64", "falchion d 256 causal, burst"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  const auto texts = texts_of(svg);
  EXPECT_GT(texts.size(), 30u);
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (std::size_t j = i + 1; j < texts.size(); ++j) {
      const Text &a = texts[i], &b = texts[j];
      EXPECT_FALSE(a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1) << a.words << " | " << b.words;
    }
  EXPECT_LT(svg.size(), 50'000u);
}

TEST(RooflineSvg, EachSeriesHasAMarkerOfItsOwnWithoutColour) {
  const std::string svg = roofline_svg(prefill_picture());
  std::set<std::string> markers;  // Each marker has a shape and is full or hollow.
  const std::regex marker(R"re(<path transform="[^"]*" d="([^"]*)" fill="([^"]*)")re");
  for (std::sregex_iterator it(svg.begin(), svg.end(), marker), end; it != end; ++it)
    markers.insert((*it)[1].str() + ((*it)[2] == "#fff" ? " hollow" : " full"));
  EXPECT_EQ(markers.size(), 6u);
}

TEST(RooflineSvg, WhatDoesNotFitIsRefused) {
  Picture picture = prefill_picture();
  picture.cases.resize(kMostDots + 1, picture.cases[0]);
  EXPECT_THROW(roofline_svg(picture), UsageError);
  picture.cases.clear();
  EXPECT_TRUE(well_formed(roofline_svg(picture)));
  for (std::size_t i = 0; i <= kMostSeries; ++i) picture.points.push_back({"p", std::to_string(i), 1, 1e12, 2});
  EXPECT_THROW(roofline_svg(picture), UsageError);
}

struct Result {
  bool built = false;
  int code = -1;  // -1 means that a signal ended the command.
  std::string text;
};
Result run(const std::string& arguments) {
  const fs::path command = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion";
  Result result;
  FILE* pipe =
      fs::exists(command) ? popen((command.string() + " roofline " + arguments + " 2>&1").c_str(), "r") : nullptr;
  if (pipe == nullptr) return result;
  result.built = true;
  std::array<char, 4096> piece{};
  for (std::size_t n = 0; (n = fread(piece.data(), 1, piece.size(), pipe)) > 0;) result.text.append(piece.data(), n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(RooflineCommand, SaysTheTableAndTheAnswer) {
  const Result all = run("");
  if (!all.built) GTEST_SKIP() << "the command is not built here";
  EXPECT_EQ(all.code, 0);
  for (const char* part : {"A100-80 SXM", "591 / 1181", "Is attention memory bound or compute bound?", "306 to 591"})
    EXPECT_NE(all.text.find(part), std::string::npos) << part << "\n" << all.text;
  const Result h200 = run("--device h200 --mode prefill");
  EXPECT_EQ(h200.code, 0);
  for (const char* part : {"412 / 824", "232 / 464", "0.278", "0.017 / 0.91", "above s 412 (causal 824)", "HBM µs"})
    EXPECT_NE(h200.text.find(part), std::string::npos) << part << "\n" << h200.text;
  EXPECT_EQ(run("--device h200 --device h200").text, run("--device h200").text) << "one column";
  EXPECT_NE(
      run("--tflops 100 --tbps 1 --mode decode --s-k 1024,2048 --h-q 16 --h-k 2").text.find("b1 h16/2 s1x2048 d128"),
      std::string::npos);
}

TEST(RooflineCommand, JsonHoldsWhatTheTextSays) {
  const Result x = run("--device h200 --mode decode --mla --json --points " + kResults +
                       "h200/2026-11-21-00ef490-torch.json --match falchion,decode");
  if (!x.built) GTEST_SKIP() << "the command is not built here";
  ASSERT_EQ(x.code, 0) << x.text;
  const auto json = nlohmann::json::parse(x.text);
  EXPECT_NEAR(json["devices"][0]["ridge_flop_per_byte"].get<double>(), 206.125, 1e-6);
  EXPECT_NEAR(json["shapes"][0]["flop_per_byte"].get<double>(), 241.778, 1e-3);
  EXPECT_EQ(json["shapes"][0]["bound_by"][0], "products");
  EXPECT_EQ(json["points"].size(), 19u);
  EXPECT_TRUE(json["devices"][0]["compute_bound_above"]["prefill_s_unfused_d128"].is_null());
}

TEST(RooflineCommand, BadInputExitsWithTwoAndSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"--device b200", "\"b200\" is not one of"},
      {"--tflops 3", "both --tflops and --tbps"},
      {"--tflops -3 --tbps 1", "--tflops: -3"},
      {"--tflops nan --tbps 1", "--tflops: nan"},
      // This is the lowest float.
      {"--tflops -3.4028235e38 --tbps 1", "--tflops: -3.4028235e+38 is not a rate above 0"},
      {"--tflops 0 --tbps 1", "--tflops: 0 is not a rate above 0"},
      {"--device h200 --tbps 0", "--tbps: 0 is not"},
      {"--device h200 --l2-tbps 0", "--l2-tbps: 0 is not"},
      {"--mode prefill --s 0", "--s: 0 is not between 1"},
      {"--mode prefill --s 99999999999999", "--s: 99999999999999"},
      {"--mode prefill --h-q 6 --h-k 4", "--h-q 6 is not a multiple of --h-k 4"},
      {"--mode gemm --h-q 4", "--h-q says nothing in --mode gemm"},
      {"--mode prefill --chunk 64", "--chunk says nothing in --mode prefill"},
      {"--mode decode --mla --d 64", "--d-v 512: more than the latent's 64"},
      {"--mode decode --mla --h-k 4", "leave --h-k out"},
      {"--device h200-measured --mode prefill --dtype f32", "h200-measured has no such rate"},
      {"--device h200,h100 --format svg", "draws one device"},
      {"--points /nowhere.json", "/nowhere.json"},
      {"--points /tmp", "--points: /tmp"},
      {"--mode prefill --causal --s-q 1", "s_q 1 is not s_k 4096"},
      {"--mode train", "train"},
      {"--mode prefill --s 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 --b 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
       "256 shapes"},
      {"--mode prefill -o /nowhere/x.svg --format svg", "/nowhere/x.svg"},
  };
  if (!run("").built) GTEST_SKIP() << "the command is not built here";
  for (const auto& [arguments, why] : cases) {
    const Result x = run(arguments);
    EXPECT_EQ(x.code, 2) << arguments;
    EXPECT_NE(x.text.find(why), std::string::npos) << arguments << "\n" << x.text;
  }
}

}  // namespace
}  // namespace falchion::tools::roofline
