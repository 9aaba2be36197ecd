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
    """Writes an SVG of at most two curves: losses by name."""
    top, parts = max(max(losses) for losses in curves.values()), []
    for (name, losses), colour, y in zip(curves.items(), ("#E69F00", "#0072B2"), (30, 50)):
        step, scale = 600 / max(len(losses) - 1, 1), 270 / top
        points = " ".join(
            f"{40 + step * i:.1f},{300 - scale * x:.1f}" for i, x in enumerate(losses)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        parts.append(f'<text x="560" y="{y}" fill="{colour}">{name}</text>')
    parts.append('<path d="M40 20V300H640" fill="none" stroke="#777"/>')
    parts.append(f'<text x="8" y="34">{top:.1f}</text><text x="560" y="316">step</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="660" height="320" font-size="13">'
    with open(path, "w") as file:
        file.write(f"{head}{''.join(parts)}</svg>\n")
