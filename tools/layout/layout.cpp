// tools/layout/layout.cpp: `falchion layout` computes with CuTe's layouts at the command line, and prints the results
// like CuTe, and as pictures.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "command/file_names.hpp"
#include "command/table.hpp"
#include "layout/request.hpp"
#include "problem/files.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

constexpr LayoutVerb kVerbs[] = {
    {"print", "EXPR", "as CuTe's print gives it", 1, 1, answer_print},
    {"info", "EXPR", "rank, size, cosize, is it injective, how wide may a copy be", 1, 1, answer_info},
    {"table", "EXPR", "print_layout; with --elem print_tensor", 1, 1, answer_table},
    {"coords", "SHAPE", "each coordinate: 1-D, by mode, natural", 1, 1, answer_coords},
    {"idx", "COORD EXPR", "coordinate -> index and offset", 2, 2, answer_idx},
    {"crd", "INDEX EXPR", "index -> coordinate and offset", 2, 2, answer_crd},
    {"coalesce", "EXPR", "fewest modes, the same offsets (--by-mode: each mode by itself)", 1, 1, answer_coalesce},
    {"compose", "A B", "B first, then A", 2, 2, answer_compose},
    {"complement", "LAYOUT N", "the layout that fills up what another leaves of N", 2, 2, answer_complement},
    {"divide", "EXPR TILER", "cut into tiles, --kind logical|zipped|tiled|flat", 2, 2, answer_divide},
    {"product", "LAYOUT TILER", "repeat, --kind logical|zipped|tiled|flat|blocked|raked", 2, 2, answer_product},
    {"tile-to-shape", "ATOM SHAPE", "repeat an atom over a shape, --order", 2, 2, answer_tile_to_shape},
    {"inverse", "left|right LAYOUT", "offset -> index", 2, 2, answer_inverse},
    {"recast", "EXPR 16b 8b", "the same bytes as elements of another width", 3, 3, answer_recast},
    {"slice", "EXPR COORD", "what an underscore keeps: slice EXPR '(_,0,1)'", 2, 2, answer_slice},
    {"local-tile", "EXPR TILE COORD", "one tile, and where it begins", 3, 3, answer_local_tile},
    {"local-partition", "EXPR THREADS T", "what thread T has of a tile", 3, 3, answer_local_partition},
    {"swizzle", "[SW] EXPR", "before and after", 1, 2, answer_swizzle},
    {"mma", "[ATOM]", "thread-value layouts of A, B, C, --atoms 4,1,1 --tile 64,16,16", 0, 1, answer_mma},
    {"copy", "[ATOM]", "a copy's, --thr L --val L, and --thread 10 --on EXPR", 0, 1, answer_copy},
    {"banks", "EXPR", "wavefronts of a warp, --access ldmatrix.x4 --elem 16b --tile 16x16 --at 0,0", 1, 1,
     answer_banks},
    {"compat", "A B", "may a coordinate of shape A be one of B?", 2, 2, answer_compat},
    {"explain", "[KERNEL]", "every layout of a kernel of ours, and its shared memory", 0, 1, answer_explain},
};

std::string footer() {
  std::string out = "Verbs:\n";
  for (const LayoutVerb& verb : kVerbs)
    out += fmt::format("  {:<16}{:<19}{}\n", verb.name, verb.arguments, verb.meaning);
  return out +
         "\nEXPR is what CuTe prints, such as 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)', or (8,64) (first mode fastest),\n"
         "(8,64):R (last one), sQ sK sV sVt acc_s (of sm80:plain:128), mma:SM80_16x8x16.A, sm90.plain.64.sQ, or\n"
         "what --define gave a name. TILER: an EXPR, or one a mode: '<3:3,(2,4):(1,8)>'.\n"
         "\nExamples:\n"
         "  falchion layout table 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)'\n"
         "  falchion layout banks sQ --access ldmatrix.x4 --format html -o banks.html\n"
         "  falchion layout mma SM80_16x8x16 --atoms 4,1,1 --tile 64,16,16 --format svg -o mma.svg\n";
}

struct Options {
  LayoutRequest request;
  std::string format = "text", out;
};

Answer answer(const LayoutRequest& request) {
  for (const LayoutVerb& verb : kVerbs) {
    if (request.verb != verb.name) continue;
    const std::size_t n = request.args.size();
    if (n < verb.least || n > verb.most)
      throw UsageError{fmt::format("layout {}: {} argument{} given; it is: falchion layout {} {}", verb.name, n,
                                   n == 1 ? "" : "s", verb.name, verb.arguments)};
    return verb.answer(request);
  }
  throw UsageError{fmt::format("layout: there is no verb \"{}\"; falchion layout --help lists them", request.verb)};
}

std::string formatted(const Answer& answer, const std::string& format, const std::string& verb) {
  if (format == "text") return answer.text;
  if (format == "json") return answer_json(answer);
  if (answer.figure.pictures.empty())
    throw UsageError{fmt::format("layout {}: there is no picture of this; --format text or json", verb)};
  return format == "svg"    ? figure_svg(answer.figure)
         : format == "html" ? figure_html(answer.figure)
                            : figure_latex(answer.figure);
}

/// The arguments of a verb that an operation works on, which are EXPR and SHAPE in the verb's line of the list.
std::vector<bool> operands(const LayoutRequest& request) {
  const auto verb = std::ranges::find(kVerbs, request.verb, &LayoutVerb::name);
  std::vector<bool> out;
  std::istringstream words(verb->arguments);
  for (std::string word; words >> word;) out.push_back(std::isupper(static_cast<unsigned char>(word[0])) != 0);
  out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(request.args.size()));  // [SW] may be left out
  return out;
}

