from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Sizes:
    words: int = 50304
    length: int = 1024
    width: int = 768
    depth: int = 12
    heads: int = 12


class Layer(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(2))
        self.three = nn.Linear(sizes.width, 3 * sizes.width)
        self.one = nn.Linear(sizes.width, sizes.width)
        self.up, self.down = nn.Linear(sizes.width, 4 * sizes.width), nn.Linear(4 * sizes.width, sizes.width)

    def attend(self, rows):
        count, length, width = rows.shape
        parts = self.three(rows).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.sizes.heads, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.one(mixed.transpose(1, 2).reshape(count, length, width))

    def forward(self, rows):
        rows = rows + self.attend(self.norms[0](rows))
        return rows + self.down(functional.gelu(self.up(self.norms[1](rows))))


class Text(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.places = nn.Embedding(sizes.length, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        rows = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            rows = layer(rows)
        return self.head(self.norm(rows))


model = Text(Sizes())


def step(tokens, following):
    scores = model(tokens)
    return scores, functional.cross_entropy(scores.flatten(0, 1), following.flatten())
