"""The packages that the lab needs beyond those of the library, by the name of their module."""

MODULES = (
    "filelock", "jinja2", "lightning_fabric", "matplotlib", "mlxtend", "msgspec", "numpy", "PIL", "pooch",
    "rich", "safetensors", "scipy", "torchmetrics", "tyro",
)  # fmt: skip
NEEDED = {module: {"PIL": "pillow"}.get(module, module.replace("_", "-")) for module in MODULES}
