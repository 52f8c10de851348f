from torch import nn
from torch.nn import functional


class Digits(nn.Module):
    def __init__(self, hidden: int = 1024):
        super().__init__()
        self.first = nn.Linear(784, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 10)
        self.drop = nn.Dropout(0.2)

    def forward(self, pixels):
        rows = pixels.flatten(1)
        rows = self.drop(functional.relu(self.first(rows)))
        return self.last(functional.relu(self.second(rows)))


model = Digits()


def step(pixels, digits):
    scores = model(pixels)
    return scores, functional.cross_entropy(scores, digits)
