"""ViT: a transformer for pictures, which it reads as a row of patches (Dosovitskiy and others,
"An image is worth 16x16 words", 2021).

python examples/vit.py
"""

from __future__ import annotations

import time

from tgcore import Tensor, TinyJit, nn


class Layer:
    """Attention and a small network over the patches, each added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        self._heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).rearrange("b n (k h d) -> k b h n d", k=3, h=self._heads)
        seen = parts[0].scaled_dot_product_attention(parts[1], parts[2])
        x = x + self.proj(seen.rearrange("b h n d -> b n (h d)"))
        return x + self.fc2(self.fc1(self.norm2(x)).gelu("none"))


class ViT:
    """Pictures (batch, 3, size, size) to logits (batch, classes)."""

    def __init__(
        self,
        size: int = 224,
        patch: int = 16,
        width: int = 192,
        layers: int = 12,
        heads: int = 3,
        classes: int = 1000,
    ) -> None:
        if size % patch or width % heads:
            raise ValueError("patches must divide the size, and heads the width")
        count = (size // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.cls_token = Tensor.zeros(1, 1, width, requires_grad=True)
        self.position = Tensor.normal(1, count + 1, width, std=0.02, requires_grad=True)
        self.layers = [Layer(width, heads) for _ in range(layers)]
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def __call__(self, x: Tensor) -> Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        start = self.cls_token.expand(rows.shape[0], -1, -1)
        x = (start.cat(rows, dim=1) + self.position).sequential(self.layers)
        return self.head(self.norm(x)[:, 0])


def main() -> None:
    """Times a ViT-Tiny on noise."""
    model = ViT()
    run = TinyJit(lambda x: model(x).realize())
    picture = Tensor.rand(1, 3, 224, 224).realize()
    for _ in range(3):
        start = time.perf_counter()
        best = int(run(picture).argmax().item())
        print(f"class {best}, {(time.perf_counter() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
