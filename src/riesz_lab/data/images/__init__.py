"""Datasets of images with one class each."""
