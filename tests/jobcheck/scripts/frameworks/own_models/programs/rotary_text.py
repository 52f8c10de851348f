import torch
from torch import nn
from torch.nn import functional


class Scale(nn.Module):
    """Divides rows by their root mean square, in single precision."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, rows):
        wide = rows.float()
        wide = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return wide.to(rows.dtype) * self.gain


def turn(rows, angles):
    """Turn each half of a head against the other by its place."""
    first, second = rows.chunk(2, -1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), -1)


class Layer(nn.Module):
    def __init__(self, width, heads, groups, inner):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, groups * self.size, bias=False)
        self.values = nn.Linear(width, groups * self.size, bias=False)
        self.join = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.before, self.between = Scale(width), Scale(width)

    def attend(self, rows, angles):
        count, length, width = rows.shape
        query = self.queries(rows).view(count, length, self.heads, self.size).transpose(1, 2)
        key = self.keys(rows).view(count, length, self.groups, self.size).transpose(1, 2)
        value = self.values(rows).view(count, length, self.groups, self.size).transpose(1, 2)
        query, key = turn(query, angles).type_as(value), turn(key, angles).type_as(value)
        key, value = (each.repeat_interleave(self.heads // self.groups, 1) for each in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.join(mixed.transpose(1, 2).reshape(count, length, width))

    def forward(self, rows, angles):
        rows = rows + self.attend(self.before(rows), angles)
        inner = self.between(rows)
        return rows + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Text(nn.Module):
    def __init__(self, words=32000, width=1024, depth=8, length=1024):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Layer(width, 16, 4, 2816) for _ in range(depth)])
        self.end = nn.Sequential(Scale(width), nn.Linear(width, words, bias=False))
        rates = 10000.0 ** -(torch.arange(32) / 32)
        self.register_buffer("angles", torch.arange(length)[:, None] * rates)

    def forward(self, tokens):
        rows, angles = self.words(tokens), self.angles[: tokens.shape[1]]
        for layer in self.layers:
            rows = layer(rows, angles)
        return self.end(rows)


model = Text()


def step(tokens, following):
    scores = model(tokens)
    return scores, functional.cross_entropy(scores.view(-1, 32000).float(), following.view(-1))
