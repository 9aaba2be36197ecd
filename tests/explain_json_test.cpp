// tests/explain_json_test.cpp: reads the JSON that the library writes with another parser: first strings and numbers of
// every kind, and then explain(), which is compared with the plan, the text and docs/explain.md.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "api/data_of.hpp"
#include "api/validate.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/json.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion::testing {
namespace {

using Parsed = nlohmann::json;

/// Refuses what is no JSON. It also refuses a key that appears twice, because a parser would keep only one of the two.
Parsed parse(const std::string& text) {
  std::vector<std::set<std::string>> open;
  bool twice = false;
  const auto watch = [&](int, Parsed::parse_event_t event, Parsed& value) {
    if (event == Parsed::parse_event_t::object_start) open.emplace_back();
    if (event == Parsed::parse_event_t::object_end) open.pop_back();
    if (event == Parsed::parse_event_t::key) twice = twice || !open.back().insert(value.get<std::string>()).second;
    return true;
  };
  Parsed out = Parsed::parse(text, watch, false);
  EXPECT_FALSE(out.is_discarded()) << text;
  EXPECT_FALSE(twice) << text;
  return out;
}

TEST(Json, Strings) {
  const std::string nul("a\0b", 3);
  for (const std::string& x :
       {std::string(), std::string("\"\\/\b\f\n\r\t\x7f"), nul, std::string("\u00e9 \u20ac \U0001F600"),
        std::string("\u07ff\u0800\uffff\U00010000\U0010ffff"), std::string("</script>")})
    EXPECT_EQ(parse(Json(x).text()).get<std::string>(), x);
  for (int c = 0; c < 0x20; ++c) {
    const std::string x(1, static_cast<char>(c));
    EXPECT_EQ(parse(Json(x).text()).get<std::string>(), x) << c;
  }
  const struct {
    const char *bytes, *read;
  } broken[] = {{"a\xff z", "a\ufffd z"},
                {"\x80", "\ufffd"},
                {"\xc0\xaf", "\ufffd\ufffd"},
                {"\xe2\x82", "\ufffd\ufffd"},
                {"\xe2\x82\"", "\ufffd\ufffd\""},
                {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
                {"\xe0\x9f\xbf", "\ufffd\ufffd\ufffd"},
                {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
                {"\xf0\x8f\xbf\xbf", "\ufffd\ufffd\ufffd\ufffd"}};
  for (const auto& [bytes, read] : broken) EXPECT_EQ(parse(Json(bytes).text()).get<std::string>(), read);
}

/// Removes the replacement characters from a string. Another writer replaces invalid bytes too, but fewer at a time, so
/// only what remains can be compared.
std::string without_replacements(std::string x) {
  for (std::size_t at = 0; (at = x.find("\ufffd", at)) != std::string::npos;) x.erase(at, 3);
  return x;
}

TEST(Json, StringsOfAnyBytes) {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {
      "\"", "\\", "\\u0041", "\n", "\x1f", "\x7f",     "\xc3\xa9",     "\xe2\x82\xac",
      "{",  ":",  "\xc3",    "a",  "\xe2", "\xe2\x82", "\xed\xbf\xbf", "\xf0\x9f\x98\x80"};
  for (int round = 0; round < 20000; ++round) {
    std::string x;
    for (auto left = random() % 12; left > 0; --left)
      x += random() % 2 == 0 ? pieces[random() % pieces.size()] : std::string(1, static_cast<char>(random() % 256));
    const std::string read = parse(Json(x).text()).get<std::string>();
    const std::string theirs = Parsed(x).dump(-1, ' ', false, Parsed::error_handler_t::replace);
    ASSERT_EQ(without_replacements(read), without_replacements(parse(theirs).get<std::string>())) << theirs;
  }
}

TEST(Json, Numbers) {
  EXPECT_EQ(parse(Json(std::numeric_limits<std::int64_t>::min()).text()), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse(Json(std::numeric_limits<std::uint64_t>::max()).text()), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse(Json(true).text()), true);
  EXPECT_EQ(parse(Json(nullptr).text()), nullptr);
  EXPECT_EQ(parse(Json(0.1F).text()).get<float>(), 0.1F);
  for (const double x : {HUGE_VAL, -HUGE_VAL, std::nan("")}) EXPECT_EQ(Json(x).text(), "null");
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    const auto x = std::bit_cast<double>(random());
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(parse(Json(x).text()).get<double>()), std::bit_cast<std::uint64_t>(x));
  }
}

TEST(Json, ArraysAndObjects) {
  EXPECT_EQ(Json::array({}).text(), "[]");
  EXPECT_EQ(Json::object({}).text(), "{}");
  const std::vector<Json> values = {1, "a", nullptr, Json::object({{"k\"", 0.5}, {"e", Json::array({})}})};
  EXPECT_EQ(Json::array(values).text(), R"([1,"a",null,{"k\"":0.5,"e":[]}])");
}

