import torch
from einops import rearrange, repeat
from einops.layers.torch import Rearrange
from torch import nn
from torch.nn import functional


class Heads(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads = heads
        self.three = nn.Linear(width, 3 * width, bias=False)
        self.one = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.1))

    def forward(self, rows):
        query, key, value = rearrange(self.three(rows), "b n (k h d) -> k b h n d", k=3, h=self.heads)
        scores = torch.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5
        mixed = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), value)
        return self.one(rearrange(mixed, "b h n d -> b n (h d)"))


class Patches(nn.Module):
    def __init__(self, width=512, depth=4, side=16):
        super().__init__()
        self.cut = nn.Sequential(
            Rearrange("b c (h i) (w j) -> b (h w) (i j c)", i=side, j=side), nn.Linear(3 * side * side, width)
        )
        self.whole = nn.Parameter(torch.zeros(width))
        self.places = nn.Parameter(torch.zeros(197, width))
        self.layers = nn.ModuleList(
            nn.ModuleList(
                (
                    nn.Sequential(nn.LayerNorm(width), Heads(width)),
                    nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, width)),
                )
            )
            for _ in range(depth)
        )
        self.end = nn.Linear(width, 100)

    def forward(self, image):
        rows = self.cut(image)
        rows = torch.cat((repeat(self.whole, "d -> b 1 d", b=rows.shape[0]), rows), 1)
        rows += self.places
        for attention, dense in self.layers:
            rows = rows + attention(rows)
            rows = rows + dense(rows)
        return self.end(rows.mean(1))


model = Patches()


def step(image, label):
    scores = model(image)
    return scores, functional.cross_entropy(scores, label)
