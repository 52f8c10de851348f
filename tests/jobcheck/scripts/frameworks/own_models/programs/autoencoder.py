from torch import nn

down = [nn.Conv2d(1, 20, 3, 2, 1), nn.ReLU(), nn.Conv2d(20, 40, 3, 2, 1), nn.ReLU(), nn.Conv2d(40, 80, 7)]
up = [
    nn.ConvTranspose2d(80, 40, 7), nn.ReLU(), nn.ConvTranspose2d(40, 20, 4, 2, 1), nn.ReLU(),
    nn.ConvTranspose2d(20, 1, 4, 2, 1), nn.Sigmoid(),
]  # fmt: skip
model = nn.Sequential(*down, *up)
error = nn.MSELoss()


def step(image):
    again = model(image)
    return again, error(again, image)