// explain() ----------------------------------------------------------------------------------------------------------

/// Collects each key that is there, as "decision.level", or "rejected.path" for a list of objects.
void collect(const Parsed& value, const std::string& under, std::set<std::string>* keys) {
  if (value.is_array()) {
    for (const Parsed& element : value) collect(element, under, keys);
  }
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    const std::string path = under.empty() ? key : under + "." + key;
    if (!member.is_object()) keys->insert(path);
    if (path != "problem") collect(member, path, keys);
  }
}

std::string joined(const Parsed& lines) {
  std::string out;
  for (const Parsed& line : lines) out += line.get<std::string>() + "\n";
  return out;
}

// A GEMM has no pass, nor has Quantise.
template <class Problem>
std::string story(const Problem& problem, Pass pass, const Target& target, Format format) {
  return explain(problem, pass, target, format);
}
std::string story(const Gemm& problem, Pass, const Target& target, Format format) {
  return explain(problem, target, format);
}
std::string story(const Quantise& problem, Pass, const Target& target, Format format) {
  return explain(problem, target, format);
}
template <class Problem>
Status make(const Problem& problem, Pass pass, const Target& target, Plan* out) {
  return Plan::make(problem, pass, target, out);
}
Status make(const Gemm& problem, Pass, const Target& target, Plan* out) { return Plan::make(problem, target, out); }
Status make(const Quantise& problem, Pass, const Target& target, Plan* out) { return Plan::make(problem, target, out); }

template <class Problem>
Status plan_for_any_build(const Problem& a, Pass pass, const Target& target, PlanData* out) {
  return plan_problem(a, pass, target, out, true);
}

/// Checks that the JSON lists what a run may take.
void same_choices(const Parsed& json, const PlanData& plan) {
  ASSERT_EQ(json.size(), plan.gpu.choices.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Choice& choice = plan.gpu.choices[i];
    EXPECT_EQ(json[i]["backend"], name(choice.variant->backend));
    EXPECT_EQ(json[i]["level"], choice.variant->level);
    EXPECT_EQ(json[i]["needs"].empty(), choice.needs.empty());
    if (plan.is<GemmPlan>()) { EXPECT_EQ(json[i]["items"], choice.cut_as<GemmGpuCut>().items); }
  }
}

/// Checks that the JSON says of the decision what the plan says.
void same_decision(const Parsed& json, const PlanData& plan) {
  EXPECT_EQ(json["decision"]["backend"], name(plan.backend));
  EXPECT_EQ(json["workspace_bytes"], plan.workspace);
  EXPECT_EQ(json["describe"], describe(plan));
  EXPECT_EQ(json["rejected"].size(), plan.rejected.size());
  EXPECT_EQ(json["decision"]["level"].is_null(), plan.variant == nullptr);
  if (plan.variant == nullptr) return;
  EXPECT_EQ(json["decision"]["level"], plan.variant->level);
  EXPECT_EQ(json["decision"]["built"], built(*plan.variant) != nullptr);
  if (plan.items == 0) return;
  if (plan.is<LinearPlan>()) {
    EXPECT_EQ(json["segments"]["count"], plan.linear().segments);
    EXPECT_EQ(json["segments"]["tokens"], plan.linear().segment);
  } else if (plan.is<GemmPlan>()) {
    EXPECT_EQ(json["items"], plan.items);
    EXPECT_EQ(json["tile"]["rows"], plan.gemm().rows);
    EXPECT_EQ(json["tile"]["columns"], plan.gemm().columns);
    if (is_gpu(plan.backend)) { EXPECT_EQ(json["splits"], own_cut(plan).splits); }
  } else if (plan.is<NormPlan>()) {
    if (is_gpu(plan.backend)) {
      const Choice& first = plan.gpu.choices.front();
      EXPECT_EQ(json["row"]["threads"], plan.pass == Pass::forward ? first.cut_as<gpu::NormCut>().threads
                                                                   : first.cut_as<gpu::NormBackwardCut>().threads);
    }
    if (plan.pass == Pass::backward) { EXPECT_EQ(json["parts"], plan.norm().parts); }
    if (!is_gpu(plan.backend)) { EXPECT_EQ(json["items"], plan.items); }
  } else if (plan.is<QuantisePlan>()) {
    EXPECT_EQ(json["piece"]["rows"], plan.gpu.choices.front().cut_as<gpu::QuantiseCut>().rows);
  } else {
    const bool backward = plan.pass == Pass::backward;  // On a GPU its keys are not cut into parts.
    if (backward && plan.backend == Backend::cpu) { EXPECT_EQ(json["parts"], plan.attention().backward.parts); }
    if (!backward) { EXPECT_EQ(json["splits"], plan.attention().splits); }
    EXPECT_EQ(json["tile"]["rows"], plan.attention().rows);
    EXPECT_EQ(json["tile"]["keys"], plan.attention().keys);
  }
  if (!is_gpu(plan.backend)) {
    EXPECT_EQ(json["threads"]["count"], plan.threads);
    return;
  }
  EXPECT_EQ(json["device"]["name"], plan.gpu.device);
  EXPECT_EQ(json["device"]["sms"], plan.gpu.all_sms);
  EXPECT_EQ(json["decision"]["d"].is_null(), plan.variant->d == 0);
  if (plan.variant->d > 0) { EXPECT_EQ(json["decision"]["d"], plan.variant->d); }
  if (plan.is<AttentionPlan>() && plan.pass == Pass::forward) {
    EXPECT_EQ(json["grid"]["from_a_counter"], plan.attention().counted);
  }
  same_choices(json["choices"], plan);
}

