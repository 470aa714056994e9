"""The example models against torch's modules with the same weights: results and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from examples.gpt2 import GPT2, SIZES, Generator
from examples.resnet import ResNet
from examples.vit import ViT
from tgcore import Tensor, nn
from tgcore.helpers import JIT


def give_weights(model: Any, weights: dict[str, torch.Tensor]) -> None:
    """All weights of the same names; each of ours has one."""
    given = {n: Tensor(t.detach().numpy()) for n, t in weights.items()}
    own = nn.state.get_state_dict(model)
    assert own.keys() <= given.keys()
    nn.state.load_state_dict(model, {n: given[n] for n in own})
    for name, tensor in own.items():
        tensor.requires_grad = "running" not in name and "num_batches" not in name


def assert_gradients(model: Any, weights: dict[str, torch.Tensor]) -> None:
    own = nn.state.get_state_dict(model)
    Tensor.realize(*[t.grad for t in own.values() if t.grad is not None])
    checked = 0
    for name, tensor in own.items():
        if tensor.requires_grad:
            expected = weights[name].grad
            assert tensor.grad is not None and expected is not None, name
            scale = max(1.0, float(expected.abs().max()))
            np.testing.assert_allclose(
                tensor.grad.numpy() / scale, expected.numpy() / scale, atol=1e-3, err_msg=name
            )
            checked += 1
    assert checked > 10


# *** GPT-2 ***


class TorchBlock(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        shapes = {
            "attn.c_attn": (width, 3 * width),
            "attn.c_proj": (width, width),
            "mlp.c_fc": (width, 4 * width),
            "mlp.c_proj": (4 * width, width),
        }
        for name, shape in shapes.items():
            weight = torch.nn.Parameter(torch.randn(shape) * 0.1)
            self.register_parameter(f"{name}.weight".replace(".", "/"), weight)
            bias = torch.nn.Parameter(torch.randn(shape[1]) * 0.1)
            self.register_parameter(f"{name}.bias".replace(".", "/"), bias)

    def project(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self._parameters[f"{name}/weight"] + self._parameters[f"{name}/bias"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.project("attn/c_attn", self.ln_1(x))
        q, k, v = (
            p.reshape(batch, length, self.heads, -1).transpose(1, 2) for p in parts.split(width, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project("attn/c_proj", seen.transpose(1, 2).reshape(batch, length, width))
        inner = F.gelu(self.project("mlp/c_fc", self.ln_2(x)), approximate="tanh")
        return x + self.project("mlp/c_proj", inner)


class TorchGPT2(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = SIZES["tiny"]
        self.wte = torch.nn.Embedding(size.vocabulary, size.width)
        self.wpe = torch.nn.Embedding(size.context, size.width)
        self.h = torch.nn.ModuleList(TorchBlock(size.width, size.heads) for _ in range(size.layers))
        self.ln_f = torch.nn.LayerNorm(size.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def named(self) -> dict[str, torch.Tensor]:
        return {n.replace("/", "."): p for n, p in self.named_parameters()}


@pytest.fixture
def gpt2() -> tuple[TorchGPT2, GPT2]:
    torch.manual_seed(0)
    theirs, ours = TorchGPT2(), GPT2(SIZES["tiny"])
    give_weights(ours, theirs.named())
    return theirs, ours


def test_gpt2_is_torchs(gpt2: tuple[TorchGPT2, GPT2]) -> None:
    theirs, ours = gpt2
    tokens = np.random.default_rng(0).integers(0, 256, (2, 12)).astype(np.int32)
    expected = theirs(torch.tensor(tokens, dtype=torch.long))
    found = ours(Tensor(tokens))
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), atol=1e-4)
    targets = np.roll(tokens, -1, 1)
    loss = F.cross_entropy(
        expected.flatten(0, 1), torch.tensor(targets, dtype=torch.long).flatten()
    )
    loss.backward()
    found.flatten(0, 1).cross_entropy(Tensor(targets).flatten()).backward()
    assert_gradients(ours, theirs.named())


def test_gpt2_with_a_cache_writes_what_it_writes_without(gpt2: tuple[TorchGPT2, GPT2]) -> None:
    theirs, ours = gpt2
    tokens = [5, 17, 200]
    for _ in range(10):
        logits = theirs(torch.tensor([tokens]))
        tokens.append(int(logits[0, -1].argmax()))
    generate = Generator(ours)
    assert generate(tokens[:3], 10) == tokens[3:]
    assert (generate.step.captured is not None) == bool(JIT)
    assert generate(tokens[:3], 10) == tokens[3:]  # over the old cache


def test_gpt2_reads_checkpoints(gpt2: tuple[TorchGPT2, GPT2], tmp_path: Path) -> None:
    _, ours = gpt2
    saved = {f"transformer.{n}": t for n, t in nn.state.get_state_dict(ours).items()}
    saved["transformer.h.0.attn.bias"] = Tensor.ones(1, 1, 4, 4)  # a mask, as older ones have
    nn.state.safe_save(saved, tmp_path / "model.safetensors")
    other = GPT2(SIZES["tiny"])
    other.load(str(tmp_path / "model.safetensors"))
    tokens = Tensor([[1, 2, 3]])
    np.testing.assert_array_equal(other(tokens).numpy(), ours(tokens).numpy())


# *** ResNet ***


class TorchBottleneck(torch.nn.Module):
    def __init__(self, sizes: list[tuple[int, int, int, int]], down: bool) -> None:
        super().__init__()
        for n, (inputs, outputs, kernel, stride) in enumerate(sizes, 1):
            conv = torch.nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
            self.add_module(f"conv{n}", conv)
            self.add_module(f"bn{n}", torch.nn.BatchNorm2d(outputs))
        self.count = len(sizes)
        if down:
            stride = max(s for _, _, _, s in sizes)
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(sizes[0][0], sizes[-1][1], 1, stride, bias=False),
                torch.nn.BatchNorm2d(sizes[-1][1]),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for n in range(1, self.count + 1):
            y = self._modules[f"bn{n}"](self._modules[f"conv{n}"](y))
            y = y.relu() if n < self.count else y
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


def torch_resnet(layers: int, width: int, classes: int) -> torch.nn.Module:
    """The network as torchvision builds it."""
    model = torch.nn.Sequential()
    model.add_module("conv1", torch.nn.Conv2d(3, width, 7, 2, 3, bias=False))
    model.add_module("bn1", torch.nn.BatchNorm2d(width))
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("maxpool", torch.nn.MaxPool2d(3, 2, 1))
    inputs, wide = width, 4 if layers == 50 else 1
    for stage, count in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[layers]):
        blocks = []
        w = width << stage
        for n in range(count):
            stride = 2 if stage and not n else 1
            if layers == 50:
                sizes = [(inputs, w, 1, 1), (w, w, 3, stride), (w, 4 * w, 1, 1)]
            else:
                sizes = [(inputs, w, 3, stride), (w, w, 3, 1)]
            blocks.append(TorchBottleneck(sizes, stride != 1 or inputs != w * wide))
            inputs = w * wide
        model.add_module(f"layer{stage + 1}", torch.nn.Sequential(*blocks))
    model.add_module("pool", torch.nn.AdaptiveAvgPool2d(1))
    model.add_module("flat", torch.nn.Flatten())
    model.add_module("fc", torch.nn.Linear(inputs, classes))
    return model


@pytest.mark.parametrize("layers", [18, 50])
def test_resnet_is_torchs(layers: int) -> None:
    torch.manual_seed(1)
    theirs, ours = torch_resnet(layers, 8, 10), ResNet(layers, 10, 8)
    x = np.random.default_rng(0).standard_normal((4, 3, 32, 32))
    with torch.no_grad():
        theirs(torch.tensor(x, dtype=torch.float32))  # running averages of their own
    give_weights(ours, dict(theirs.state_dict()))
    expected = theirs.eval()(torch.tensor(x, dtype=torch.float32)).detach().numpy()
    found = ours(Tensor(x.astype(np.float32))).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    # in training, a value that is rounded to the other side of 0 changes gradients by more than
    # rounding does, in torch as well: so it is done in float64
    theirs.double().train()
    give_weights(ours, dict(theirs.state_dict()))
    labels = np.array([1, 0, 9, 3])
    F.cross_entropy(theirs(torch.tensor(x)), torch.tensor(labels)).backward()
    with Tensor.train():
        ours(Tensor(x)).cross_entropy(Tensor(labels)).backward()
    assert_gradients(ours, dict(theirs.named_parameters()))


# *** ViT ***


class TorchViT(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 24, 4, 4)
        self.cls_token = torch.nn.Parameter(torch.randn(1, 1, 24))
        self.position = torch.nn.Parameter(torch.randn(1, 17, 24))
        layer = torch.nn.TransformerEncoderLayer
        self.layers = torch.nn.ModuleList(
            layer(24, 3, 96, 0.0, F.gelu, 1e-6, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm, self.head = torch.nn.LayerNorm(24, 1e-6), torch.nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), rows], 1) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])

    def named(self) -> dict[str, torch.Tensor]:
        """Weights by the names that the example has for them."""
        names = {
            "self_attn.in_proj_": "qkv.",
            "self_attn.out_proj": "proj",
            "linear1": "fc1",
            "linear2": "fc2",
        }
        found = {}
        for name, parameter in self.named_parameters():
            for old, new in names.items():
                name = name.replace(old, new)
            found[name] = parameter
        return found


def test_vit_is_torchs() -> None:
    torch.manual_seed(2)
    theirs, ours = TorchViT(), ViT(16, 4, 24, 2, 3, 10)
    give_weights(ours, theirs.named())
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    expected, found = theirs(torch.tensor(x)), ours(Tensor(x))
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), atol=1e-4)
    expected.square().sum().backward()
    found.square().sum().backward()
    assert_gradients(ours, theirs.named())
