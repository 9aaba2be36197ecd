// tools/problem/tensor_options.cpp
#include "problem/tensor_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "io/array.hpp"
#include "plan/text.hpp"
#include "problem/files.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

io::Array find(const io::Archive& archive, const std::string& name, const std::string& path) {
  if (const io::Array* array = archive.find(name)) {
    io::Array out = *array;
    out.name = fmt::format("{}: {}", path, name);  // as every message names it
    return out;
  }
  std::string names;
  for (const io::Array& array : archive.arrays)
    if (names.size() < 400) names += (names.empty() ? "" : ", ") + array.name;
  throw UsageError{fmt::format("{}: there is no tensor {}; there are {}", path, name, names)};
}

/// A tensor as the engine sees it. Its axes are (b, s, h, d), however it lies in the file, and it is read as another
/// type where the options say so.
HostTensor make_view(io::Array array, const TensorOptions& options) {
  if (!options.dtype.empty()) require(io::view_as(io::kind_of(parse_dtype(options.dtype)), &array), "--dtype");
  require_computed(!options.as.empty(), &array);
  require(io::align_to(16, &array));
  HostTensor out;
  require(io::to_tensor(array, &out.view));
  out.owner = array.owner;
  if (options.layout() == Layout::bhsd && array.shape.size() >= 3) {
    std::swap(out.view.shape[1], out.view.shape[2]);
    std::swap(out.view.stride[1], out.view.stride[2]);
  }
  return options.as.empty() ? std::move(out) : convert(out.view, parse_dtype(options.as));
}

/// A bias or a mask of (s_q, s_k), (h, s_q, s_k) or (b, h, s_q, s_k), where leading extents may be 1. `bytes` says that
/// it is a mask.
HostTensor read_scores(const std::string& path, bool bytes, bool may_convert) {
  io::Array array = read_npy_array(path);
  if (array.shape.size() < 2 || array.shape.size() > 4)
    throw UsageError{fmt::format("{}: {} axes; bias and mask are (s_q, s_k), (h, s_q, s_k) or (b, h, s_q, s_k)", path,
                                 array.shape.size())};
  while (array.shape.size() < 4) array.shape.insert(array.shape.begin(), 1);
  if (bytes && (array.kind == io::Kind::u8 || array.kind == io::Kind::i8)) array.kind = io::Kind::boolean;
  if (!bytes) require_computed(may_convert, &array);
  require(io::align_to(16, &array));
  HostTensor out;
  require(io::to_tensor(array, &out.view));
  out.owner = array.owner;
  return out;
}

/// "0,5,9", or a .npy file of integers.
std::vector<std::int32_t> read_lengths(const std::string& text, const std::string& option) {
  std::vector<std::int32_t> out;
  for (const std::int64_t x : ends_with(text, ".npy") ? read_integers(text) : parse_integers(text, option)) {
    if (x < 0 || x > INT32_MAX)
      throw UsageError{fmt::format("{}: [{}] = {} is not between 0 and {}", option, out.size(), x, INT32_MAX)};
    out.push_back(static_cast<std::int32_t>(x));
  }
  return out;
}

void expect_count(const std::vector<std::int32_t>& list, std::int64_t count, const char* option) {
  if (static_cast<std::int64_t>(list.size()) != count)
    throw UsageError{fmt::format("{}: {} numbers, the problem needs {}", option, list.size(), count)};
}

/// "--q, --k and --v"
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return out;
}

std::int64_t longest(const std::vector<std::int32_t>& cu) {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < cu.size(); ++i) most = std::max(most, std::int64_t{cu[i]} - cu[i - 1]);
  return most;
}

