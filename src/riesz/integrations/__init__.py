"""Thin adapters to trainers. Each is imported only when asked for, and needs its trainer installed."""
