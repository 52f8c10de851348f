import torch
from torch import nn

WORDS, WIDTH = 28782, 512


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, dim_feedforward=1024, dropout=0.2)
        self.layers = nn.TransformerEncoder(layer, num_layers=4)
        self.tags = nn.Linear(WIDTH, WORDS)
        places = torch.arange(4096)[:, None] * torch.logspace(0, -4, WIDTH // 2)
        self.register_buffer("places", torch.stack((places.sin(), places.cos()), -1).flatten(1)[:, None])
        self.drop = nn.Dropout(0.2)

    def forward(self, tokens):
        rows = self.words(tokens) * WIDTH**0.5 + self.places[: len(tokens)]
        return self.tags(self.layers(self.drop(rows)))


model = Tagger()
criterion = nn.CrossEntropyLoss()


def step(tokens, tags):
    scores = model(tokens)
    return scores, criterion(scores.view(-1, WORDS), tags)