void load_qkv(const TensorOptions& options, Instance* x) {
  if (!options.qkv.empty()) {
    if (!options.q.empty() || !options.k.empty() || !options.v.empty())
      throw UsageError{"--qkv and --q, --k, --v: give one or the other"};
    const io::Archive archive = read_archive(options.qkv);
    const std::string prefix = options.layer.empty() ? "" : options.layer + ".";
    x->q = make_view(find(archive, prefix + "q", options.qkv), options);
    x->k = make_view(find(archive, prefix + "k", options.qkv), options);
    x->v = make_view(find(archive, prefix + "v", options.qkv), options);
    return;
  }
  require_all("tensors", {{"--q", options.q}, {"--k", options.k}, {"--v", options.v}},
              " (.npy), or --qkv FILE.safetensors with --layer");
  x->q = make_view(read_npy_array(options.q), options);
  x->k = make_view(read_npy_array(options.k), options);
  x->v = make_view(read_npy_array(options.v), options);
}

void load_lengths(const TensorOptions& options, Instance* x) {
  Attention& a = x->problem;
  a.packed = !options.cu_q.empty() || !options.cu_k.empty();
  if (a.packed) {
    if (options.cu_q.empty() || options.cu_k.empty()) throw UsageError{"--cu-seqlens-q and --cu-seqlens-k go together"};
    x->cu_q = read_lengths(options.cu_q, "--cu-seqlens-q");
    x->cu_k = read_lengths(options.cu_k, "--cu-seqlens-k");
    if (x->cu_q.empty()) throw UsageError{"--cu-seqlens-q: an empty list"};
    expect_count(x->cu_k, static_cast<std::int64_t>(x->cu_q.size()), "--cu-seqlens-k");
    a.b = static_cast<std::int64_t>(x->cu_q.size()) - 1;
    a.s_q = longest(x->cu_q);
    a.s_k = longest(x->cu_k);
  }
#define FALCHION_LENGTHS(key, side, usual, has, option, text) \
  a.key = !options.key.empty();                               \
  if (a.key) expect_count(x->key = read_lengths(options.key, option), a.b, option);
#include "base/fields.def"
}

}  // namespace

void require_all(const char* what, std::initializer_list<std::pair<const char*, std::string>> options,
                 const char* how) {
  std::vector<std::string> all, missing;
  for (const auto& [option, value] : options) {
    all.emplace_back(option);
    if (value.empty()) missing.emplace_back(option);
  }
  if (missing.empty()) return;
  throw UsageError{fmt::format("{}: give {}{}",
                               missing.size() == all.size() ? fmt::format("no {}", what)
                               : missing.size() == 1        ? missing.front() + " is missing"
                                                            : listed(missing) + " are missing",
                               listed(all), how)};
}

void TensorOptions::check(const Given& given) const {
  if (!this->given())
    given.refuse(
        {
            "--layer",
            "--axes",
            "--dtype",
            "--as",
            "--bias",
            "--mask",
            "--cu-seqlens-q",
            "--cu-seqlens-k",
#define FALCHION_LENGTHS(key, side, usual, has, option, text) option,
#include "base/fields.def"
        },
        "there are no tensors that this belongs to: give --q, --k and --v, or --qkv");
  if (qkv.empty()) given.refuse({"--layer"}, "it names tensors of --qkv, which is not given");
}

void TensorOptions::name_files(FileNames* files) const {
  const std::pair<const char*, const std::string*> always[] = {{"--q", &q},     {"--k", &k},       {"--v", &v},
                                                               {"--qkv", &qkv}, {"--bias", &bias}, {"--mask", &mask}};
  for (const auto& [option, path] : always) files->reads(option, *path);
  const std::pair<const char*, const std::string*> lists[] = {
      {"--cu-seqlens-q", &cu_q},
      {"--cu-seqlens-k", &cu_k},
#define FALCHION_LENGTHS(key, side, usual, has, option, text) {option, &key},
#include "base/fields.def"
  };
  for (const auto& [option, path] : lists)
    if (ends_with(*path, ".npy")) files->reads(option, *path);
}

