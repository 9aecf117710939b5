"""Checkpoints that want to run code, exhaust memory or crash the reader. `files(folder)` writes them all."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import torch

from hostile import Payload, odd_safetensors, torch_archive

SENTINEL = "EXECUTED"


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def legacy(value):
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def compressed(data):
    """The same archive, deflated: what a bomb is made of."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    return out.getvalue()


def bomb():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(OrderedDict(), 2))
        archive.writestr("archive/data/0", bytes(2**28))
    return out.getvalue()


def expanded():
    """A number that claims to be 2**40 of them."""
    return torch.zeros(1).as_strided((2**20, 2**20, 1, 1), (0, 0, 1, 1))


class Constructed:
    """Allowed by `weights_only`, and asks for 4 TB."""

    def __reduce__(self):
        return torch.Tensor, (2**20, 2**20)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3)


def archive_of(pickled):
    """An archive around opcodes that no object pickles to."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return out.getvalue()


def doubled_key(times=60):
    """{t: 1} with t = (t, t), sixty times over: hashing it takes 2**60 steps."""
    double = b"h\x00\x86q\x00"
    return archive_of(b"\x80\x02}" + b")q\x00" + double * times + b"K\x01s.")


def deep_key(depth=1_000_000):
    """{t: 1} with t nested a million deep: hashing it overflows the stack."""
    return archive_of(b"\x80\x02})" + b"\x85" * depth + b"K\x01s.")


def many_views(count=3000):
    """One storage of 256 kB, seen as 3,000 weights."""
    storage = torch.randn(64, 64, 4, 4)
    return saved({f"conv{index}.weight": storage[:, :, :, :] for index in range(count)})


def header_only(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def cases():
    """Name and content; every one must end in a clear error."""
    command = f"touch {SENTINEL}"
    attack = Payload(os.system, command)
    yield "empty.pt", b""
    yield "text.pt", b"<svg onload=alert(1)>" * 50
    yield "png.pt", b"\x89PNG\r\n\x1a\n" + bytes(100)
    yield "pickle.pt", pickle.dumps(attack)
    yield "pickle-protocol-0.pt", pickle.dumps({"weight": attack}, 0)
    yield "archive.pt", torch_archive(attack)
    yield "archive-in-dict.pt", torch_archive({"state_dict": {"conv.weight": attack}})
    yield "eval.pt", torch_archive(Payload(eval, f"open({SENTINEL!r}, 'w')"))
    yield "getattr.pt", torch_archive(Payload(getattr, "", "format"))
    yield "module.pt", saved(Module())
    yield "legacy-module.pt", legacy(Module())
    yield "compressed.pt", compressed(saved({"conv.weight": torch.zeros(8, 8, 3, 3)}))
    yield "bomb.pt", bomb()
    yield "expanded.pt", saved({"conv.weight": expanded()})
    yield "constructed.pt", torch_archive({"conv.weight": Constructed()})
    yield "doubled-key.pt", doubled_key()
    yield "deep-key.pt", deep_key()
    yield "tuple-key.pt", saved({("conv", "weight"): torch.zeros(8, 8, 3, 3)})
    yield "long-key.pt", saved({10**5000: torch.zeros(8, 8, 3, 3)})
    yield "many-views.pt", many_views()
    yield "no-tensor.pt", saved({"epoch": 3, "names": ["a", "b"]})
    yield "cut.pt", saved({"conv.weight": torch.zeros(8, 8, 3, 3)})[:-300]
    yield "header-2**63.safetensors", struct.pack("<Q", 2**63 - 1) + b"{}"
    yield "no-json.safetensors", struct.pack("<Q", 4) + b"{xxx"
    yield "offsets.safetensors", odd_safetensors([0, 2**40])
    yield "overlap.safetensors", odd_safetensors([0, 2])
    yield "shape.safetensors", header_only({"w": {"dtype": "F32", "shape": [2**40, 2**30], "data_offsets": [0, 0]}})
    yield "negative.safetensors", header_only({"w": {"dtype": "F32", "shape": [-1, 8], "data_offsets": [0, 0]}})
    yield "deep.safetensors", struct.pack("<Q", 100_000) + b'{"a":' * 20_000
