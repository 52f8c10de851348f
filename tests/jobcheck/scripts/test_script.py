"""The one entry to all readers: what is put together from Slurm, framework, files and the user; and hostile input."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.workload.completion import complete
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import MAX_MISSING_FILES, MAX_SCRIPT_CHARS, read_script
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER
from opsk_jobcheck.submission.request import SlurmRequest
from tests.fakes.workloads import evidence

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
SHAPE = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048"
TRAIN = f"srun python pretrain_gpt.py {SHAPE} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2\n"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
REALISTIC = (
    HEAD
    + """#SBATCH --gres=gpu:h100:8
#OPSK model.name=try
TP=${TP:-4}
PP=$((TP / 2))
ARGS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32)
for size in 1 2; do ARGS+=(--micro-batch-size $size); done
if [ "$FAST" = 1 ]; then ARGS+=(--recompute-granularity full); else EXTRA="--bf16"; fi
case $TP in 4) SEQ=2048 ;; *) SEQ=4096 ;; esac
cat > ds.json <<EOF
{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": $TP}
EOF
run() { local out=$1; shift; srun --output "$out" bash -c "$*"; }
run log.txt torchrun --nnodes $SLURM_NNODES pretrain_gpt.py "${ARGS[@]}" $EXTRA --seq-length $SEQ \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --deepspeed --deepspeed_config ds.json
"""
)


def read(text: str | bytes, **more: object) -> Workload:
    """Read a script called ``job.sh``."""
    return read_script(text, file="job.sh", **more)  # type: ignore[arg-type]


def test_a_script_starts_in_the_directory_that_it_was_submitted_from() -> None:
    starts = 'ROOT="${ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}"\nexec "$ROOT/scripts/run.sh"\n'
    assert read(HEAD + starts).missing_files == ("scripts/run.sh",)
    run = {"scripts/run.sh": TRAIN}
    assert read(HEAD + starts, files=run).plan.tp == 2
    assert read(f"{HEAD}#SBATCH --chdir=/elsewhere\n{starts}").missing_files == ()


def test_gpus_follow_from_the_slurm_lines() -> None:
    workload = read(HEAD + TRAIN)
    assert (workload.plan.nodes, workload.plan.gpus_per_node, workload.plan.gpus) == (2, 8, 16)
    assert evidence(workload, "plan.nodes").line == 2


def test_gpus_follow_from_the_launcher_where_slurm_does_not_say() -> None:
    workload = read(f"#!/bin/bash\nN=4\ntorchrun --nnodes=$N --nproc_per_node 8 pretrain_gpt.py {SHAPE}\n")
    assert (workload.plan.nodes, workload.plan.gpus_per_node, workload.plan.gpus) == (4, 8, 32)
    assert evidence(workload, "plan.nodes").line == 2


def test_an_elastic_node_count_is_none() -> None:
    assert read(f"#!/bin/bash\ntorchrun --nnodes=1:4 --nproc-per-node 8 pretrain_gpt.py {SHAPE}\n").plan.nodes is None


def test_the_request_beats_the_script() -> None:
    workload = read(HEAD + TRAIN, request=SlurmRequest(nodes=4, gpus_per_node=4))
    assert (workload.plan.nodes, workload.plan.gpus_per_node, workload.plan.gpus, workload.plan.dp) == (4, 4, 16, 4)


def test_arguments_of_the_script_are_its_positional_parameters() -> None:
    script = HEAD + f"set -euo pipefail\nsrun python pretrain_gpt.py {SHAPE} --micro-batch-size $1\n"
    assert read(script, request=SlurmRequest(arguments=("4",))).plan.micro_batch == 4
    assert read(script).plan.micro_batch is None


def test_a_script_that_is_submitted_without_arguments_has_its_defaults() -> None:
    """Whoever checks a script may give it some later: then its defaults are not what holds."""
    turn = 'case "$1" in --mbs) MBS=$2; shift 2 ;; *) echo what?; exit 1 ;; esac'
    script = (
        HEAD
        + f"MBS=2\nwhile [[ $# -gt 0 ]]; do {turn}; done\nsrun python pretrain_gpt.py {SHAPE} --micro-batch-size $MBS\n"
    )
    assert read(script, request=SlurmRequest(arguments=())).plan.micro_batch == 2
    assert read(script, request=SlurmRequest(arguments=("--mbs", "4"))).plan.micro_batch == 4
    assert read(script).plan.micro_batch is None


@pytest.mark.parametrize("count", ["²", "٣", "9" * 5000, "-1", "''", "$X"])
def test_arguments_shifted_by_nonsense_cannot_be_told(count: str) -> None:
    script = HEAD + f"shift {count}\nsrun python pretrain_gpt.py {SHAPE} --micro-batch-size $1\n"
    assert read(script, request=SlurmRequest(arguments=("4", "x"))).plan.micro_batch in (None, 4)


def test_the_shell_begins_with_its_usual_field_separators() -> None:
    script = HEAD + f"OLD=$IFS; IFS=,; IFS=$OLD\nF='--micro-batch-size 4'\nsrun python pretrain_gpt.py {SHAPE} $F\n"
    assert read(script).plan.micro_batch == 4


def test_what_the_user_says_wins_and_arithmetic_starts_from_it() -> None:
    workload = read(HEAD + "#OPSK tp=4 layers=40\n" + TRAIN)
    assert (workload.model.layers, workload.plan.tp, workload.plan.dp) == (40, 4, 2)
    assert (evidence(workload, "plan.tp").line, evidence(workload, "plan.tp").text) == (4, "#OPSK tp=4 layers=40")


def test_a_user_may_want_no_advice() -> None:
    assert read(HEAD + "#OPSK off\n" + TRAIN).opted_out
    assert not read(HEAD + TRAIN).opted_out


@pytest.mark.parametrize("script", ["", "\n", "#!/bin/bash\n", HEAD + "srun hostname\n", "hello", "#SBATCH -N 2"])
def test_other_work_is_no_training(script: str) -> None:
    workload = read(script)
    assert (workload.is_training, workload.framework, workload.evidence == ()) == (
        False,
        None,
        "-N" not in script and not workload.plan.nodes,
    )


def test_a_framework_without_a_reader_is_named_and_nothing_is_guessed() -> None:
    workload = read(HEAD + "srun torchrun lightning_train.py --config x.yaml\n")
    assert (workload.framework, workload.launcher, workload.is_training) == ("lightning", "srun + torchrun", True)
    assert (workload.model.layers, workload.plan.tp, workload.plan.micro_batch) == (None, None, None)
    reasons = {entry.field: entry.why for entry in workload.unknown}
    assert reasons["model.layers"] == "the settings are in x.yaml, which opsk has not read"


@pytest.mark.parametrize("flag", ["--model llama3-70b", "--model_name=meta-llama/Llama-3.1-70B", "--preset LLAMA3_70B"])
def test_a_public_model_is_named_by_programs_that_nobody_reads(flag: str) -> None:
    workload = read(HEAD + f"srun python train.py {flag}\n")
    assert workload.model.name in flag
    assert "model.layers" not in complete(workload).missing
    assert read(HEAD + "srun python train.py --model net5\n").model.name is None


def test_a_trainer_of_no_known_framework_has_the_reason() -> None:
    workload = read(HEAD + "srun python train.py --layers 4\n")
    assert (workload.framework, workload.is_training) == (None, True)
    reasons = {entry.field: entry.why for entry in workload.unknown}
    assert reasons["model.hidden"] == "no setting that opsk knows states it"


def test_a_configuration_is_wanted_and_read_when_it_is_given() -> None:
    script = HEAD + "srun torchrun train.py --config_name /models/llama/config.json\n"
    assert read(script).missing_files == ("train.py", "/models/llama/config.json")
    workload = read(script, files={"/models/llama/config.json": json.dumps(CONFIG, indent=1)})
    assert workload.missing_files == ("train.py",)
    assert (workload.model.layers, workload.model.hidden, workload.model.kv_heads) == (16, 2048, 8)
    entry = evidence(workload, "model.layers")
    # "num_hidden_layers" stands on line 6 of the JSON above, written with an indent
    assert (entry.file, entry.line) == ("/models/llama/config.json", 6)


def test_flags_beat_a_configuration() -> None:
    script = HEAD + TRAIN.rstrip() + " --hf-config=llama/config.json\n"
    workload = read(script, files={"llama/config.json": json.dumps(CONFIG)})
    assert (workload.model.layers, workload.model.vocab) == (32, 128256)


@pytest.mark.parametrize("text", ["", "{", "[]", "\0", '{"num_hidden_layers": -1}', '{"hidden_size": 1e999}'])
def test_a_broken_configuration_states_nothing_wrong(text: str) -> None:
    workload = read(HEAD + "srun torchrun train.py --c x/config.json\n", files={"x/config.json": text})
    assert (workload.model.layers, workload.model.hidden) == (None, None)


@pytest.mark.parametrize(
    "name", ["ds_config.json", "deepspeed_config.json", "tokenizer_config.json", "m/adapter_config.json"]
)
def test_configurations_of_other_things_are_not_wanted(name: str) -> None:
    assert read(HEAD + f"torchrun train.py --c {name}\n").missing_files == ("train.py",)


def test_only_some_files_are_wanted() -> None:
    words = " ".join(f"--c m{index}/config.json" for index in range(50))
    assert len(read(HEAD + f"torchrun train.py {words}\n").missing_files) == MAX_MISSING_FILES


@pytest.mark.parametrize("cut", ["\\\n  # --sequence-parallel \\\n", "\\ \n", "\n", "\\  # why\n"])
def test_flags_that_a_comment_or_a_blank_or_no_backslash_has_cut_off_are_none(cut: str) -> None:
    """A shell runs the first line alone, and does not find a command called --num-layers."""
    known = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --recompute-activations --micro-batch-size 2"
    )
    workload = read(f"torchrun pretrain_gpt.py {known} {cut}  {SHAPE}\n")
    assert (workload.model.layers, workload.model.hidden, workload.plan.micro_batch) == (None, None, 2)
    assert [(problem.what.partition(":")[0], problem.line) for problem in workload.problems] == [
        ("--num-layers starts a new command, as the line before does not continue", cut.count("\n") + 1)
    ]


def test_a_sourced_file_is_wanted_and_read_in_place() -> None:
    script = HEAD + f"source sizes.env\nsrun python pretrain_gpt.py {SHAPE} --micro-batch-size $MBS\n"
    assert read(script).missing_files == ("sizes.env",)
    assert read(script, files={"sizes.env": "MBS=4\n"}).plan.micro_batch == 4


@pytest.mark.parametrize("content", [b"\x7fELF\0\0\1", b"#!/bin/bash\n" + b"x" * 9000 + b"\0", "#!/bin/bash\n\0"])
def test_a_binary_file_is_one_problem(content: str | bytes) -> None:
    workload = read(content)
    (problem,) = workload.problems
    assert "binary" in problem.what
    assert (problem.file, problem.hint, workload.is_training) == ("job.sh", "sbatch wants a text script", False)


def test_a_script_that_is_too_long_is_read_as_far_as_it_goes() -> None:
    workload = read(HEAD + TRAIN + "# x\n" * 600_000)
    assert workload.model.layers == 32
    assert "only the first" in workload.problems[-1].what


def test_a_line_that_is_too_long_is_cut() -> None:
    (problem,) = read("#" * (2 * MAX_SCRIPT_CHARS)).problems
    assert f"only the first {MAX_SCRIPT_CHARS} were read" in problem.what


def test_dos_line_ends_are_read_and_reported() -> None:
    workload = read((HEAD + TRAIN).replace("\n", "\r\n"))
    assert (workload.model.layers, workload.plan.gpus) == (32, 16)
    assert any("DOS" in problem.what for problem in workload.problems)


def test_a_byte_order_mark_is_read_over_and_reported() -> None:
    workload = read(b"\xef\xbb\xbf" + (HEAD + TRAIN).encode())
    assert (workload.model.layers, workload.plan.gpus) == (32, 16)
    assert "byte order mark" in workload.problems[-1].what


def test_other_encodings_do_no_harm() -> None:
    assert read((HEAD + "# caf\xe9 \xff\n" + TRAIN).encode("latin-1")).model.layers == 32


def test_escape_sequences_in_names_and_values_state_nothing() -> None:
    workload = read(
        HEAD + f"srun python pretrain_gpt.py {SHAPE} --micro-batch-size '\x1b[31m2' --optimizer $'\\e]0;x\\a'\n"
    )
    assert workload.plan.micro_batch is None


def consistent(workload: Workload) -> None:
    """Check what holds of every workload: values are sound, cited, and not said to be unknown."""
    fields = {f"model.{name}": getattr(workload.model, name) for name in workload.model.__slots__ if name != "name"}
    fields |= {f"plan.{name}": getattr(workload.plan, name) for name in workload.plan.__slots__}
    stated = {name for name, value in fields.items() if value is not None}
    entries = {entry.field: entry for entry in workload.evidence}
    assert stated <= entries.keys()
    assert not stated & {entry.field for entry in workload.unknown}
    assert all(abs(value) <= MAX_NUMBER**2 for value in fields.values() if isinstance(value, int))
    assert all(entry.line >= 0 and len(entry.text) <= 200 for entry in workload.evidence)


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    consistent(read(text))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    consistent(read(content))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_a_damaged_script_is_read_without_an_error(chance: random.Random, changes: int) -> None:
    text = REALISTIC
    for _ in range(changes):
        start = chance.randrange(len(text) + 1)
        length = chance.choice((1, 1, 2, 20))
        insert = chance.choice(
            ("", "", "'", '"', "$(", "${", ")", "}", "`", "\\", "<<EOF\n", "((", "²", "999999999999 ", "\x1b[")
        )
        text = text[:start] + insert + text[start + length :]
    consistent(read(text))


@given(
    st.integers(1, MAX_NUMBER),
    st.integers(0, 5),
    st.sampled_from(["plain", "equals", "variable", "array", "quoted"]),
)
def test_a_literal_value_is_cited_where_it_is_written(value: int, blank: int, style: str) -> None:
    pad = "\n" * blank
    flag = "--micro-batch-size"
    body = {
        "plain": f"{pad}python pretrain_gpt.py {SHAPE} {flag} {value}\n",
        "equals": f"{pad}python pretrain_gpt.py {SHAPE} {flag}={value}\n",
        "variable": f"{pad}V={value}\npython pretrain_gpt.py {SHAPE} {flag} $V\n",
        "array": f"A=({flag} \\\n{pad and ' '}{value}\n)\npython pretrain_gpt.py {SHAPE} ${{A[@]}}\n",
        "quoted": f'{pad}C="python pretrain_gpt.py {SHAPE} {flag} {value}"\nbash -c "$C"\n',
    }[style]
    workload = read(HEAD + body)
    entry = evidence(workload, "plan.micro_batch")
    assert workload.plan.micro_batch == value
    assert str(value) in (HEAD + body).split("\n")[entry.line - 1]
    assert str(value) in entry.text


def test_arguments_that_set_variables_by_their_names_leave_words_and_later_values_alone() -> None:
    """As scripts for AMD's GPUs begin: ``for ARGUMENT in "$@"; do ...; export "$KEY"="$VALUE"; done``."""
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nEARLY=4\n"
        'for ARGUMENT in "$@"; do\n  KEY=$(echo $ARGUMENT | cut -f1 -d=)\n  export "$KEY"="${ARGUMENT#*=}"\ndone\n'
        'TP="${TP:-8}"\nARGS=" --num-layers 80 --hidden-size 8192 "\n'
        'ARGS+="--tensor-model-parallel-size $TP --seq-length $EARLY "\n'
        "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py $ARGS\n"
    )
    workload = read_script(script, file="job.sh")
    assert (workload.framework, workload.plan.tp, workload.plan.nodes) == ("megatron-lm", 8, 2)
    assert workload.model.seq is None, "an argument may have set it"


AFTERWARDS = 'bash -c "python run_clm.py --model_name_or_path Qwen/Qwen2-7B --max_steps 5 --block_size 512"'


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        (f"srun {AFTERWARDS}", "hf-trainer"),
        # a program's own words may hold a command for later: what it trains is what trains
        (f"srun torchrun pretrain_gpt.py {SHAPE} --micro-batch-size 1 --on-exit {AFTERWARDS}", "megatron-lm"),
        (f"srun torchrun pretrain_gpt.py {SHAPE} --micro-batch-size 1 --on-exit bash -c 'echo done'", "megatron-lm"),
    ],
)
def test_of_a_shell_and_of_what_it_is_given_that_is_read_which_trains(command: str, framework: str) -> None:
    assert read(f"{HEAD}{command}\n").framework == framework
