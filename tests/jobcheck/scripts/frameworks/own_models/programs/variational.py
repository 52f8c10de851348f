import torch
from torch import nn
from torch.nn import functional

WIDTHS = (3, 40, 80, 160)


class Variational(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        down, up = [], []
        for into, out in zip(WIDTHS, WIDTHS[1:]):
            down += [nn.Conv2d(into, out, 4, 2, 1), nn.BatchNorm2d(out), nn.LeakyReLU(0.1)]
            up = [nn.ConvTranspose2d(out, into, 4, 2, 1), nn.LeakyReLU(0.1), *up]
        self.down = nn.Sequential(*down, nn.Flatten())
        self.both = nn.Linear(160 * 64, 2 * size)
        self.back = nn.Linear(size, 160 * 64)
        self.up = nn.Sequential(nn.Unflatten(1, (160, 8, 8)), *up[:-1], nn.Sigmoid())

    def forward(self, image):
        mean, spread = self.both(self.down(image)).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * spread.exp()
        return self.up(self.back(drawn)), mean, spread


model = Variational()


def step(image):
    again, mean, spread = model(image)
    divergence = (mean.pow(2) + (2 * spread).exp() - 2 * spread - 1).sum(1).mean() / 2
    return again, mean, spread, functional.mse_loss(again, image) + 0.01 * divergence
