"""From scenes to batches: decoded in worker processes, or kept in memory if they are small.

Shape suffixes: N scenes, H height, W width, C channels.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from riesz_lab.data.scenes.labels import VOID, Labels
from riesz_lab.data.scenes.scene import Pixels, Scene
from riesz_lab.data.scenes.views import MEAN_COLOUR, View, edges
from riesz_lab.errors import LabError

KEEP = 256 * 2**20
"""Bytes of resized scenes that are kept in memory; more are decoded every time."""

Key = tuple[int, int]
"""Which scene, and the seed of its augmentation."""


@dataclass(frozen=True)
class SceneBatch:
    """Scenes for a step."""

    images_NHWC: Tensor  # uint8
    labels_NHW: Tensor  # uint8, classes and `VOID`
    edges_NHW: Tensor | None  # bool, between objects; None without instances
    pixels: int  # the number that are not void

    def __len__(self) -> int:
        return len(self.labels_NHW)


class SceneDataset(Dataset[SceneBatch | LabError]):
    """Scenes by key, each through a view. Errors are returned, not raised: a worker process would wrap them."""

    def __init__(self, scenes: Sequence[Scene], labels: Labels, view: View):
        self.scenes, self.labels, self.view = scenes, labels, view
        self.kept: list[Pixels] | None = None
        if view.resize and not view.whole and len(scenes) * view.height * view.width * 8 <= KEEP:
            # Decoding releases the GIL, so threads help.
            with ThreadPoolExecutor() as pool:
                self.kept = list(pool.map(self._decoded, scenes))

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, key: Key) -> SceneBatch | LabError:
        index, seed = key
        try:
            pixels = self.kept[index] if self.kept is not None else self._decoded(self.scenes[index])
            return _as_batch(self.view.then(pixels, seed))
        except LabError as error:
            return error

    def _decoded(self, scene: Scene) -> Pixels:
        return self.view.first(scene.read(self.labels))

    def batches(self, keys: Sequence[Sequence[Key]], workers: int) -> Iterator[SceneBatch]:
        """One batch per list of keys, decoded ahead by `workers` processes, or in this one if 0."""
        if self.kept is not None or workers == 0:
            decoded: Iterator[SceneBatch | LabError] = (collate([self[key] for key in batch]) for batch in keys)
        else:
            # A separate generator: the loader would otherwise draw from the global one.
            order, rng = [list(batch) for batch in keys], torch.Generator()
            decoded = iter(
                DataLoader(self, batch_sampler=order, collate_fn=collate, num_workers=workers, generator=rng)
            )
        for batch in decoded:
            if isinstance(batch, LabError):
                try:
                    raise batch
                finally:
                    # The error refers to this frame, and the frame to the workers, which would not end.
                    del batch, decoded
            yield batch


def collate(items: Sequence[SceneBatch | LabError]) -> SceneBatch | LabError:
    """Join batches. Smaller scenes are padded with void, to the right and below."""
    batches = [item for item in items if not isinstance(item, LabError)]
    if len(batches) < len(items):
        return next(item for item in items if isinstance(item, LabError))
    count = sum(len(batch) for batch in batches)
    height, width = (max(batch.labels_NHW.shape[dim] for batch in batches) for dim in (1, 2))
    images = torch.tensor(MEAN_COLOUR, dtype=torch.uint8).expand(count, height, width, 3).clone()
    labels = torch.full((count, height, width), VOID, dtype=torch.uint8)
    lines = None if batches[0].edges_NHW is None else torch.zeros(count, height, width, dtype=torch.bool)
    start = 0
    for batch in batches:
        n, h, w = batch.labels_NHW.shape
        place = slice(start, start + n), slice(h), slice(w)
        images[place], labels[place] = batch.images_NHWC, batch.labels_NHW
        if lines is not None and batch.edges_NHW is not None:
            lines[place] = batch.edges_NHW
        start += n
    return SceneBatch(images, labels, lines, sum(batch.pixels for batch in batches))


def _as_batch(pixels: Pixels) -> SceneBatch:
    labels = torch.from_numpy(np.array(pixels.classes))[None]
    lines = None if pixels.objects is None else torch.from_numpy(edges(np.asarray(pixels.objects)))[None]
    return SceneBatch(torch.from_numpy(np.array(pixels.image))[None], labels, lines, int((labels != VOID).sum()))
