"""The packages that the lab needs beyond those of the library, by the name of their module."""

NEEDED = {
    "filelock": "filelock",
    "jinja2": "jinja2",
    "lightning_fabric": "lightning-fabric",
    "matplotlib": "matplotlib",
    "mlxtend": "mlxtend",
    "msgspec": "msgspec",
    "numpy": "numpy",
    "PIL": "pillow",
    "plotly": "plotly",
    "pooch": "pooch",
    "rich": "rich",
    "safetensors": "safetensors",
    "scipy": "scipy",
    "torchmetrics": "torchmetrics",
    "tyro": "tyro",
}
