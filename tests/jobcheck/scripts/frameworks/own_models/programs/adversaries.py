import torch
from torch import nn

NOISE, WIDTHS = 128, (384, 192, 96, 48)


def paint():
    """Return the model that makes an image of noise."""
    layers = [nn.ConvTranspose2d(NOISE, WIDTHS[0], 4, bias=False)]
    for into, out in zip(WIDTHS, (*WIDTHS[1:], 3)):
        layers += [nn.BatchNorm2d(into), nn.ReLU(inplace=True), nn.ConvTranspose2d(into, out, 4, 2, 1, bias=False)]
    return nn.Sequential(*layers, nn.Tanh())


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, *reversed(WIDTHS))
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 4, 2, 1, bias=False) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths[2:])
        self.bend = nn.LeakyReLU(0.2, inplace=True)
        self.last = nn.Conv2d(widths[-1], 1, 4)

    def forward(self, image):
        image = self.bend(self.layers[0](image))
        for layer, norm in zip(self.layers[1:], self.norms):
            image = self.bend(norm(layer(image)))
        return self.last(image).flatten()


painter, judge = paint(), Judge()
loss = nn.BCEWithLogitsLoss()


def step(noise):
    image = painter(noise)
    truth = torch.ones(len(noise), device=noise.device)
    guess = judge(image)
    return image, truth, guess, loss(guess, truth)
