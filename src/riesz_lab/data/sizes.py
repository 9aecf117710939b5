"""How many images a config trains and tests on, from what is known of its dataset; nothing is read."""

from riesz_lab.config import Config
from riesz_lab.data.images.builtin import DATASETS
from riesz_lab.data.scenes.builtin import SCENES


def images(config: Config) -> tuple[int, int]:
    """The number of training and test images; a KeyError for a dataset of unknown size."""
    known = DATASETS if config.task == "classification" else SCENES
    train, test = known[config.dataset].images
    if config.swap_splits:
        train, test = test, train
    train, test = min(train, config.train_limit or train), min(test, config.test_limit or test)
    return (train - config.hold_out, config.hold_out) if config.hold_out else (train, test)
