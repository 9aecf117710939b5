"""Corrupted and hostile files of every format the lab reads, as many as one likes.

`cases(count)` yields (name, write, read): `write(folder)` puts the file there, `read(folder)` is what a user's command
would do with it. The first ones are made by hand, each an attack or a known trap; the rest are mutations of good files,
from a fixed seed.
"""

import gzip
import io
import json
import os
import pickle
import random
import struct
import zipfile

import numpy as np
import torch
from PIL import Image

from lab_helpers import cifar_rows, write_cifar_bin, write_cifar_folder, write_cifar_py, write_idx
from riesz_lab.config import Config
from riesz_lab.data.images import cifar10, folder, idx, unpickle
from riesz_lab.store import read_trial as read_stored
from riesz_lab.training import checkpoint

RECORDS = 4
SENTINEL = "EXECUTED"


class Payload:
    """Executes on unpickling, if anyone lets it."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def payloads():
    command = f"touch {SENTINEL}"
    yield "os.system", Payload(os.system, command)
    yield "eval", Payload(eval, f"open({SENTINEL!r}, 'w')")
    yield "exec", Payload(exec, f"open({SENTINEL!r}, 'w')")
    yield "getattr", Payload(getattr, "", "format")
    yield "numpy loads", Payload(np.load, "x.npy")
    yield "array of objects", np.array([Payload(os.system, command)], dtype=object)


def read_mnist(path):
    return idx.load(path, "train")


def read_cifar(path):
    return cifar10.load(path, "test")


def read_checkpoint(path):
    return checkpoint.load(path / "step-000000001")


def read_trial(path):
    return read_stored(path / "identity-seed0-0123456789ab")


def replaced(write, name, content):
    """A good dataset with one file replaced."""

    def put(path):
        write(path)
        target = path / name
        target.write_bytes(content(target.read_bytes()) if callable(content) else content)

    return put


def good_checkpoint(path):
    target = path / "step-000000001"
    checkpoint.save(path, 1, {"model": torch.nn.Linear(3, 2)}, {"config": "x", "step": 1, "history": []})
    assert target.is_dir()


def good_trial(path):
    target = path / "identity-seed0-0123456789ab"
    target.mkdir()
    (target / "config.json").write_text(json.dumps(Config().to_dict()))
    (target / "result.json").write_text(
        json.dumps({"status": "finished", "score": "a", "last": {"a": 1}, "best": {"a": 1}})
    )


def mnist(name, content):
    return replaced(lambda path: write_idx(path, 20, 8), name, content), read_mnist


def cifar_bin(content):
    return replaced(lambda p: write_cifar_bin(p, RECORDS), "cifar-10-batches-bin/test_batch.bin", content), read_cifar


def cifar_py(content):
    return replaced(lambda p: write_cifar_py(p, RECORDS), "cifar-10-batches-py/test_batch", content), read_cifar


def image(content):
    return replaced(write_cifar_folder, "test/airplane/0000.png", content), read_cifar


def saved(name, content):
    return replaced(good_checkpoint, f"step-000000001/{name}", content), read_checkpoint


def trial(name, content):
    return replaced(good_trial, f"identity-seed0-0123456789ab/{name}", content), read_trial


def picture(kind, size=(32, 32), mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind)
    return buffer.getvalue()


def by_hand():
    images, labels = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
    zipped = gzip.compress
    yield "idx: empty", mnist(images, b"")
    yield "idx: not gzip", mnist(images, b"\0\0\x08\x03" * 100)
    yield "idx: wrong magic", mnist(images, zipped(struct.pack(">4I", 0x903, 20, 28, 28) + bytes(20 * 784)))
    yield "idx: announces 4 billion", mnist(images, zipped(struct.pack(">4I", 0x803, 2**32 - 1, 28, 28)))
    yield "idx: announces no image", mnist(images, zipped(struct.pack(">4I", 0x803, 0, 28, 28)))
    yield "idx: other side", mnist(images, zipped(struct.pack(">4I", 0x803, 20, 280, 28) + bytes(20 * 7840)))
    yield "idx: bomb", mnist(images, zipped(struct.pack(">4I", 0x803, 20, 28, 28) + bytes(2**26)))
    yield "idx: fewer than announced", mnist(images, zipped(struct.pack(">4I", 0x803, 20, 28, 28) + bytes(784)))
    yield "idx: label 255", mnist(labels, zipped(struct.pack(">2I", 0x801, 20) + b"\xff" * 20))
    yield "idx: other number of labels", mnist(labels, zipped(struct.pack(">2I", 0x801, 19) + bytes(19)))
    yield "bin: empty", cifar_bin(b"")
    yield "bin: one byte less", cifar_bin(lambda good: good[:-1])
    yield "bin: one record more", cifar_bin(lambda good: good + good[:3073])
    yield "bin: label 10", cifar_bin(lambda good: b"\x0a" + good[1:])
    for name, payload in payloads():
        for protocol in (0, 2, 4):
            yield f"py: {name}, protocol {protocol}", cifar_py(pickle.dumps({b"data": payload}, protocol))
        yield f"state.pt: {name}", saved("state.pt", pickle.dumps(payload, 2))
        yield f"state.pt: {name} in an archive", saved("state.pt", torch_archive(payload))
    yield "py: a list", cifar_py(pickle.dumps([1, 2, 3], 2))
    yield "py: no data", cifar_py(pickle.dumps({b"labels": [1]}, 2))
    yield "py: memo at 2**31", cifar_py(b"\x80\x02Kar\xff\xff\xff\x7f.")
    yield "py: string of 2**31 announced", cifar_py(b"\x80\x02T\xff\xff\xff\x7fabc.")
    yield "py: bytearray of 2**40", cifar_py(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".")
    yield "py: persistent id", cifar_py(b"\x80\x02Pabc\n.")
    yield "py: extension registry", cifar_py(b"\x80\x02\x82\x01.")
    yield "py: deep nesting as a key", cifar_py(b"\x80\x02}(" + b"K\x01" + b"\x85" * 100_000 + b"K\x01u.")
    yield "py: array with the wrong shape", cifar_py(odd_array(shape=(RECORDS + 1, 3072)))
    yield "py: array of floats", cifar_py(odd_array(dtype=np.float32))
    yield "py: labels out of range", cifar_py(odd_array(labels=[11] * RECORDS))
    yield "py: labels that are no numbers", cifar_py(odd_array(labels=[b"a"] * RECORDS))
    yield "py: larger than any batch", cifar_py(bytes(unpickle.CAP + 1))
    yield "image: empty", image(b"")
    yield "image: text", image(b"<svg onload=alert(1)>")
    yield "image: gif", image(picture("GIF"))
    yield "image: tiff", image(picture("TIFF"))
    yield "image: eps", image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n(x) run")
    yield "image: other size", image(picture("PNG", (33, 32)))
    yield "image: 9000 x 9000 in a few bytes", image(picture("PNG", (9000, 9000), "1"))
    yield "image: announces 2**31 pixels", image(huge_png())
    yield "image: cut off", image(lambda good: good[: len(good) // 2])
    yield "safetensors: empty", saved("weights.safetensors", b"")
    yield "safetensors: header of 2**63", saved("weights.safetensors", struct.pack("<Q", 2**63 - 1) + b"{}")
    yield "safetensors: header is no JSON", saved("weights.safetensors", struct.pack("<Q", 2) + b"xx")
    yield "safetensors: offsets outside", saved("weights.safetensors", odd_safetensors([0, 2**40]))
    yield "safetensors: offsets overlap", saved("weights.safetensors", odd_safetensors([0, 2]))
    yield "safetensors: a pickle", saved("weights.safetensors", pickle.dumps(Payload(os.system, f"touch {SENTINEL}")))
    yield "state.pt: empty", saved("state.pt", b"")
    yield "state.pt: a list", saved("state.pt", torch_archive([1, 2]))
    yield "config: no JSON", trial("config.json", b"{")
    yield "config: deep", trial("config.json", b"[" * 200_000)
    yield "config: a list", trial("config.json", b"[]")
    yield "config: unknown key", trial("config.json", b'{"__class__": "os.system"}')
    yield "config: NaN", trial("config.json", b'{"lr": NaN}')
    yield "config: binary", trial("config.json", bytes(range(256)))
    yield "config: other settings", trial("config.json", b'{"seed": 7}')
    yield "result: a number", trial("result.json", b"3")
    yield "result: no score", trial("result.json", b'{"status": "finished"}')


def mutations(seed=0):
    """Good files with bytes changed, cut or repeated; many still load, none may do worse than a clear error."""
    chance = random.Random(seed)

    def mutated(good):
        data = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            start = chance.randrange(min(len(data), 400) if chance.random() < 0.7 else len(data))
            kind = chance.choice(["flip", "cut", "repeat", "noise"])
            if kind == "flip":
                data[start] ^= 1 << chance.randrange(8)
            elif kind == "cut":
                del data[start : start + chance.randint(1, 50)]
            elif kind == "repeat":
                data[start:start] = data[start : start + 20]
            else:
                data[start : start + 4] = chance.randbytes(4)
            if not data:
                break
        return bytes(data)

    kinds = (
        lambda: mnist("train-images-idx3-ubyte.gz", mutated),
        lambda: cifar_bin(mutated),
        lambda: cifar_py(mutated),
        lambda: image(mutated),
        lambda: saved("weights.safetensors", mutated),
        lambda: saved("state.pt", mutated),
        lambda: trial("config.json", mutated),
    )
    number = 0
    while True:
        yield f"mutation {number}", kinds[number % len(kinds)]()
        number += 1


def cases(count):
    made = 0
    for source in (by_hand(), mutations()):
        for name, (write, read) in source:
            if made == count:
                return
            made += 1
            yield name, write, read


def torch_archive(value):
    """What `torch.save` would write, for a value it was not made for."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return buffer.getvalue()


def odd_array(shape=None, dtype=np.uint8, labels=None):
    _, rows = cifar_rows(RECORDS)
    rows = rows.astype(dtype)
    batch = {b"data": rows, b"labels": labels or [0] * RECORDS}
    packed = pickle.dumps(batch, 2)
    if shape is not None:
        right = pickle.dumps((RECORDS, 3072), 2)[2:-1]
        packed = packed.replace(right[:5], pickle.dumps(shape, 2)[2:-1][:5])
    return packed


def odd_safetensors(offsets):
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": offsets}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(24)


def huge_png():
    import zlib

    header = struct.pack(">IIBBBBB", 2**16, 2**15, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


__all__ = ["RECORDS", "SENTINEL", "cases", "folder"]