template <class Problem>
void check(const Problem& problem, Pass pass, const Target& target, std::set<std::string>* keys) {
  const std::string text = story(problem, pass, target, Format::text);
  SCOPED_TRACE(text);
  const Parsed json = parse(story(problem, pass, target, Format::json));
  collect(json, "", keys);
  EXPECT_EQ(joined(json["text"]), text);
  EXPECT_EQ(json["falchion"], version());
  EXPECT_EQ(json["pass"], name(pass));
  Plan plan;
  const Status made = make(problem, pass, target, &plan);
  EXPECT_EQ(json["status"]["code"], name(made.code));
  if (made) {
    EXPECT_EQ(parse(plan.explain(Format::json)), json);
    EXPECT_EQ(json["status"]["why"], "");
    EXPECT_EQ(json["decision"]["here"], !is_gpu(plan.backend()) || target.sm == 0);
    return same_decision(json, *data_of(plan));
  }
  EXPECT_NE(json["status"]["why"], "");
  PlanData other;
  if (!json.contains("decision")) return;
  ASSERT_TRUE(plan_for_any_build(problem, pass, target, &other)) << "decided, though no build could run it";
  same_decision(json, other);
}

std::vector<Target> targets() {
  std::vector<Target> out = {Backend::best, Backend::ref, Backend::cpu, Backend::sm80, Backend::sm90};
  for (const int sm : {80, 86, 90, 120}) out.emplace_back(Backend::best).sm = sm;
  out.emplace_back(Backend::best).device = 1;
  for (const int sm : {80, 90}) {
    out.emplace_back(Backend::best).sm = sm;
    out.back().sms = 40;
  }
  out.emplace_back(Backend::cpu).threads = 3;
  out.emplace_back(Backend::cpu).cpu_level = "no \"level\"";
  return out;
}

std::vector<Attention> problems() {
  Attention a;
  a.b = 2;
  a.s_q = a.s_k = 3000;
  a.h_q = 8;
  a.h_k = 2;
  a.d_qk = a.d_v = 64;
  a.lse = true;
  std::vector<Attention> out(8, a);
  out[1].s_q = 1;
  out[2].b = 0;
  out[3].packed = true;
  out[4].bias = out[4].mask = true;
  out[4].score = {0.3F, 20};
  out[4].dropout = 0.1F;
  out[4].alibi = out[4].first_k = true;
  out[5].h_q = 7;
  out[6].score.scale = std::numeric_limits<float>::quiet_NaN();
  out[7].dtype = DType::e4m3;
  out[7].d_v = 300;
  return out;
}

std::vector<LinearAttention> linear_problems() {
  LinearAttention a;
  a.b = 1;
  a.s = 9000;
  a.h_qk = a.h_v = 2;
  a.d_qk = a.d_v = 64;
  std::vector<LinearAttention> out(6, a);
  out[1].normalise = out[1].initial_state = out[1].final_state = true;
  out[1].decay = Decay::token;
  out[2].b = 0;
  out[3].packed = out[3].reverse = true;
  out[3].feature_map = FeatureMap::elu_plus_one;
  out[4].eps = std::numeric_limits<float>::infinity();
  out[5].dtype = DType::f32;
  out[5].h_qk = out[5].h_v = 64;
  out[5].d_qk = out[5].d_v = 128;
  return out;
}

