"""Settings of LoRA as the frameworks' own configuration classes name them, and what of them opsk does not count."""

import pytest

from opsk_jobcheck.scripts.frameworks.huggingface.trainable import find_adapters
from opsk_jobcheck.scripts.settings.arguments import Setting


def read(framework: str, kind: str = "", **given: str | None) -> dict[str, str] | None:
    settings = [Setting(name=name, value=value) for name, value in given.items()]
    found = find_adapters(settings, framework, kind=kind)
    return None if found is None else {name.removeprefix("adapters."): word for name, word in found.items()}


@pytest.mark.parametrize(
    ("framework", "given", "expected"),
    [
        (
            "llama-factory",
            {"finetuning_type": "lora", "lora_rank": "16", "lora_target": "all", "quantization_bit": "4"},
            {"rank": "16", "targets": "all", "base_bits": "4"},
        ),
        ("llama-factory", {"finetuning_type": "lora", "lora_target": "q_proj,v_proj"}, {"targets": "query-value"}),
        ("axolotl", {"adapter": "qlora", "lora_r": "32"}, {"rank": "32", "base_bits": "4"}),
        ("axolotl", {"adapter": "lora", "load_in_8bit": "True"}, {"base_bits": "8"}),
        (
            "axolotl",
            {"adapter": "lora", "lora_target_linear": "True", "lora_dropout": "0"},
            {"targets": "all", "dropout": "false"},
        ),
        (
            "trl",
            {"use_peft": "true", "--lora-r": "64", "lora_target_modules": "('q_proj', 'k_proj', 'v_proj', 'o_proj')"},
            {"rank": "64", "targets": "attention"},
        ),
        (
            "torchtune",
            {"model.lora_attn_modules": "('q_proj', 'v_proj')", "model.lora_rank": "8"},
            {"rank": "8", "targets": "query-value"},
        ),
        ("torchtune", {"lora_attn_modules": "('q_proj',)", "apply_lora_to_mlp": "True"}, {"targets": "all"}),
        ("litgpt", {"lora_r": "8", "lora_query": "true", "lora_key": "true"}, {"rank": "8", "targets": "attention"}),
        ("litgpt", {"quantize": "bnb.nf4", "lora_mlp": "false"}, {"base_bits": "4"}),
        ("llama-cookbook", {"peft_method": "lora", "quantization": "4bit"}, {"base_bits": "4"}),
        ("llama-cookbook", {"use_peft": "true", "quantization": "None"}, {}),
    ],
)
def test_plain_adapters_are_read(framework: str, given: dict[str, str], expected: dict[str, str]) -> None:
    # torchtune's recipe and litgpt's command say by their names that adapters are trained
    kind = "lora" if framework in ("torchtune", "litgpt") else ""
    assert read(framework, kind, **given) == {"adapters": "lora"} | expected


@pytest.mark.parametrize(
    "given",
    [
        {"finetuning_type": "oft"},
        {"peft_method": "llama_adapter"},
        {"adapter": None},
        {"lora_r": None},
        {"lora_r": "many"},
        {"lora_r": "0"},
        {"lora_target_modules": None},
        {"lora_dropout": None},
        {"use_dora": "true"},
        {"lora_modules_to_save": "('embed_tokens', 'lm_head')"},
        {"load_in_4bit": "true", "quant_method": "hqq"},
        {"quantize": "bnb.int2"},
    ],
)
def test_what_is_not_counted_or_cannot_be_told_is_not_read(given: dict[str, str | None]) -> None:
    assert read("axolotl", "lora", **given) is None


@pytest.mark.parametrize("framework", ["trl", "axolotl"])
def test_a_rank_without_the_switch_is_left_over_from_a_recipe(framework: str) -> None:
    # TRL's get_peft_config and axolotl's loader look at use_peft and adapter alone
    assert read(framework, lora_r="16", lora_target_modules="all-linear") is None


def test_what_a_users_own_program_takes_by_itself_is_not_known() -> None:
    assert read("hf-trainer", use_lora="true", lora_r="16") is None
    assert read("hf-trainer", use_lora="true", lora_r="16", lora_target_modules="q_proj,v_proj") is not None


def test_a_switch_that_cannot_be_told_is_not_read() -> None:
    assert read("trl", use_peft=None, lora_r="16") is None


def test_adapters_of_other_frameworks_are_not_read() -> None:
    assert read("nemo", "lora", lora_r="8") is None


def test_the_later_setting_holds() -> None:
    settings = [Setting(name="lora_r", value="8"), Setting(name="--lora_r", value="64")]
    assert (find_adapters(settings, "trl", kind="lora") or {})["adapters.rank"] == "64"
