"""Datasets of scenes: images with a class per pixel."""
