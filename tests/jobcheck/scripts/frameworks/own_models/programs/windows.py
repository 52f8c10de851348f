import torch
from torch import nn
from torch.nn import functional

SIDE = 7


class Windows(nn.Module):
    """Attention inside of windows of an image, with a learned bias for each distance."""

    def __init__(self, width, heads, shift):
        super().__init__()
        self.heads, self.shift = heads, shift
        self.norm = nn.LayerNorm(width)
        self.three, self.one = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.distances = nn.Parameter(torch.zeros((2 * SIDE - 1) ** 2, heads))
        self.register_buffer("which", torch.zeros(SIDE**2, SIDE**2, dtype=torch.int64))

    def attend(self, rows):
        count, length, width = rows.shape
        parts = self.three(rows).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = torch.matmul(query, key.transpose(2, 3)) / (width // self.heads) ** 0.5
        scores = scores + self.distances[self.which].permute(2, 0, 1)
        return self.one(torch.matmul(scores.softmax(3), value).transpose(1, 2).flatten(2))

    def forward(self, image):
        count, rows, columns, width = image.shape
        inner = self.norm(image)
        if self.shift:
            inner = inner.roll((-self.shift, -self.shift), (1, 2))
        tiles = inner.reshape(count, rows // SIDE, SIDE, columns // SIDE, SIDE, width).transpose(2, 3)
        tiles = self.attend(tiles.reshape(-1, SIDE * SIDE, width))
        tiles = tiles.view(count, rows // SIDE, columns // SIDE, SIDE, SIDE, width).transpose(2, 3)
        inner = tiles.reshape(count, rows, columns, width)
        if self.shift:
            inner = inner.roll((self.shift, self.shift), (1, 2))
        return image + inner


class Join(nn.Module):
    """Makes one place of four."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.less = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, image):
        four = [image[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
        return self.less(self.norm(torch.cat(four, -1)))


class Dense(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, image):
        return image + self.layers(image)


def build(width=96, depths=(2, 2, 6, 2)):
    layers = []
    for stage, depth in enumerate(depths):
        if stage:
            layers.append(Join(width))
            width *= 2
        for number in range(depth):
            layers += [Windows(width, width // 32, 3 * (number % 2) * (stage < 3)), Dense(width)]
    return nn.Sequential(*layers, nn.LayerNorm(width)), width


class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, 96, 4, stride=4)
        self.layers, width = build()
        self.end = nn.Linear(width, 1000)

    def forward(self, image):
        image = self.layers(self.cut(image).permute(0, 2, 3, 1))
        return self.end(image.mean((1, 2)))


model = Places()


def step(image, label):
    scores = model(image)
    return scores, functional.cross_entropy(scores, label)
