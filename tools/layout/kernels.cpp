// tools/layout/kernels.cpp: `falchion layout explain`: every layout of one of Falchion's own kernels, and its shared
// memory added up.
#include "layout/kernels.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "command/table.hpp"
#include "layout/request.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using layout::Kernel, layout::KernelLayout;

Answer list_of_kernels() {
  Answer out;
  Table table({"<kernel", "rows", "keys", "head dim", "of V", "threads", "stages", "CTAs an SM", "shared bytes"});
  for (const Kernel& k : layout::kernels()) {
    table.row({std::string(k.name), std::to_string(k.rows), std::to_string(k.keys), std::to_string(k.d),
               std::to_string(k.d_v), std::to_string(k.threads), std::to_string(k.stages), std::to_string(k.ctas),
               std::to_string(k.shared_bytes)});
    out.facts.emplace_back(k.name, fmt::format("{} bytes", k.shared_bytes));
  }
  out.figure.title = "attention_forward, f16 and bf16";
  out.text = table.text();
  return out;
}

/// The contents of shared memory, line by line, and its size.
std::string budget(const Kernel& kernel) {
  Table table({"<shared memory", "bytes", "<how"});
  std::int64_t sum = 0;
  for (const KernelLayout& item : layout::kernel_layouts(kernel.name)) {
    if (item.bytes == 0) continue;
    const layout::Layout whole = layout::parse_layout(item.print).layout;
    const std::int64_t once = 2 * whole.size();  // bytes: of all stages where the layout has a mode for them
    table.row({std::string(item.name), std::to_string(item.bytes),
               once == item.bytes ? fmt::format("{} elements of 2 bytes", whole.size())
                                  : fmt::format("{} elements of 2 bytes, {} stages", whole.size(), item.bytes / once)});
    sum += item.bytes;
  }
  if (kernel.shared_bytes > sum)
    table.row({"barriers, tile records", std::to_string(kernel.shared_bytes - sum), "and what aligns the tiles"});
  table.rule();
  const std::int64_t of_sm = std::int64_t{228} << 10, with_reserve = kernel.ctas * (kernel.shared_bytes + 1024);
  table.row({"a CTA", std::to_string(kernel.shared_bytes),
             fmt::format("{:.1f} KiB", static_cast<double>(kernel.shared_bytes) / 1024)});
  table.row({fmt::format("{} CTA{} an SM", kernel.ctas, kernel.ctas > 1 ? "s" : ""), std::to_string(with_reserve),
             fmt::format("with 1024 each that CUDA keeps; an H100's SM has {}", of_sm)});
  return table.text();
}

std::vector<Picture> pictures_of(const Kernel& kernel) {
  std::vector<Picture> out;
  std::int64_t left = 0;
  for (const KernelLayout& item : layout::kernel_layouts(kernel.name)) {
    if (item.name.front() != 's') continue;
    out.push_back(draw_layout(layout::parse_layout(item.print), 16, std::string(item.name)));
    out.back().left = left;
    left += out.back().shown_columns + 12;
  }
  return out;
}

}  // namespace

Answer answer_explain(const LayoutRequest& request) {
  if (request.args.empty()) return list_of_kernels();
  const Kernel* kernel = layout::find_kernel(request.arg(0));
  if (kernel == nullptr)
    throw UsageError{
        fmt::format("layout explain: there is no kernel \"{}\"; falchion layout explain lists them", request.arg(0))};
  Answer out;
  out.figure.title = std::string(kernel->name);
  out.figure.subtitle = fmt::format(
      "{} query rows x {} keys, head dim {}, {} threads, {} stage{} of K and V", kernel->rows, kernel->keys,
      kernel->d == kernel->d_v ? std::to_string(kernel->d) : fmt::format("{}, of V {}", kernel->d, kernel->d_v),
      kernel->threads, kernel->stages, kernel->stages > 1 ? "s" : "");
  out.text = fmt::format("{}: {}\n\n{}\n", kernel->name, out.figure.subtitle, budget(*kernel));
  std::string dotted(kernel->name);
  std::replace(dotted.begin(), dotted.end(), ':', '.');
  for (const KernelLayout& item : layout::kernel_layouts(kernel->name)) {
    out.text += fmt::format("{:<11}{}\n           {}\n", item.name, item.what, item.print);
    out.facts.emplace_back(item.name, item.print);
  }
  out.facts.emplace_back("shared bytes", std::to_string(kernel->shared_bytes));
  out.text += fmt::format("\nEach is a name in an expression: falchion layout table {}.sK\n", dotted);
  out.figure.compact = true;
  if (request.draw) out.figure.pictures = pictures_of(*kernel);
  return out;
}

}  // namespace falchion::tools
