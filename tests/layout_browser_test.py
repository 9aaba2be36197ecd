#!/usr/bin/env python3
# tests/layout_browser_test.py: tests the pages of `falchion layout --format html` in headless Chromium: what a reader
# sees who hovers, clicks and toggles. Usage: layout_browser_test.py FALCHION. It exits with 77 where there is no
# Chromium.
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# This script is injected behind the page's own one. It acts as a reader does, and leaves in the document what the panel
# then says.
DRIVER = """<pre id="seen"></pre><script>
const seen = [], tell = what => seen.push(what);
const rect = (picture, i) => document.querySelectorAll('g.picture')[picture].querySelectorAll('g.cells rect')[i];
const fire = (element, type) => element.dispatchEvent(new MouseEvent(type, { bubbles: true }));
const panel = () => Object.fromEntries(['coordinate', 'offset', 'bank', 'thread', 'value'].map(
  id => [id, document.getElementById(id).textContent]));
function hover(picture, i) { fire(rect(picture, i), 'mouseover'); tell(panel()); }
function click(picture, i) { fire(rect(picture, i), 'click'); tell(document.querySelectorAll('svg .cells rect.dim').length); }
function toggle() { document.getElementById('swizzle').click(); }
const label = (picture, i) => tell(document.querySelectorAll('g.picture')[picture].querySelectorAll('g.labels text')[i].textContent);
const shown = id => tell(document.getElementById(id).style.display !== 'none');
%s
document.getElementById('seen').textContent = JSON.stringify(seen);
</script></body>"""


def cell(coordinate, offset, bank, thread="-", value="-"):
    return {"coordinate": coordinate, "offset": str(offset), "bank": str(bank), "thread": str(thread), "value": str(value)}


SWIZZLED = "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)"
# Each case has the arguments, what the reader does, and what must be seen. The offsets and banks were worked out by
# hand from the swizzle.
CASES = [
    ([ "table", SWIZZLED ],
     "hover(0, 0); hover(0, 64); hover(0, 2 * 64 + 16); label(0, 64); toggle(); hover(0, 64); label(0, 64); toggle(); hover(0, 64); shown('toggle')",
     [cell("(0,0)", 0, 0), cell("(1,0)", 72, 4), cell("(2,16)", 128, 0), "72", cell("(1,0)", 64, 0), "64", cell("(1,0)", 72, 4), True]),
    ([ "table", "(4,(2,4)):(2,(1,8))" ],
     "hover(0, 0); hover(0, 1); hover(0, 8 + 5); shown('toggle')",
     [cell("(0,(0,0))", 0, 0), cell("(0,(1,0))", 1, 0), cell("(1,(1,2))", 19, 9), False]),
    # T4 V0 of A is (1,0) and T31 V7 of A is (15,15). T31 V3 of C is (15,7). Of the 256 + 128 + 128 cells of A, B and C,
    # T5 has 8 in A, 4 in B and 4 in C.
    ([ "mma", "SM80_16x8x16" ],
     "hover(1, 16); hover(1, 255); hover(2, 55); hover(0, 127); click(1, 16 + 2); click(1, 16 + 2)",
     [cell("A (1,0)", 1, "-", 4, 0), cell("A (15,15)", 255, "-", 31, 7), cell("B (7,6)", 55, "-", 31, 0), cell("C (15,7)", 127, "-", 31, 3),
      512 - 16, 0]),
    ([ "banks", "(16,64):(64,1)", "--access", "ldmatrix.x4" ],
     "hover(0, 64); hover(0, 63); click(0, 64); tell(document.querySelectorAll('.conflicts').length)",
     [cell("(1,0)", 64, 0, 1, 0), cell("(0,63)", 63, 31), 1024 - 8, 1]),
    ([ "print", "(256,256):(256,1)" ], "hover(0, 128 + 1)", [cell("(2,2)", 514, 1)]),
]


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"))), None)


def seen_by(chromium, page, folder):
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={folder}/profile", "--virtual-time-budget=2000", "--dump-dom", "file://" + page]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    found = re.search(r'<pre id="seen">(.*?)</pre>', out, re.S)
    return json.loads(html.unescape(found.group(1))) if found and found.group(1) else None


def main():
    falchion, chromium = sys.argv[1], browser()
    if chromium is None:
        print("there is no chromium here")
        return 77
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (arguments, actions, expected) in enumerate(CASES):
            page = os.path.join(folder, f"{i}.html")
            subprocess.run([falchion, "layout", *arguments, "--format", "html", "-o", page], check=True, stdout=subprocess.DEVNULL)
            with open(page, encoding="utf-8") as file:
                text = file.read()
            assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "the page must be self-contained"
            with open(page, "w", encoding="utf-8") as file:
                file.write(text.replace("</body>", DRIVER % actions))
            got = seen_by(chromium, page, folder)
            ok = got == expected
            bad += not ok
            print(f"{'ok' if ok else 'FAILED'}: {' '.join(arguments)}")
            if not ok:
                print(f"  did      {actions}\n  expected {expected}\n  saw      {got}")
    return 1 if bad else 0


sys.exit(main())
