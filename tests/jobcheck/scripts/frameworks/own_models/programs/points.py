import torch
from torch import nn
from torch.nn import functional


def each_point(*widths):
    layers = []
    for into, out in zip(widths, widths[1:]):
        layers += [nn.Conv1d(into, out, 1), nn.BatchNorm1d(out), nn.ReLU()]
    return nn.Sequential(*layers)


class Turn(nn.Module):
    """Finds the matrix that turns a cloud of points."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.points = each_point(size, 64, 256)
        self.whole = nn.Sequential(nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, size * size))

    def forward(self, cloud):
        matrix = self.whole(self.points(cloud).amax(2)).view(-1, self.size, self.size)
        return torch.bmm(matrix + torch.eye(self.size, device=cloud.device), cloud)


class Points(nn.Module):
    def __init__(self, classes=40):
        super().__init__()
        self.near = nn.Sequential(Turn(3), each_point(3, 64), Turn(64), each_point(64, 128, 512))
        self.whole = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, classes))

    def forward(self, cloud):
        strongest, _ = self.near(cloud).max(dim=2)
        return self.whole(strongest).log_softmax(1)


model = Points()


def step(cloud, label):
    scores = model(cloud)
    return scores, functional.nll_loss(scores, label)