/// If an operation refuses operands that are valid expressions, the error names their position in the call.
[[noreturn]] void refuse(const LayoutRequest& request, const layout::Error& error) {
  constexpr std::size_t kShown = 160;
  const std::vector<bool> is_operand = operands(request);
  std::string call = request.verb, marks, places;
  for (std::size_t i = 0; i < is_operand.size(); ++i) {
    call += ' ';
    if (is_operand[i]) {
      places += (places.empty() ? "" : ", ") + std::to_string(call.size());
      marks += std::string(call.size() - marks.size(), ' ') + '^';
    }
    for (const char c : request.args[i]) call += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  if (marks.empty()) throw UsageError{fmt::format("layout {}: {}", request.verb, error.what())};
  const std::string shown = call.size() > kShown ? "" : fmt::format("\n  {}\n  {}", call, marks);
  throw UsageError{fmt::format("layout {}: at character{} {}: {}{}", request.verb,
                               places.find(',') == places.npos ? "" : "s", places, error.what(), shown)};
}

/// Refuses an option that the verb does not use.
void check_use(const Options& options, const Given& given) {
  const std::string& verb = options.request.verb;
  constexpr std::pair<const char*, const char*> kOf[] = {{"--kind", "divide product"},
                                                         {"--by-mode", "coalesce"},
                                                         {"--order", "tile-to-shape"},
                                                         {"--atoms", "mma"},
                                                         {"--tile", "mma banks"},
                                                         {"--thr", "copy"},
                                                         {"--val", "copy"},
                                                         {"--thread", "copy"},
                                                         {"--on", "copy"},
                                                         {"--access", "banks"},
                                                         {"--at", "banks"},
                                                         {"--threads", "banks"}};
  for (const auto& [option, verbs] : kOf) {
    std::istringstream words(verbs);
    const bool used =
        std::find(std::istream_iterator<std::string>(words), {}, verb) != std::istream_iterator<std::string>();
    if (!used) given.refuse({option}, fmt::format("layout {} has no use for it; it belongs to {}", verb, verbs));
  }
  if (options.request.on.empty()) given.refuse({"--thread"}, "there is no --on of which it could be a part");
  if (!options.request.threads.empty()) given.refuse({"--tile", "--at"}, "--threads says where each thread reads");
  FileNames().writes("--out", options.out);
}

int run(Options options) {
  LayoutRequest& request = options.request;
  request.draw = options.format != "text";
  std::string text;
  try {
    text = formatted(answer(request), options.format, request.verb);
  } catch (const layout::Error& error) { refuse(request, error); }
  if (options.out.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_text(options.out, text);
    fmt::print("{} ({})\n", options.out, format_bytes(static_cast<double>(text.size())));
  }
  return exit_ok;
}

}  // namespace

void add_layout(Command& command) {
  const auto options = std::make_shared<Options>();
  LayoutRequest& request = options->request;
  std::vector<std::string> verbs;
  for (const LayoutVerb& verb : kVerbs) verbs.emplace_back(verb.name);
  command.positional("verb", &request.verb, verbs, true, "What to do; the list is below");
  command.positionals("args", &request.args, "Layouts, shapes, coordinates");
  command.group("Reading");
  command.flag("--dynamic", &request.dynamic, "As CuTe prints: 8 is dynamic, _8 static; otherwise both are static");
  command.repeated("--define", &request.defines, "A name for an expression", "NAME=EXPR");
  command.text("--elem", &request.element, "Width of an element: 8b, 16b, 32b", "BITS");
  command.group("For one verb");
  command.choice("--kind", &request.kind, {"logical", "zipped", "tiled", "flat", "blocked", "raked"},
                 "Of divide and product");
  command.flag("--by-mode", &request.by_mode, "coalesce: the rank stays");
  command.text("--order", &request.order, "tile-to-shape: which mode comes first, as in CuTe's Step: (2,1)", "TUPLE");
  command.text("--atoms", &request.atoms, "mma: how many along M, N, K", "M,N,K");
  command.text("--tile", &request.tile, "mma: M,N,K of the tile; banks: ROWSxCOLUMNS", "TILE");
  command.text("--thr", &request.thread_layout, "copy: the layout of threads", "LAYOUT");
  command.text("--val", &request.value_layout, "copy: the layout of a thread's values", "LAYOUT");
  command.integer("--thread", &request.thread, 0, 1 << 20, "copy: whose part of --on");
  command.text("--on", &request.on, "copy: the tensor that is cut up", "EXPR");
  command.text("--access", &request.access, "banks: ldmatrix.x4[.trans], lds32, sts128, cp.async16, ...", "ACCESS");
  command.text("--at", &request.at, "banks: the corner of the tile", "ROW,COLUMN");
  command.text("--threads", &request.threads, "banks: thread -> 1-D coordinate, in place of --tile", "LAYOUT");
  command.group("Output");
  command.choice("--format", &options->format, {"text", "svg", "html", "latex", "json"}, "How to answer");
  command.text("-o,--out", &options->out, "Where to; otherwise stdout", "FILE");
  command.footer(footer());
  command.run([options](const Given& given) {
    check_use(*options, given);
    return run(*options);
  });
}

}  // namespace falchion::tools
