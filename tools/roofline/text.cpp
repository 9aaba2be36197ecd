// tools/roofline/text.cpp
#include "roofline/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "command/table.hpp"

namespace falchion::tools::roofline {
namespace {

/// Four significant digits, with an exponent only far from one.
std::string digits(double x) {
  if (!(x > 0)) return "-";
  if (x < 1e-3 || x >= 1e9) return fmt::format("{:.3e}", x);
  const int before = static_cast<int>(std::floor(std::log10(x))) + 1;
  return fmt::format("{:.{}f}", x, std::clamp(4 - before, 0, 6));
}

std::string attainable_text(const Work& work, const Bound& bound) { return digits(work.flop / bound.least * 1e-12); }

/// The least and the greatest of what the devices give: "306 to 591", or one number.
std::string range(const std::vector<Device>& devices, const std::function<double(const Device&)>& value,
                  const char* format = "{:.0f}") {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const Device& device : devices) {
    low = std::min(low, value(device));
    high = std::max(high, value(device));
  }
  const std::string a = fmt::format(fmt::runtime(format), low), b = fmt::format(fmt::runtime(format), high);
  return a == b ? a : a + " to " + b;
}

Attention with(double group, bool causal, int element_bytes) {
  Attention a;
  a.h_k = a.h_q / group;
  a.causal = causal;
  a.element_bytes = element_bytes;
  return a;
}

std::string prefill_answer(const std::vector<Device>& all, int e) {
  const auto lengths = [&](double group, bool causal) {
    return range(all, [&](const Device& x) { return prefill_crossover(x, with(group, causal, e)); });
  };
  const auto share = [&](double d) {
    return range(
        all, [&](const Device& x) { return exp_share(x, d, e); }, "{:.2f}");
  };
  const bool exps = std::all_of(all.begin(), all.end(), [](const Device& x) { return x.exps > 0; });
  // Unfused: its FLOP/B tends to d / bytes, so that the ridge decides once and for all.
  const auto rises = [&](const Device& x) { return 128.0 / e > x.ridge(e); };
  Attention unfused = with(1, false, e);
  unfused.unfused = true;
  std::string naive = "memory bound at every length";
  if (std::all_of(all.begin(), all.end(), rises))
    naive = "compute bound above s " + range(all, [&](const Device& x) { return prefill_crossover(x, unfused); });
  else if (std::any_of(all.begin(), all.end(), rises))
    naive = "memory bound where the ridge is above its FLOP/B";
  std::string out = fmt::format(
      "  unfused prefill    {}: its FLOP/B tends to d / bytes = {:g} at d 128, {:g} at d 64; the ridge is {}.\n"
      "  fused prefill      compute bound above s {} (causal {}); with 8 query heads a K/V head above s {} "
      "(causal {}).\n",
      naive, 128.0 / e, 64.0 / e, range(all, [&](const Device& x) { return x.ridge(e); }), lengths(1, false),
      lengths(1, true), lengths(8, false), lengths(8, true));
  if (exps)
    out += fmt::format(
        "                     Its exponentials take {} of the products' time at d 128, {} at d 64: from 1.00 on the "
        "exp "
        "units bind too.\n",
        share(128), share(64));
  return out;
}

std::string backward_answer(const std::vector<Device>& all, int e) {
  const auto lengths = [&](double group, bool causal) {
    return range(all, [&](const Device& x) { return backward_crossover(x, with(group, causal, e)); });
  };
  return fmt::format(
      "  backward pass      compute bound above s {} (causal {}); with 8 query heads a K/V head above s {} (causal "
      "{}).\n",
      lengths(1, false), lengths(1, true), lengths(8, false), lengths(8, true));
}

std::string decode_answer(const std::vector<Device>& all, int e) {
  Attention mla;
  mla.s_q = 1;
  mla.h_q = 128;
  mla.d = 576;
  mla.d_v = 512;
  mla.element_bytes = e;
  const double intensity = mla_decode(mla).intensity();
  std::string compute, memory;
  for (const Device& x : all) {
    std::string* list = intensity > x.ridge(e) ? &compute : &memory;
    *list += (list->empty() ? "" : ", ") + x.title;
  }
  std::string which = !compute.empty() ? "compute bound on " + compute : "";
  if (!memory.empty()) which += (which.empty() ? "" : "; ") + ("memory bound on " + memory);
  return fmt::format(
      "  decode             memory bound at every length: {:.2g} FLOP/B a query row. The products bind only where the "
      "heads and tokens\n                     that share a K/V head make more than {} rows.\n"
      "  MLA decode         128 heads share a latent: {:.0f} FLOP/B, {}.\n",
      2.0 / e, range(all, [&](const Device& x) { return decode_crossover(x, e); }), intensity, which);
}

std::string linear_answer(const std::vector<Device>& all, int e) {
  const auto chunk = [&](bool spill) {
    return range(all, [&](const Device& x) { return chunk_crossover(x, 128, spill, e); });
  };
  const bool below =
      std::any_of(all.begin(), all.end(), [&](const Device& x) { return chunk_crossover(x, 128, false, e) >= 1; });
  return fmt::format(
      "  linear attention   memory bound in decode: 0.5 FLOP/B at every length. Prefill at d 128 is compute bound {},\n"
      "                     and above chunks of {} when the f32 state is spilled each chunk.\n",
      below ? "above chunks of " + chunk(false) : "at every chunk", chunk(true));
}

std::string gemm_answer(const std::vector<Device>& all, int e) {
  return fmt::format("  n x n x n product  compute bound above n {}; with few rows, above {} of them.\n",
                     range(all, [&](const Device& x) { return gemm_crossover(x, e); }),
                     range(all, [&](const Device& x) { return decode_crossover(x, e); }));
}

}  // namespace

