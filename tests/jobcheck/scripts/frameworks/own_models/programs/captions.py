import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH = 10000, 512


class Captions(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.zeros(256, WIDTH))
        self.look = nn.MultiheadAttention(WIDTH, 8, batch_first=True)
        layer = nn.TransformerDecoderLayer(WIDTH, 8, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerDecoder(layer, 3)
        self.image, self.scores = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, image):
        image = torch.tanh(self.image(image))
        rows = self.words(tokens) + self.places[: tokens.shape[1]]
        seen, _ = self.look(rows, image, image)
        return self.scores(self.layers(rows + seen, image))


model = Captions()


def step(tokens, image, following):
    scores = model(tokens, image)
    return scores, functional.cross_entropy(scores.reshape(-1, WORDS), following.reshape(-1))
