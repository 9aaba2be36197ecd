// tools/layout/html.cpp: a figure as one self-contained page: the SVG, its cells' data, and the script that answers.
#include <fmt/core.h>

#include <iterator>

#include "layout/picture.hpp"
#include "picture/xml.hpp"

namespace falchion::tools {
namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>
body { margin: 0; font: 14px/1.5 system-ui, sans-serif; color: #222; background: #fff }
#panel { position: sticky; top: 0; left: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 4px 22px; padding: 8px 22px;
  background: #fff; border-bottom: 1px solid #ccc }
#panel b { font-variant-numeric: tabular-nums } #hint { color: #555 }
svg .cells rect { cursor: crosshair } svg .cells rect.here { stroke: #000; stroke-width: 3 }
.dim { opacity: .15 }
</style>
)";

constexpr const char* kPanel = R"(<div id="panel">
<span>coordinate <b id="coordinate">-</b></span><span>offset <b id="offset">-</b></span>
<span class="memory">bank <b id="bank">-</b></span><span class="threads">thread <b id="thread">-</b></span>
<span class="threads">value <b id="value">-</b></span>
<label id="toggle"><input type="checkbox" id="swizzle" checked> swizzle</label>
<span id="hint">hover a cell; click to isolate its thread, or its bank; Esc shows all</span></div>
)";

constexpr const char* kScript = R"(
const by_id = id => document.getElementById(id), cells = [];
const size = shape => Array.isArray(shape) ? shape.reduce((n, s) => n * size(s), 1) : shape;
// A 1-D coordinate as CuTe's natural one: (3,(1,0)) of a shape (8,(2,4)).
function natural(index, shape) {
  if (!Array.isArray(shape)) return String(index);
  const parts = shape.map((mode, i) => {
    const n = size(mode), here = i + 1 < shape.length ? index % n : index;
    index = Math.floor(index / n);
    return natural(here, mode);
  });
  return '(' + parts.join(',') + ')';
}
const bank = (p, offset) => Math.floor((offset % 1024 + 1024) % 1024 * p.bits / 32) % 32;
const offset = (p, i) => (p.plain && !by_id('swizzle').checked ? p.plain : p.offset)[i];

function coordinate(p, i) {
  const row = Math.floor(i / p.shown) * p.row_step, column = i % p.shown * p.column_step;
  if (p.kind === 'thread_values') return '(' + (p.flipped ? [column, row] : [row, column]).join(',') + ')';
  return natural(row + p.rows * column, p.shape);
}
function show(p, i) {
  const has_thread = p.thread && p.thread[i] >= 0, in_memory = p.kind !== 'thread_values';
  by_id('coordinate').textContent = (p.name ? p.name + ' ' : '') + coordinate(p, i);
  by_id('offset').textContent = offset(p, i);
  by_id('bank').textContent = in_memory ? bank(p, offset(p, i)) : '-';
  by_id('thread').textContent = has_thread ? p.thread[i] : '-';
  by_id('value').textContent = has_thread ? p.value[i] : '-';
}
/// What a click keeps: the cells of one thread, or of one bank where there are no threads.
const group = cell => cell.p.thread ? cell.p.thread[cell.i] : bank(cell.p, offset(cell.p, cell.i));
let kept = null;
function isolate(value) {
  kept = value;
  for (const cell of cells) {
    const dim = value !== null && group(cell) !== value;
    cell.rect.classList.toggle('dim', dim);
    if (cell.text) cell.text.classList.toggle('dim', dim);
  }
}
/// Offsets, banks and colours of the cells with the swizzle or without it.
function recolour() {
  for (const { p, i, rect, text } of cells) {
    if (!p.plain) continue;
    const at = offset(p, i);
    if (!p.heat) rect.setAttribute('fill', pastels[bank(p, at) >> 2]);
    if (text) (text.lastElementChild || text).textContent = p.kind === 'banks' ? bank(p, at) : at;
  }
  for (const path of document.querySelectorAll('.conflicts')) path.style.display = by_id('swizzle').checked ? '' : 'none';
  isolate(null);
}

document.querySelectorAll('g.picture').forEach((g, n) => {
  const p = pictures[n], texts = g.querySelectorAll('g.labels text');
  g.querySelectorAll('g.cells rect').forEach((rect, i) => {
    rect.cell = { p, i, rect, text: texts[i] };
    cells.push(rect.cell);
  });
});
const swizzled = pictures.some(p => p.plain);
by_id('toggle').style.display = swizzled ? '' : 'none';
if (!pictures.some(p => p.thread)) document.querySelectorAll('.threads').forEach(e => e.style.display = 'none');
if (!pictures.some(p => p.kind !== 'thread_values')) document.querySelectorAll('.memory').forEach(e => e.style.display = 'none');
by_id('swizzle').checked = true;
by_id('swizzle').addEventListener('change', recolour);
let here = null;
document.addEventListener('mouseover', event => {
  if (here) here.classList.remove('here');
  here = event.target.cell ? event.target : null;
  if (!here) return;
  here.classList.add('here');
  show(here.cell.p, here.cell.i);
});
document.addEventListener('click', event => {
  if (!event.target.cell) return;
  const value = group(event.target.cell);
  isolate(value === kept ? null : value);
});
document.addEventListener('keydown', event => { if (event.key === 'Escape') isolate(null); });
)";

template <class Of>
void list(const Picture& picture, const char* name, Of of, std::string* out) {
  *out += fmt::format(",{}:[", name);
  bool first = true;
  for (const Cell& cell : picture.cells) {
    *out += fmt::format("{}{}", first ? "" : ",", of(cell));
    first = false;
  }
  *out += ']';
}

std::string data(const Picture& picture) {
  constexpr const char* kKinds[] = {"offsets", "thread_values", "banks"};
  std::string out = fmt::format(
      "{{name:{},kind:\"{}\",shape:{},rows:{},shown:{},row_step:{},column_step:{},bits:{},heat:{},flipped:{}",
      json_text(picture.name), kKinds[static_cast<int>(picture.kind)], json_tuple(picture.shape), picture.rows,
      picture.shown_columns, picture.row_step, picture.column_step, picture.element_bits,
      picture.is_heat_map() && picture.kind == Picture::Kind::offsets, picture.flipped);
  list(
      picture, "offset", [](const Cell& cell) { return cell.offset; }, &out);
  if (picture.swizzled)
    list(
        picture, "plain", [](const Cell& cell) { return cell.plain; }, &out);
  if (picture.kind != Picture::Kind::offsets) {
    list(
        picture, "thread", [](const Cell& cell) { return cell.thread; }, &out);
    list(
        picture, "value", [](const Cell& cell) { return cell.value; }, &out);
  }
  return out + "}";
}

}  // namespace

std::string figure_html(const Figure& figure) {
  std::string script = "const pastels = [";
  for (const char* pastel : kPastels) script += fmt::format("\"{}\",", pastel);
  script += "];\nconst pictures = [\n";
  for (const Picture& picture : figure.pictures) script += data(picture) + ",\n";
  return fmt::format("{}<title>{}</title></head><body>\n{}{}<script>\n\"use strict\";\n{}];{}</script></body></html>\n",
                     kHead, xml_text(figure.title), kPanel, figure_svg(figure), script, kScript);
}

}  // namespace falchion::tools
