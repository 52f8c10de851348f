from torch import nn


def conv(into, out, side, stride=1):
    return nn.Sequential(
        nn.Conv2d(into, out, side, stride, padding=side // 2, bias=False), nn.BatchNorm2d(out)
    )


class Narrow(nn.Module):
    """A block that is narrow in the middle."""

    def __init__(self, into, middle, stride):
        super().__init__()
        out = 4 * middle
        self.path = nn.Sequential(
            conv(into, middle, 1), nn.ReLU(inplace=True), conv(middle, middle, 3, stride), nn.ReLU(inplace=True),
            conv(middle, out, 1),
        )
        self.around = nn.Identity() if into == out and stride == 1 else conv(into, out, 1, stride)
        self.end = nn.ReLU(inplace=True)

    def forward(self, image):
        result = self.path(image)
        result += self.around(image)
        return self.end(result)


class Residual(nn.Module):
    def __init__(self, counts=(3, 4, 6, 3)):
        super().__init__()
        blocks, into = [], 64
        for stage, count in enumerate(counts):
            middle = 64 * 2**stage
            for number in range(count):
                blocks.append(Narrow(into, middle, 2 if stage and not number else 1))
                into = 4 * middle
        self.begin = nn.Sequential(conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*blocks)
        self.end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))

    def forward(self, image):
        return self.end(self.blocks(self.begin(image)))


model = Residual()
criterion = nn.CrossEntropyLoss()


def step(image, label):
    scores = model(image)
    return scores, criterion(scores, label)