void TensorOptions::add_to(Command& command) {
  command.group("Tensors");
  command.text("--q", &q, "Queries: a .npy file", "FILE");
  command.text("--k", &k, "Keys", "FILE");
  command.text("--v", &v, "Values", "FILE");
  command.text("--qkv", &qkv, "All three from one .safetensors file", "FILE");
  command.text("--layer", &layer, "With --qkv: take LAYER.q, LAYER.k, LAYER.v; else q, k, v");
  command.choice("--axes", &axes, {"bshd", "bhsd"}, "Order of the axes in the files");
  command.choice("--dtype", &dtype, {"f32", "f16", "bf16"}, "Read the bits as this type: bf16 for a .npy of u2");
  command.choice("--as", &as, {"f32", "f16", "bf16"}, "Convert to this type before computing");
  command.text("--bias", &bias, "Additive bias (b, h, s_q, s_k): a .npy file; extents of 1 are broadcast", "FILE");
  command.text("--mask", &mask, "Boolean mask, true: may be seen; as --bias", "FILE");
  command.group("Lengths (a list as 0,5,9 or a .npy file)");
  command.text("--cu-seqlens-q", &cu_q, "Packed sequences: where each begins in Q, and the end", "LIST");
  command.text("--cu-seqlens-k", &cu_k, "The same in K and V", "LIST");
#define FALCHION_LENGTHS(key, side, usual, has, option, help) command.text(option, &key, help, "LIST");
#include "base/fields.def"
}

Instance TensorOptions::load(const FeatureOptions& features) const {
  Instance x;
  load_qkv(*this, &x);
  Attention& a = x.problem;
  a.dtype = x.q.view.dtype;
  a.b = x.q.view.shape[0];
  a.s_q = x.q.view.shape[1];
  a.h_q = x.q.view.shape[2];
  a.d_qk = x.q.view.shape[3];
  a.s_k = x.k.view.shape[1];
  a.h_k = x.k.view.shape[2];
  a.d_v = x.v.view.shape[3];
  load_lengths(*this, &x);
  features.apply(&a);
  x.rng = features.rng();
  each_field(a, [&](const Field& field, const auto&) {
    const std::string from = features.of_heads_of(field);
    if (from.empty()) return;
    const std::vector<float> numbers = from == "auto" ? usual_slopes(a.h_q) : read_floats(from);
    if (static_cast<std::int64_t>(numbers.size()) != a.h_q)
      throw UsageError{fmt::format("{}: {} numbers, there are {} query heads", field.option, numbers.size(), a.h_q)};
    each_operand(a, Pass::forward, x, [&](const OperandField& of, HostTensor& tensor, bool) {
      if (of.name == field.key) tensor = make_head_numbers(numbers);
    });
  });
  a.bias = !bias.empty();
  a.mask = !mask.empty();
  if (a.bias) x.bias = read_scores(bias, false, !as.empty());
  if (a.bias && x.bias.view.dtype != DType::f32 && x.bias.view.dtype != a.dtype)
    x.bias = convert(x.bias.view, DType::f32);
  if (a.mask) x.mask = read_scores(mask, true, false);
  return x;
}

HostTensor TensorOptions::read(const std::string& path) const { return make_view(read_npy_array(path), *this); }

HostTensor TensorOptions::read(const std::string& path,
                               const std::function<void(std::vector<std::int64_t>* shape)>& change) const {
  io::Array array = read_npy_array(path);
  change(&array.shape);
  return make_view(std::move(array), *this);
}

HostTensor TensorOptions::read_row_numbers(const std::string& path) const {
  io::Array array = read_npy_array(path);
  if (!as.empty()) require_computed(true, &array);
  if (array.shape.size() != 3 || array.kind != io::Kind::f32)
    throw UsageError{fmt::format("{}: it must be f32 with the axes (b, h, s)", path)};
  array.shape.push_back(1);
  require(io::align_to(16, &array));
  HostTensor out;
  require(io::to_tensor(array, &out.view));
  out.owner = array.owner;
  return out;
}

std::vector<std::string> layers_of(const io::Archive& archive) {
  std::vector<std::string> out;
  for (const io::Array& array : archive.arrays)
    if (ends_with(array.name, ".q")) out.push_back(array.name.substr(0, array.name.size() - 2));
  return out;
}

}  // namespace falchion::tools