std::string table_text(const std::vector<Device>& devices, const std::string& mode) {
  std::vector<std::string> headers = {"<", "<unit"};
  std::vector<std::vector<Row>> columns;
  for (const Device& device : devices) {
    headers.push_back(device.title);
    columns.push_back(column(device, mode));
  }
  Table table(headers);
  for (std::size_t r = 0; r < columns.front().size(); ++r) {
    const Row& row = columns.front()[r];
    std::vector<std::string> cells = {row.label, row.unit};
    for (const auto& one : columns) cells.push_back(one[r].cell());
    table.row(cells);
  }
  return table.text();
}

std::string cases_text(const Device& device, const std::vector<Case>& cases) {
  std::vector<std::string> headers = {"<shape", "GFLOP", "MB", "FLOP/B", device.memory_name + " µs"};
  if (device.l2 > 0) headers.emplace_back("L2 µs");
  headers.push_back(device.math_name + " µs");
  if (device.exps > 0) headers.emplace_back("exp units µs");
  headers.insert(headers.end(), {"TFLOP/s at most", "<  bound by"});
  Table table(headers);
  for (const Case& one : cases) {
    const Bound times = bound(device, one.work);
    std::vector<std::string> cells = {one.name, digits(one.work.flop * 1e-9), digits(one.work.hbm * 1e-6),
                                      digits(one.work.intensity()), digits(times.at(Roof::hbm) * 1e6)};
    if (device.l2 > 0) cells.push_back(digits(times.at(Roof::l2) * 1e6));
    cells.push_back(digits(times.at(Roof::math) * 1e6));
    if (device.exps > 0) cells.push_back(digits(times.at(Roof::exp) * 1e6));
    cells.push_back(attainable_text(one.work, times));
    cells.push_back("  " + binds_text(device, times));
    table.row(cells);
  }
  return table.text();
}

std::string points_text(const Device& device, const std::vector<Point>& points) {
  Table table({"<measured", "FLOP/B", "TFLOP/s", "roof TFLOP/s", "of it", "<  roof"});
  Marks marks;
  for (const Point& p : points) {
    const double roof = ceiling(device, p.intensity, p.element_bytes);
    table.row({p.name, digits(p.intensity), digits(p.flops * 1e-12), digits(roof * 1e-12), marks.share(p.flops / roof),
               "  " + (p.intensity < device.ridge(p.element_bytes) ? device.memory_name : device.math_name)});
  }
  return table.text() + marks.text();
}

