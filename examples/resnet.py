"""ResNet-18 and ResNet-50: convolutional networks for pictures of (batch, 3, height, width).

    python examples/resnet.py --layers 18 --weights resnet18.pth   # those of torchvision

Modules are named as torchvision's, so that its checkpoints fit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from tgcore import Tensor, TinyJit, nn

# blocks of each of the four stages
STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class _Block:
    """A few convolutions, added to what comes in (made fit by a convolution where it is not)."""

    expansion = 1
    downsample: list[Callable[[Tensor], Tensor]]

    def _shortcut(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * self.expansion
        if stride != 1 or inputs != outputs:
            self.downsample = [
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
                nn.BatchNorm(outputs),
            ]
        else:
            self.downsample = []


class BasicBlock(_Block):
    """Two convolutions of 3 by 3."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm(width)
        self._shortcut(inputs, width, stride)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + x.sequential(self.downsample)).relu()


class Bottleneck(_Block):
    """A convolution of 3 by 3 on few channels, between two of 1 by 1."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm(width * self.expansion)
        self._shortcut(inputs, width, stride)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + x.sequential(self.downsample)).relu()


class ResNet:
    """The network; `width` is the number of channels of the first stage."""

    def __init__(self, layers: int = 18, classes: int = 1000, width: int = 64) -> None:
        if layers not in STAGES:
            raise ValueError(f"there are ResNets of {', '.join(map(str, STAGES))} layers here")
        kind = BasicBlock if layers < 50 else Bottleneck
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm(width)
        inputs = width
        stages = []
        for number, count in enumerate(STAGES[layers]):
            blocks = []
            for n in range(count):
                stride = 2 if number and n == 0 else 1
                blocks.append(kind(inputs, width << number, stride))
                inputs = (width << number) * kind.expansion
            stages.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, classes)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = x.max_pool2d(3, stride=2, padding=1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = x.sequential(stage)
        return self.fc(x.mean((2, 3)))


def main() -> None:
    """Reads the command line, and times the network on noise."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--layers", type=int, choices=STAGES, default=18)
    parser.add_argument("--weights", help="a checkpoint: a file of torch.save, or safetensors")
    parser.add_argument("--size", type=int, default=64, help="height and width of the pictures")
    arguments = parser.parse_args()
    model = ResNet(arguments.layers)
    if arguments.weights:
        is_torch = arguments.weights.endswith((".pt", ".pth", ".bin"))
        load = nn.state.torch_load if is_torch else nn.state.safe_load
        nn.state.load_state_dict(model, load(arguments.weights))
    run = TinyJit(lambda x: model(x).realize())
    picture = Tensor.rand(1, 3, arguments.size, arguments.size).realize()
    for _ in range(3):
        start = time.perf_counter()
        best = int(run(picture).argmax().item())
        print(f"class {best}, {(time.perf_counter() - start) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
