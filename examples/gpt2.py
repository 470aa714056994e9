"""GPT-2: a transformer that continues a text, token by token, with a cache of keys and values.

    python examples/gpt2.py                                   # random weights, a small model
    python examples/gpt2.py --weights model.safetensors       # those of a checkpoint
    python examples/gpt2.py --size gpt2-xl --count 20

Weights are named as in the checkpoints of Hugging Face (`gpt2/model.safetensors`). Tokens are given
and shown as numbers, as their texts belong to a tokenizer: `--prompt 464,1499,318`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from tgcore import Tensor, TinyJit, Variable, nn
from tgcore.uop import UOp


@dataclass(frozen=True)
class Config:
    """The sizes of a model."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    vocabulary: int = 50257
    context: int = 1024


SIZES = {
    "tiny": Config(2, 2, 64, 256, 64),
    "gpt2": Config(),
    "gpt2-medium": Config(24, 16, 1024),
    "gpt2-large": Config(36, 20, 1280),
    "gpt2-xl": Config(48, 25, 1600),
}


class Projection:
    """A linear layer with its weight as (inputs, outputs), as GPT-2 keeps it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = Tensor.normal(inputs, outputs, std=0.02, requires_grad=True)
        self.bias = Tensor.zeros(outputs, requires_grad=True)

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight, self.bias)


class Attention:
    """Causal attention; with a position, keys and values go to and come from a cache."""

    def __init__(self, config: Config) -> None:
        self.c_attn = Projection(config.width, 3 * config.width)
        self.c_proj = Projection(config.width, config.width)
        self._heads, self._context = config.heads, config.context
        self._cache: Tensor | None = None

    def __call__(self, x: Tensor, position: UOp | int | None) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(x).reshape(batch, length, 3, self._heads, -1)
        q, k, v = (parts[:, :, n].transpose(1, 2) for n in range(3))
        if position is not None:
            k, v = self._remember(k, v, position)
        causal = position is None or length != 1
        y = q.scaled_dot_product_attention(k, v, is_causal=causal)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))

    def _remember(self, k: Tensor, v: Tensor, position: UOp | int) -> tuple[Tensor, Tensor]:
        batch, heads, length, size = k.shape
        if self._cache is None:
            shape = (2, batch, heads, self._context, size)
            self._cache = Tensor.zeros(*shape, dtype=k.dtype).contiguous().realize()
        end = position + length
        self._cache[:, :, :, position:end] = k.stack(v).detach()
        known = self._cache[:, :, :, :end]
        return known[0], known[1]


class Block:
    """Attention and two layers, each added to what comes in."""

    def __init__(self, config: Config) -> None:
        self.ln_1, self.ln_2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.mlp = {
            "c_fc": Projection(config.width, 4 * config.width),
            "c_proj": Projection(4 * config.width, config.width),
        }

    def __call__(self, x: Tensor, position: UOp | int | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), position)
        return x + self.mlp["c_proj"](self.mlp["c_fc"](self.ln_2(x)).gelu())


class GPT2:
    """The model: numbers of tokens (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = [Block(config) for _ in range(config.layers)]
        self.ln_f = nn.LayerNorm(config.width)

    def __call__(self, tokens: Tensor, position: UOp | int | None = None) -> Tensor:
        """With a position, the tokens continue those that came before it."""
        length = int(tokens.shape[1])
        begin = 0 if position is None else position
        x = self.wte(tokens) + self.wpe.weight[begin : begin + length]
        for block in self.h:
            x = block(x, position)
        return self.ln_f(x) @ self.wte.weight.T  # the embedding read backwards

    def load(self, path: str) -> None:
        """The weights of a checkpoint, whichever prefix it has; masks in it are left out."""
        found = nn.state.safe_load(path)
        named = {name.removeprefix("transformer."): t for name, t in found.items()}
        own = nn.state.get_state_dict(self)
        nn.state.load_state_dict(self, {n: t for n, t in named.items() if n in own})


class Generator:
    """Chooses the likeliest token again and again. One captured step serves every position."""

    def __init__(self, model: GPT2) -> None:
        self.model = model
        self.step = TinyJit(self._step)

    def _step(self, token: Tensor, position: UOp) -> Tensor:
        return self.model(token, position)[:, -1].argmax(-1, keepdim=True).realize()

    def __call__(self, prompt: list[int], count: int) -> list[int]:
        """So many tokens that continue the prompt."""
        place = Variable("position", 1, self.model._config.context - 1)
        logits = self.model(Tensor([prompt]), 0)
        token = logits[:, -1].argmax(-1, keepdim=True).realize()
        found = [int(token.item())]
        for position in range(len(prompt), len(prompt) + count - 1):
            token = self.step(token, place.bind(position))
            found.append(int(token.item()))
        return found


def main() -> None:
    """Reads the command line, and writes tokens."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--weights", help="a checkpoint in a safetensors file")
    parser.add_argument("--prompt", default="1,2,3", help="numbers of tokens, with commas")
    parser.add_argument("--count", type=int, default=16, help="how many tokens to write")
    arguments = parser.parse_args()
    Tensor.manual_seed(0)
    model = GPT2(SIZES[arguments.size])
    if arguments.weights:
        model.load(arguments.weights)
    generate = Generator(model)
    start = time.perf_counter()
    prompt = [int(t) for t in arguments.prompt.split(",")]
    tokens = generate(prompt, arguments.count)
    print(",".join(map(str, tokens)))
    print(f"{len(tokens) / (time.perf_counter() - start):.1f} tokens a second")


if __name__ == "__main__":
    main()
