import torch
from torch import nn
from torch.nn import functional

WORDS, LENGTH, WIDTH, HEADS, DEPTH = 30000, 512, 640, 10, 8


class Scores(nn.Module):
    """Attention with its mask and scores written out."""

    def __init__(self):
        super().__init__()
        self.pairs = nn.Linear(WIDTH, 2 * WIDTH)
        self.values = nn.Linear(WIDTH, WIDTH)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("later", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, rows):
        size = WIDTH // HEADS
        query, key = self.pairs(rows).split(WIDTH, -1)
        query, key, value = (
            each.view(*each.shape[:2], HEADS, size).permute(0, 2, 1, 3) for each in (query, key, self.values(rows))
        )
        scores = torch.einsum("bhid,bhjd->bhij", query, key) * size**-0.5
        length = rows.shape[1]
        scores = scores.masked_fill(self.later[:length, :length], float("-inf"))
        mixed = self.drop(functional.softmax(scores, -1)) @ value
        return self.drop(self.join(mixed.permute(0, 2, 1, 3).flatten(2)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(WIDTH), Scores())
        self.dense = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, rows):
        rows = rows + self.attention(rows)
        return rows + self.dense(rows)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


model = Text()


def step(tokens, following):
    scores = model(tokens)
    return scores, functional.cross_entropy(scores.view(-1, WORDS), following.view(-1))
