from torch import nn
from torch.nn import functional

WIDTHS = (1, 12, 24)


class SmallImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2) for a, b in zip(WIDTHS, WIDTHS[1:]))
        self.dense = nn.Linear(WIDTHS[-1] * 7 * 7, 100)
        self.scores = nn.Linear(100, 10)

    def forward(self, image):
        for layer in self.filters:
            image = functional.max_pool2d(layer(image).relu(), 2)
        return functional.log_softmax(self.scores(self.dense(image.flatten(1)).relu()), dim=1)


model = SmallImages()


def step(image, label):
    scores = model(image)
    return scores, functional.nll_loss(scores, label)
