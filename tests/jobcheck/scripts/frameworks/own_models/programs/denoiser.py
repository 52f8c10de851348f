import torch
from torch import nn
from torch.nn import functional


class Waves(nn.Module):
    """Writes a time as sines and cosines."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("rates", 10000.0 ** -torch.linspace(0, 1, width // 2))

    def forward(self, time):
        angles = time[:, None] * self.rates
        return torch.cat((angles.sin(), angles.cos()), 1)


class Timed(nn.Module):
    """Two convolutions, with a shift by the time between them."""

    def __init__(self, into, out, width):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(16, into), nn.SiLU(), nn.Conv2d(into, out, 3, padding=1))
        self.shift = nn.Linear(width, out)
        self.second = nn.Sequential(
            nn.GroupNorm(16, out), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(out, out, 3, padding=1)
        )
        self.around = nn.Conv2d(into, out, 1) if into != out else None

    def forward(self, image, time):
        inner = self.first(image) + self.shift(functional.silu(time))[..., None, None]
        return self.second(inner) + (image if self.around is None else self.around(image))


class Places(nn.Module):
    """Attention between all places of an image."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(16, channels)
        self.three, self.one = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, image):
        count, channels, rows, columns = image.shape
        query, key, value = self.three(self.norm(image)).flatten(2).split(channels, 1)
        weights = torch.softmax(torch.bmm(query.transpose(1, 2), key) / channels**0.5, -1)
        mixed = torch.bmm(value, weights.transpose(1, 2))
        return image + self.one(mixed.view(count, channels, rows, columns))


class Denoiser(nn.Module):
    def __init__(self, widths=(96, 192, 192)):
        super().__init__()
        time = 4 * widths[0]
        self.time = nn.Sequential(Waves(widths[0]), nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.begin = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for into, out in zip(widths, widths[1:]):
            self.down.append(Timed(into, out, time))
            self.shrink.append(nn.Conv2d(out, out, 3, stride=2, padding=1))
            self.up.insert(0, Timed(2 * out, into, time))
            self.grow.insert(0, nn.Upsample(scale_factor=2))
        self.middle, self.places = Timed(widths[-1], widths[-1], time), Places(widths[-1])
        self.end = nn.Sequential(nn.GroupNorm(16, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 3, 3, padding=1))

    def forward(self, image, time):
        time, image, levels = self.time(time), self.begin(image), []
        for block, shrink in zip(self.down, self.shrink):
            image = block(image, time)
            levels.append(image)
            image = shrink(image)
        image = self.places(self.middle(image, time))
        for block, grow in zip(self.up, self.grow):
            image = block(torch.cat((grow(image), levels.pop()), 1), time)
        return self.end(image)


model = Denoiser()


def step(image, time):
    noise = torch.randn_like(image)
    guess = model(image + noise, time)
    return noise, guess, functional.mse_loss(guess, noise)
