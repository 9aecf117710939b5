"""Datasets of images (one class each, in memory as uint8 images_NHWC, or any `torch.utils.data.Dataset`) and of scenes
(one class per pixel). In both packages `catalog` lists the built-in ones and `batches` feeds them to a task.

Shape suffixes: N images, H height, W width, C channels.
"""
