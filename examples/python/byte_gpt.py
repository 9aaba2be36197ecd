"""The model of train_bytes.py: a small GPT over bytes, whose attention is an argument."""

from torch import nn


class Block(nn.Module):
    def __init__(self, heads, width, sdpa):
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        o = self.sdpa(*qkv.unbind(2), is_causal=True)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """sdpa has the signature of torch's scaled_dot_product_attention. The weights depend on torch's
    generator alone."""

    def __init__(self, layers, heads, head_dim, length, sdpa):
        super().__init__()
        width = heads * head_dim
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(heads, width, sdpa) for _ in range(layers)])
        self.end = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, x):
        return self.end(self.blocks(self.bytes(x) + self.places.weight[: x.shape[1]]))


def draw_losses(path, curves):
    """Writes an SVG of at most two curves: losses by name. The first is drawn wide and pale, so
    that it is seen under the second."""
    count, top = len(next(iter(curves.values()))), max(map(max, curves.values()))
    x, y = 590 / max(count - 1, 1), 270 / top
    parts = ['<rect width="660" height="340" fill="#fff"/>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        height, left = 300 - 270 * share, 50 + 590 * share
        parts.append(f'<path d="M50 {height:.0f}H640" stroke="#ddd"/>')
        tick = f"{top * share:.1f}"
        parts.append(f'<text x="42" y="{height + 4:.0f}" text-anchor="end">{tick}</text>')
        step = round((count - 1) * share)
        parts.append(f'<text x="{left:.0f}" y="318" text-anchor="middle">{step}</text>')
    styles = ("stroke='#F0B94A' stroke-width='7'", "stroke='#0072B2' stroke-width='1.5'")
    for (name, losses), style, line in zip(curves.items(), styles, (50, 72)):
        points = " ".join(f"{50 + x * i:.1f},{300 - y * loss:.1f}" for i, loss in enumerate(losses))
        parts.append(f'<polyline points="{points}" fill="none" {style}/>')
        parts.append(f'<path d="M500 {line - 4}H530" {style}/>')
        parts.append(f'<text x="538" y="{line}">{name}</text>')
    parts.append('<text x="345" y="336" text-anchor="middle">step</text>')
    parts.append('<text x="8" y="16">loss</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="660" height="340" font-size="13"'
    with open(path, "w") as file:
        file.write(f"{head} font-family='sans-serif' fill='#333'>{''.join(parts)}</svg>\n")
