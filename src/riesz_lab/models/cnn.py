"""The paper's network for MNIST and Fashion-MNIST: two conv layers, 50 and 100 filters of 5x5.

The paper says no more. Our choice: no padding, ReLU, 2x2 max pooling after each, one linear layer as head.
"""

from torch import Tensor, nn
from torch.nn import functional


class TwoLayerCNN(nn.Module):
    """142,410 parameters for one channel and ten classes; images of 28x28."""

    def __init__(self, channels: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 50, 5)
        self.conv2 = nn.Conv2d(50, 100, 5)
        self.head = nn.Linear(100 * 4 * 4, classes)

    def forward(self, images: Tensor) -> Tensor:
        # Pooling before the ReLU gives the same values as after it, on a quarter of them.
        x = functional.relu(functional.max_pool2d(self.conv1(images), 2))
        x = functional.relu(functional.max_pool2d(self.conv2(x), 2))
        logits: Tensor = self.head(x.flatten(1))
        return logits
