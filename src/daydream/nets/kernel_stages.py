"""Our networks' stem and stages as our GPU kernels see them. Imported only where those are in use: needs triton."""

from collections.abc import Sequence

from torch import Tensor, nn

from daydream.kernels import fused, launches
from daydream.kernels.fused import Layer, Stack
from daydream.nets.resnet import Block, Subsample


def stack_of(module: nn.Module) -> Stack | None:
    """Return the layers and strides of a stem or a stage, or None where the kernels do not fit it."""
    children = list(module.children())
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    if any((norm.eps, norm.momentum, norm.affine) != (1e-5, 0.1, True) for norm in norms):
        return None
    if len(children) == 3 and isinstance(children[0], nn.Conv2d) and isinstance(children[1], nn.BatchNorm2d):
        conv = children[0]
        plain = (conv.kernel_size, conv.stride, conv.padding, conv.groups) == ((3, 3), (1, 1), (1, 1), 1)
        fits = plain and conv.bias is None and conv.out_channels in launches.TILES and isinstance(children[2], nn.ReLU)
        return Stack([Layer(conv, children[1])], [1], module.training) if fits else None
    layers, strides = [], []
    for block in children:
        if not isinstance(block, Block) or block.rectify or not isinstance(block.shortcut, nn.Identity | Subsample):
            return None
        if not {block.conv1.in_channels, block.conv1.out_channels} <= set(launches.TILES):
            return None
        layers += [Layer(block.conv1, block.norm1), Layer(block.conv2, block.norm2)]
        strides.append(block.conv1.stride[0])
    return Stack(layers, strides, module.training) if layers else None


def fitting(module: nn.Module) -> Stack:
    found = stack_of(module)
    assert found is not None, "the kernels do not fit this module"
    return found


def run(module: nn.Module, x: Tensor, hosts: int | None = None) -> Tensor:
    """Pass maps through a stem or a stage by the kernels; the first `hosts` make the statistics, or all."""
    return fused.run(fitting(module), x, hosts)


def trained_on(module: nn.Module, x: Tensor) -> bool:
    """Say whether a pass of x will be followed by one back."""
    return fused.trained_on(x, module.parameters())


def compile_ahead(modules: Sequence[nn.Module], x: Tensor, back: bool) -> None:
    """Compile, side by side, the kernels that passing x through modules in turn needs, and with `back` back again."""
    fused.compile_ahead([fitting(module) for module in modules], x, back)
