"""Models of Keras: their layers by the channels that each gets."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.count import Followed, follow_program
from opsk_jobcheck.scripts.frameworks.own_models.files import parse_file
from tests.jobcheck.scripts.frameworks.own_models.training.test_data_sets import NoSettings

HEAD = "import tensorflow as tf\nfrom tensorflow import keras\nfrom tensorflow.keras import layers\n"
INPUT = "first = keras.Input(shape=(64, 64, 3))\n"
FIT = "\nmodel.compile(optimizer='adam')\nmodel.fit(x, y, batch_size=64)\n"


def follow(text: str) -> Followed:
    file = parse_file("train.py", HEAD + text)
    assert file is not None
    return follow_program([file], NoSettings())


def count(text: str) -> int | None:
    followed = follow(text)
    assert followed.count is not None
    return followed.count.parameters.high


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (
            "model = keras.Sequential([layers.Conv2D(8, 3, input_shape=(32, 32, 3)), layers.Conv2D(4, (1, 1))])",
            224 + 36,
        ),
        ("model = keras.Sequential()\nmodel.add(keras.Input((20,)))\nmodel.add(layers.Dense(5))", 105),
        (
            f"{INPUT}x = layers.Conv2D(8, 3)(first)\ny = layers.Conv2D(8, 3)(x)\n"
            "z = layers.Concatenate()([x, y])\nz = layers.BatchNormalization()(z)\n"
            "model = keras.Model(inputs=first, outputs=layers.Conv2D(2, 1)(z))",
            224 + 584 + 32 + 34,
        ),
        (
            "def block(x, n):\n    return layers.ReLU()(layers.Conv2D(n, 3)(x))\n"
            f"{INPUT}x = first\nfor n in (4, 4):\n    x = block(x, n)\nmodel = keras.Model(first, x)",
            112 + 148,
        ),
        ("model = keras.Sequential([layers.Embedding(100, 6), layers.Dense(2)])", 600 + 14),
    ],
)
def test_the_weights_of_the_layers_are_counted(text: str, parameters: int) -> None:
    assert count(text + FIT) == parameters


def test_what_the_data_tell_is_taken_to_be_a_number() -> None:
    followed = follow("model = keras.Sequential([layers.Flatten(), layers.Dense(9)])" + FIT)
    assert followed.open_layers is not None
    assert [row.parameters for row in followed.open_layers.rows][:2] == [64 * 9 + 9, 1024 * 9 + 9]
    assert (followed.batch_size, followed.may_train or not followed.is_other) == (64, True)


def test_a_public_model_among_the_layers_counts_by_what_was_measured() -> None:
    base = "base = keras.applications.ResNet50(include_top=False, input_shape=(224, 224, 3))\n"
    followed = follow(f"{base}model = keras.Sequential([base, layers.Dense(5)]){FIT}")
    assert followed.open_layers is not None
    assert followed.open_layers.rows[0].has_public
    assert followed.cut_side == 224


def test_a_layer_that_runs_twice_saves_twice() -> None:
    text = f"{INPUT}layer = layers.Conv2D(3, 3)\nx = layer(first)\n{{more}}model = keras.Model(first, x){FIT}"
    once, twice = follow(text.format(more="")), follow(text.format(more="x = layer(x)\n"))
    assert once.open_layers is not None
    assert twice.open_layers is not None
    assert twice.open_layers.rows[0].map_features == 2 * once.open_layers.rows[0].map_features


@pytest.mark.parametrize(
    "text",
    [
        f"import package\n{INPUT}x = package.Magic()(layers.Dense(3)(first))\nmodel = keras.Model(first, x)",
        f"{INPUT}x = first\nfor n in read_widths():\n    x = layers.Dense(n)(x)\nmodel = keras.Model(first, x)",
        "model = keras.Sequential([layers.Dense(3), layers.Unheard(3)])",
        "model = keras.Sequential([keras.applications.NASNetLarge(), layers.Dense(3)])",
        "class Own(layers.Layer):\n    def build(self, shape):\n        self.w = self.add_weight(shape=shape)\n"
        "model = keras.Sequential([layers.Dense(3), Own()])",
    ],
)
def test_layers_that_are_not_known_leave_no_limit(text: str) -> None:
    assert follow(text + FIT).open_layers is None
