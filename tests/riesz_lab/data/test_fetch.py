"""Downloads, over a server of our own: right, wrong, too long, cut off, offline; and archives of every kind."""

import hashlib
import io
import re
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lab_helpers import write_cifar_bin, write_idx
from riesz_lab.data import fetch
from riesz_lab.data.images import catalog, cifar10
from riesz_lab.data.images.builtin import DATASETS
from riesz_lab.data.images.catalog import check
from riesz_lab.errors import BadFileError, MissingDataError


@pytest.fixture
def server():
    """A server of the files in a dictionary."""
    files = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = files.get(self.path.lstrip("/"))
            self.send_response(200 if content is not None else 404)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield files, f"http://127.0.0.1:{http.server_port}/"
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def published(tmp_path, server, monkeypatch):
    """A small MNIST on the server, and its true checksums in the catalog."""
    files, base = server
    write_idx(tmp_path / "origin")
    sources = []
    for source in DATASETS["mnist"].sources:
        content = (tmp_path / "origin" / source.name).read_bytes()
        files[source.name] = content
        md5 = hashlib.md5(content).hexdigest()
        sources.append(replace(source, url=base + source.name, checksum=f"md5:{md5}", size=len(content)))
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], sources=tuple(sources)))
    return files


def test_fetch_then_verify_then_load(tmp_path, published):
    fetch.fetch("mnist", tmp_path, quiet=True)
    check("mnist", tmp_path)
    assert all(right for _, right, _ in fetch.verify("mnist", tmp_path))
    assert len(catalog.load("mnist", tmp_path).train) == 100


@pytest.mark.parametrize("how", ["changed", "longer", "cut off", "missing"])
def test_a_wrong_download_is_refused_with_the_way_to_do_it_by_hand(tmp_path, published, how):
    name = "train-images-idx3-ubyte.gz"
    right = published[name]
    published[name] = {
        "changed": right[:-1] + bytes([right[-1] ^ 1]),
        "longer": right + b"x",
        "cut off": right[:-5],
        "missing": None,
    }[how]
    with pytest.raises(MissingDataError) as error:
        fetch.fetch("mnist", tmp_path, quiet=True)
    told = str(error.value)
    assert str(tmp_path / "mnist" / name) in told
    assert hashlib.md5(right).hexdigest() in told
    assert not (tmp_path / "mnist" / name).exists()


def test_offline_is_told_with_the_way_to_do_it_by_hand(tmp_path, published, monkeypatch):
    sources = tuple(replace(s, url="http://127.0.0.1:9/" + s.name) for s in DATASETS["mnist"].sources)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], sources=sources))
    with pytest.raises(MissingDataError) as error:
        fetch.fetch("mnist", tmp_path, quiet=True)
    assert re.search(r"there is no connection to it; to put it there by hand, save it as .*md5:", str(error.value))
    assert "\n" not in str(error.value)
    assert "HTTPConnection" not in str(error.value)


def test_a_proxy_that_does_not_answer_is_one_sentence(tmp_path, published, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    sources = tuple(replace(s, url="http://example.invalid/" + s.name) for s in DATASETS["mnist"].sources)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], sources=sources))
    with pytest.raises(MissingDataError, match="there is no connection to it; to put it there by hand"):
        fetch.fetch("mnist", tmp_path, quiet=True)


def archive(members):
    """A tar.gz of (name, content); a text instead of bytes is the type of a special member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type = content.encode()
                info.linkname = "/etc/passwd"
                tar.addfile(info)
    return buffer.getvalue()


@pytest.fixture
def release(tmp_path, monkeypatch):
    """The members of a small binary release."""
    monkeypatch.setattr(cifar10, "RECORDS", 5)
    write_cifar_bin(tmp_path / "origin", 5)
    return {
        f"cifar-10-batches-bin/{file.name}": file.read_bytes()
        for file in sorted((tmp_path / "origin" / "cifar-10-batches-bin").iterdir())
    }


def test_cifar10_is_streamed_out_of_its_archive(tmp_path, release, server, monkeypatch):
    files, base = server
    packed = archive([("cifar-10-batches-bin/readme.html", b"hello"), *release.items()])
    files["cifar-10-binary.tar.gz"] = packed
    source = replace(
        DATASETS["cifar10"].sources[0],
        url=base + "cifar-10-binary.tar.gz",
        checksum="sha256:" + hashlib.sha256(packed).hexdigest(),
        size=len(packed),
    )
    monkeypatch.setitem(DATASETS, "cifar10", replace(DATASETS["cifar10"], sources=(source,)))
    fetch.fetch("cifar10", tmp_path / "data", quiet=True)
    folder = tmp_path / "data" / "cifar10" / "cifar-10-batches-bin"
    assert sorted(f.name for f in folder.iterdir()) == sorted([*(n.rpartition("/")[2] for n in release), fetch.SUMS])
    assert all(right for _, right, _ in fetch.verify("cifar10", tmp_path / "data"))
    assert len(catalog.load("cifar10", tmp_path / "data").test) == 5
    (folder / "test_batch.bin").write_bytes(b"x" * 5 * 3073)
    assert [right for _, right, _ in fetch.verify("cifar10", tmp_path / "data")].count(False) == 1


SYMLINK, HARD_LINK, DEVICE = (kind.decode() for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE))
FIRST = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: [(f"../{n}", c) for n, c in r.items()], "lacks"),
        (lambda r: [(f"/{n}", c) for n, c in r.items()], "lacks"),
        (lambda r: [(n, SYMLINK) for n in r], "lacks"),
        (lambda r: [(n, HARD_LINK) for n in r], "lacks"),
        (lambda r: [(n, DEVICE) for n in r], "lacks"),
        (lambda r: list(r.items())[:-1], "lacks"),
        (lambda r: [(FIRST, b"short"), *list(r.items())[1:]], "got 5"),
        (lambda r: [("bomb", bytes(3 * 2**20)), *r.items()], "unexpected"),
        (lambda r: [(f"file{i}", b"") for i in range(200)], "at most 100 members"),
    ],
)
def test_hostile_archives_write_nothing_outside_the_target(tmp_path, release, change, told):
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    packed = tmp_path / "deep" / "packed.tar.gz"
    packed.write_bytes(archive(change(release)))
    with pytest.raises(BadFileError, match=told):
        fetch.unpack(packed, target, {name: len(content) for name, content in release.items()})
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and "origin" not in p.parts and target not in p.parents]
    assert outside == [packed]
    assert not any(p.is_symlink() for p in target.rglob("*"))
