"""Options that a config holds as text: name=value."""

import ast
from typing import Any

from riesz_lab.errors import ConfigError


def parse(setting: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """Python literals by name.

    Example:
        >>> parse("model_options", ("depth=50", "width=64"))
        {'depth': 50, 'width': 64}
    """
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            if not equals or not name.isidentifier():
                raise ValueError
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise ConfigError(f"{setting}: expected name=value, such as eps=1e-6, got {text!r}") from None
    return options