std::vector<Gemm> gemms() {
  std::vector<Gemm> out(7, Gemm{.m = 700, .n = 900, .k = 3000});
  out[1].batch = 40;
  out[1].m = 1;
  out[2].m = 0;
  out[3].activation = Activation::swiglu;
  out[3].bias_n = out[3].residual = true;
  out[4].dtype = DType::f32;
  out[4].alpha = 0;
  out[4].beta = 2;
  out[5].beta = std::numeric_limits<float>::infinity();
  out[6].dtype_b = DType::f32;
  return out;
}

std::vector<Norm> norms() {
  std::vector<Norm> out(5, Norm{.rows = 700, .d = 4096, .weight = true, .residual = true, .residual_out = true});
  out[1].kind = NormKind::rms;
  out[2].d = 20001;
  out[3].rows = 0;
  out[4].eps = -1;
  return out;
}

std::vector<Quantise> quantised() {
  std::vector<Quantise> out(5, Quantise{.b = 2, .s = 700, .h = 3, .d = 128, .rows = 128});
  out[1].rows = 0;
  out[1].smooth = out[1].rotate = true;
  out[2].d = 20;
  out[3].s = 0;
  out[4].d = 0;
  return out;
}

/// The backward pass has the residual_out of a norm, and no residual.
Norm gradients_of(Norm n) {
  n.residual = false;
  return n;
}

/// Compares the JSON with Plan::make, with the plan's data and with the text. docs/explain.md must name each key.
TEST(ExplainJson, SaysWhatThePlanAndTheTextSay) {
  std::set<std::string> keys;
  for (const Target& target : targets()) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const Attention& a : problems()) check(a, pass, target, &keys);
      for (const LinearAttention& a : linear_problems()) check(a, pass, target, &keys);
    }
    for (const Gemm& g : gemms()) check(g, Pass::forward, target, &keys);
    for (const Norm& n : norms()) {
      check(n, Pass::forward, target, &keys);
      check(gradients_of(n), Pass::backward, target, &keys);
    }
    for (const Quantise& q : quantised()) check(q, Pass::forward, target, &keys);
  }
  std::stringstream document;
  document << std::ifstream(FALCHION_SOURCE_DIR "/docs/explain.md").rdbuf();
  for (const std::string& key : keys)
    EXPECT_NE(document.str().find("`" + key + "`"), std::string::npos) << key << " is not in docs/explain.md";
  for (const char* key : {"tile.stages", "grid.ctas", "wide.ctas", "threads.items", "memory.states", "choices.level",
                          "choices.needs", "tile.columns", "items", "one_matrix.few", "few_rows.most", "choices.items",
                          "row.kept", "estimate.microseconds", "device.held"})
    EXPECT_TRUE(keys.contains(key)) << key << " is never there: the problems above miss something";
}

TEST(ExplainJson, TheProblemIsThereAsItWasAsked) {
  Attention a = problems()[4];
  Parsed json = parse(explain(a, Pass::forward, {}, Format::json))["problem"];
  EXPECT_EQ(json["score"]["scale"].get<float>(), a.score.scale);
  EXPECT_EQ(json["dropout"].get<float>(), a.dropout);
  EXPECT_EQ(json["dtype_o"], "as_q");
  EXPECT_EQ(json["alibi"], true);
  EXPECT_EQ(json["first_k"], true);
  EXPECT_EQ(json["bias"], true);
  json = parse(explain(problems()[6], Pass::forward, {}, Format::json));
  EXPECT_EQ(json["problem"]["score"]["scale"], nullptr) << "NaN, which is why it is refused";
  EXPECT_EQ(json["status"]["code"], "invalid");
  EXPECT_FALSE(json.contains("work")) << "of what is no problem nothing can be counted";
  json = parse(explain(linear_problems()[3], Pass::backward, {}, Format::json));
  EXPECT_EQ(json["op"], "linear_attention_backward");
  EXPECT_EQ(json["problem"]["feature_map"], "elu_plus_one");
}

TEST(ExplainJson, ACallersBytesNeedNotBeUtf8) {
  Target target(Backend::cpu);
  target.cpu_level = "\xff\x01\"";
  const Parsed json = parse(explain(problems()[0], Pass::forward, target, Format::json));
  EXPECT_EQ(json["status"]["why"].get<std::string>().find("cpu_level = \ufffd\x01\": there is no such"), 0U) << json;
}

TEST(ExplainJson, NoPlan) {
  const Parsed json = parse(Plan().explain(Format::json));
  EXPECT_EQ(json["status"]["code"], "invalid");
  EXPECT_EQ(json["status"]["why"], "no plan");
}

}  // namespace
}  // namespace falchion::testing
