"""Write a network and its head for other programs: as an ONNX graph, or as named weights in safetensors.

Neither file holds a generator, an exemplar or code. The ONNX graph is the plain network: `images` [N, 3, S, S],
prepared as its metadata says, to `logits` [N, C], for any N. What surrounds the network stands in the metadata and not
in the graph, so that a reader sees it and can do it wherever it is fastest.
"""

import copy
import importlib.util
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from daydream import __version__, atomic
from daydream.errors import UserError

OPSET = 17  # the oldest that has all our backbones need, so the most runtimes read it
PREPROCESSING = (
    "upright RGB, transparent parts over white; short side to `short_side` pixels (bilinear with antialiasing); "
    "centre crop to `image_size` x `image_size`; scale to `range`; subtract `mean`, divide by `std`, per channel"
)


def export_onnx(
    network: nn.Module,
    path: Path,
    image_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    class_names: Sequence[str],
    temperature: float,
    short_side: int | None = None,
) -> None:
    """Write a module from prepared images to logits as ONNX, with its preprocessing and class names as metadata.

    `short_side` is what a picture's short side is scaled to before its centre is cropped; `image_size` by default.
    The network may be on any device and in any mode; it stays as it is.
    """
    if importlib.util.find_spec("onnx") is None:
        raise UserError("export to ONNX needs the package onnx: pip install 'daydream[onnx]'")
    import onnx

    model = onnx.load_model_from_string(graph(network, image_size))
    model.producer_name, model.producer_version = "daydream", __version__
    about = {
        "layout": "NCHW",
        "channels": "RGB",
        "image_size": image_size,
        "short_side": short_side or image_size,
        "range": [0, 1],
        "mean": list(mean),
        "std": list(std),
        "preprocessing": PREPROCESSING,
        "class_names": list(class_names),
        "temperature": temperature,
        "probabilities": "softmax(logits / temperature)",
    }
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    onnx.helper.set_model_props(model, texts)
    _write(path, model.SerializeToString())


def export_state_dict(network: nn.Module, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a network's weights as safetensors, under the names `load_state_dict` knows, with texts beside them."""
    weights = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    _write(path, save(weights, dict(metadata)))


def graph(network: nn.Module, image_size: int) -> bytes:
    """Return the graph of a module from images to logits: trace a copy of the network in evaluation mode.

    torch's older exporter is asked for by name: every torch we run on has it, and it needs no package but onnx.
    """
    plain = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
    batch = {"images": {0: "batch"}, "logits": {0: "batch"}}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its remarks are for torch's developers
        torch.onnx.export(
            plain,
            (torch.zeros(2, 3, image_size, image_size),),
            file,  # type: ignore[arg-type]  # the older exporter writes to buffers too
            dynamo=False,
            opset_version=OPSET,
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes=batch,
        )
    return file.getvalue()


def _write(path: Path, content: bytes) -> None:
    try:
        with atomic.replacing(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
