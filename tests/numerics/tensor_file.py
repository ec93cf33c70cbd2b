"""safetensors files as numpy arrays, without the safetensors package: what the tools of this folder share."""
import json
import struct

import numpy as np

WIDTHS = {"F32": "<f4", "F64": "<f8", "F16": "<f2"}


def read(path):
    """Name -> float32 or float64 array. BF16 is widened."""
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        blob = f.read()
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        raw = blob[begin:end]
        if info["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif info["dtype"] in WIDTHS:
            values = np.frombuffer(raw, WIDTHS[info["dtype"]])
        else:
            raise ValueError(f"{path}: {name} has dtype {info['dtype']}")
        tensors[name] = values.reshape(info["shape"])
    return tensors


def write(path, tensors):
    """Writes name -> array as F32."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + 4 * tensor.size]}
        offset += 4 * tensor.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            f.write(np.ascontiguousarray(tensor, "<f4").tobytes())