std::string answer_text(const std::vector<Device>& devices, const std::string& mode, int element_bytes) {
  std::string out =
      fmt::format("{} memory bound or compute bound? On {}:\n", mode == "gemm" ? "Is a product" : "Is attention",
                  devices.size() == 1 ? devices.front().title : "these devices");
  if (mode.empty() || mode == "prefill") out += prefill_answer(devices, element_bytes);
  if (mode == "backward") out += backward_answer(devices, element_bytes);
  if (mode.empty() || mode == "decode") out += decode_answer(devices, element_bytes);
  if (mode.empty() || mode == "linear") out += linear_answer(devices, element_bytes);
  if (mode.empty() || mode == "gemm") out += gemm_answer(devices, element_bytes);
  return out;
}

double ceiling(const Device& device, double intensity, int element_bytes) {
  return std::min(intensity * device.hbm, device.flops(element_bytes));
}

Json device_json(const Device& device, const std::string& mode, int element_bytes) {
  const std::vector<Row> rows = column(device, mode);
  std::vector<Json::Member> table;
  for (const Row& row : rows) {
    const Json entry = Json::object({{"label", row.label}, {"unit", row.unit}, {"text", row.cell()}});
    const std::vector<Json> values(row.values.begin(), row.values.end());
    table.emplace_back(row.key, values.empty() ? entry : entry.with("values", Json::array(values)));
  }
  const auto length = [&](double group, bool causal) {
    return prefill_crossover(device, with(group, causal, element_bytes));
  };
  Attention unfused = with(1, false, element_bytes);
  unfused.unfused = true;
  const Json above = Json::object({{"prefill_s_mha", length(1, false)},
                                   {"prefill_s_mha_causal", length(1, true)},
                                   {"prefill_s_gqa8", length(8, false)},
                                   {"prefill_s_gqa8_causal", length(8, true)},
                                   {"prefill_s_unfused_d128", prefill_crossover(device, unfused)},
                                   {"decode_rows_per_kv_head", decode_crossover(device, element_bytes)},
                                   {"linear_chunk_d128", chunk_crossover(device, 128, false, element_bytes)},
                                   {"linear_chunk_d128_spilled", chunk_crossover(device, 128, true, element_bytes)},
                                   {"gemm_n", gemm_crossover(device, element_bytes)}});
  return Json::object({{"device", device.key},
                       {"title", device.title},
                       {"source", device.source},
                       {"flops_per_second", device.flops(element_bytes)},
                       {"memory_bytes_per_second", device.hbm},
                       {"l2_bytes_per_second", device.l2},
                       {"exps_per_second", device.exps},
                       {"ridge_flop_per_byte", device.ridge(element_bytes)},
                       {"table_bf16", Json::object(table)},
                       {"compute_bound_above", above}});
}

Json case_json(const Device& device, const Case& one) {
  const Bound times = bound(device, one.work);
  const char* names[kRoofs] = {"memory", "l2", "products", "exponentials"};
  std::vector<Json::Member> seconds;
  for (std::size_t i = 0; i < kRoofs; ++i)
    if (times.seconds[i] > 0) seconds.emplace_back(names[i], times.seconds[i]);
  std::vector<Json> binds;
  for (const Roof roof : times.binds) binds.emplace_back(names[static_cast<std::size_t>(roof)]);
  return Json::object({{"device", device.key},
                       {"shape", one.name},
                       {"flop", one.work.flop},
                       {"bytes", one.work.hbm},
                       {"l2_bytes", one.work.l2},
                       {"exponentials", one.work.exps},
                       {"flop_per_byte", one.work.intensity()},
                       {"seconds", Json::object(seconds)},
                       {"seconds_at_least", times.least},
                       {"flops_per_second_at_most", one.work.flop / times.least},
                       {"bound_by", Json::array(binds)}});
}

Json point_json(const Device& device, const Point& p) {
  return Json::object({{"name", p.name},
                       {"series", p.series},
                       {"flop_per_byte", p.intensity},
                       {"flops_per_second", p.flops},
                       {"share_of_roof", p.flops / ceiling(device, p.intensity, p.element_bytes)}});
}

}  // namespace falchion::tools::roofline
