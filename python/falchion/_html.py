"""What notebooks show of an explanation: a table, the rejected paths folded, and the band as a picture."""

from html import escape
from typing import Any

SIDE = 132  # the longer side of the picture, in pixels


def band_svg(problem: dict[str, Any]) -> str:
    """Which keys (to the right) each query (downwards) sees: the filled area."""
    rows, keys = int(problem["s_q"]), int(problem["s_k"])
    if rows <= 0 or keys <= 0:
        return ""
    height = max(8.0, SIDE * rows / max(rows, keys))
    width = max(8.0, SIDE * keys / max(rows, keys))
    band = problem["band"]
    shift = keys - rows if band["align"] == "bottom_right" else band["offset"]
    left = keys + rows if band["left"] < 0 else band["left"]
    right = keys + rows if band["right"] < 0 else band["right"]

    def column(key: float) -> float:
        return round(min(max(key, 0), keys) / keys * width, 2)

    # The edges bend where they reach the first and the last key.
    bends = {0, rows}
    for side in (-left, right + 1):
        bends |= {min(max(edge - shift - side, 0), rows) for edge in (0, keys)}
    first = [(column(i + shift - left), i / rows * height) for i in sorted(bends)]
    last = [(column(i + shift + right + 1), i / rows * height) for i in sorted(bends, reverse=True)]
    points = " ".join(f"{x:g},{round(y, 2):g}" for x, y in first + last)
    return (
        f'<svg width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>{rows} queries (down) and the keys of {keys} that each sees</title>"
        f'<rect width="{width:g}" height="{height:g}" fill="#8882"/>'
        f'<polygon points="{points}" fill="#2a78d6"/></svg>'
    )


def explanation_html(story: dict[str, Any]) -> str:
    """A table of the text's lines, each a name and from column 12 on what it says."""
    lines = [line for line in story["text"] if not line.startswith(" ") and line != "paths"]
    rows = []
    for line in lines:
        name, says = line[:12].strip(), line[12:].strip()
        rows.append(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(says)}</td></tr>"
        )
    paths = "".join(
        f"<li><code>{escape(path['path'])}</code> {escape(path['reason'])}</li>" for path in story.get("rejected", [])
    )
    folded = f"<details><summary>paths not taken</summary><ul>{paths}</ul></details>" if paths else ""
    picture = band_svg(story["problem"]) if "band" in story["problem"] else ""
    return f"<div>{picture}<table>{''.join(rows)}</table>{folded}</div>"
