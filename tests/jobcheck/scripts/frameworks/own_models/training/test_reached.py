"""Whether a program calls what goes backward, by names: a loop that is not followed is seen where it is called."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.frameworks.own_models.count import Followed, follow_program
from opsk_jobcheck.scripts.frameworks.own_models.files import parse_file
from tests.jobcheck.scripts.frameworks.own_models.training.test_data_sets import NoSettings

LOOPS = """
import torch

def learn(env, net):
    while not env.is_over():
        net(env.look()).sum().backward()

def evaluate(net):
    return net(1)

class Player:
    def __init__(self, net):
        self.net = net
    def practise(self, env):
        self.memory.draw().loss.backward()
    def test(self):
        return self.net(1)
    def watch(self):
        return learn
"""


def follow(text: str, module: str = LOOPS) -> Followed:
    rows = [parse_file("run.py", text), parse_file("loops.py", module)]
    return follow_program([row for row in rows if row is not None], NoSettings())


@pytest.mark.parametrize(
    ("text", "may_train"),
    [
        ("from loops import learn\nlearn(make_world(), pick())", True),
        ("from loops import *\ndef main():\n    learn(make_world(), pick())\nmain()", True),
        ("import loops\nloops.learn(make_world(), pick())", True),
        ("from loops import Player\nplayer = Player(pick())\nplayer.practise(make_world())", True),
        ("from loops import Player\nplayer = Player(pick())\nplayer.test()", False),
        ("from loops import evaluate\nnet = pick()\nnet.train(False)\nevaluate(net)", False),
        ("import optuna\nfrom loops import learn\noptuna.create_study().optimize(learn, n_trials=9)", True),
        ("from sacred import Experiment\nex = Experiment()\n@ex.main\ndef go():\n    x.backward()\nex.run()", True),
        ("from sacred import Experiment\nex = Experiment()\n@ex.main\ndef go():\n    print(1)\nex.run()", False),
    ],
)
def test_a_training_is_seen_where_the_started_file_calls_what_goes_backward(text: str, may_train: bool) -> None:
    assert follow(f"import torch\n{text}\n").may_train is may_train


def test_a_function_that_is_switched_like_a_model_is_not_called() -> None:
    module = "def train(net):\n    net(1).backward()\n"
    assert not follow("import torch\nfrom loops import load\nnet = load()\nnet.train()\n", module).may_train
    assert follow("import torch\nimport loops\nloops.train(load())\n", module).may_train


def test_a_package_that_fits_what_it_is_given_may_train() -> None:
    text = "import torch\nimport pytorch_lightning as pl\nnet = pick()\npl.Trainer().fit(net)\n"
    assert not follow(text).is_other


def test_a_loop_of_tensorflow_is_not_followed_to_an_end() -> None:
    assert not follow("import tensorflow as tf\nimport torch\nfrom loops import evaluate\nevaluate(1)\n").is_other
