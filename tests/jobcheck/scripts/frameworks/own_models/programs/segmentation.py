import torch
from torch import nn
from torch.nn import functional


def twice(into, out):
    layers = []
    for channels in (into, out):
        layers += [nn.Conv2d(channels, out, 3, padding="same", bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Segmentation(nn.Module):
    def __init__(self, widths=(48, 96, 192, 384)):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.first = twice(3, widths[0])
        self.shrink = nn.MaxPool2d(2)
        self.down = nn.ModuleList(twice(a, b) for a, b in pairs)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs))
        self.up = nn.ModuleList(twice(2 * a, a) for a, _ in reversed(pairs))
        self.classes = nn.Conv2d(widths[0], 2, 1)

    def forward(self, image):
        levels = [self.first(image)]
        for layers in self.down:
            levels.append(layers(self.shrink(levels[-1])))
        image = levels.pop()
        for grow, layers in zip(self.grow, self.up):
            image, level = grow(image), levels.pop()
            rows, columns = level.shape[2] - image.shape[2], level.shape[3] - image.shape[3]
            image = layers(torch.cat((level, functional.pad(image, (0, columns, 0, rows))), 1))
        return self.classes(image)


model = Segmentation()


def step(image, mask):
    scores = model(image)
    return scores, functional.cross_entropy(scores, mask)
