"""What a script does to variables and which commands it would run; expectations tried in bash 5.2."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Run, Scalar, Text, literal
from opsk_jobcheck.scripts.settings.arguments import parse_arguments


def read(text: str, *, arguments: tuple[str, ...] | None = None, files: dict[str, str] | None = None) -> Run:
    given = {"SLURM_NNODES": literal("4", 0)}
    words = None if arguments is None else tuple(literal(word, 0) for word in arguments)
    return run(text, given=given, arguments=words, files=files)


def known(result: Run, name: str) -> str | None:
    variable = result.variables.get(name)
    return variable.text.known if isinstance(variable, Scalar) else None


def commands(result: Run) -> list[list[str | None]]:
    return [[word.known for word in invocation.words] for invocation in result.invocations]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1 B=2; X=$A$B", "12"),
        ("export X=1", "1"),
        ("declare -i X=3+4", None),
        ("declare -i X=64; X+=64", None),
        ("X=4; if grep -q a b; then declare -i X; fi; X+=4", None),
        ("declare -i X; read X <<< 2+3", None),
        ("X=a; X+=b", "ab"),
        ("X=1 # not 2", "1"),
        ("readonly X=5", "5"),
        ("X=1; unset X; X=${X-gone}", "gone"),
        ("if [[ 2 -gt 1 ]]; then X=1; else X=2; fi", "1"),
        ("if [ a = b ]; then X=1; elif [ a != b ]; then X=2; fi", "2"),
        ("S=52; if [[ ${S} == 7 ]]; then X=1\nelif [[ ${S} == 52 ]]; then X=8192; else X=2; fi", "8192"),
        ("case abc in x) X=1;; a*|b) X=2;; *) X=3;; esac", "2"),
        ('case abc in "a*") X=1;; *) X=3;; esac', "3"),
        ("case a in a) X=1;& b) X=2;; *) X=3;; esac", None),
        ("X=1; (( 2 > 1 )) && X=2", "2"),
        ("X=1; false || X=2", "2"),
        ("X=1; (X=2); true", "1"),
        ("X=1; { X=2; }", "2"),
        ("X=5; ((X+=2))", "7"),
        ("let X=2*3", "6"),
        ("X=5; let X+=$(nproc)", None),
        ("X=5; let 'Y = 2' \"X = $(nproc) + 1\"", None),
        ("X=5; if grep -q a b; then :; elif (( (X = 4) > 3 )); then :; fi", None),
        ("X=5; if grep -q a b; then :; elif [ ${Y:=7} = 7 ]; then :; fi; X=$Y", None),
        ("f() { while grep -q a b; do shift; done; X=$1; }; f 1 2", None),
        ("f() { while grep -q a b; do set -- 3; done; X=$1; }; f 1 2", None),
        ("f() { while grep -q a b; do eval 'set -- 3'; done; X=$1; }; f 1 2", None),
        ("X=1; f_7() { X=7; }; f_$(size)", None),
        ("X=1; f_7() { X=7; }; $(size)_7", None),
        ("X=1; f_7() { X=7; }; g_$(size)", "1"),
        ("X=1; f_7() { X=7; }; $(which time) f", "1"),
        ("eval 'X=4'", "4"),
        ("for X in 1 2 3; do :; done", "3"),
        ("N=0; for i in a b; do N=$((N+1)); done; X=$N", "2"),
        ("f() { X=$1; }; f 8", None),
        ("X=1; f() { local X=2; }; f", None),
        ("X=1; f() { Y=2; }; f", "1"),
        ('IFS="," read -r A X B <<< "1,4,8,1"', "4"),
        ("read A X <<< 'a b  c '", "b  c"),
        ("A=7\nread -r -d '' X <<EOF || true\n  a $A\nb\\n\n\nEOF\n", "a 7\nb\\n"),
        ("read -rd '' X <<'EOF'\n$A\nEOF\n", "$A"),
        ("read -d '' X <<'EOF'\na\nEOF\n", None),
        ("read -r X <<'EOF'\na\nEOF\n", None),
        ("X=1; read -r -d '' A <<< a && X=2", None),
        ("set -- a b; shift; X=$1", "b"),
        ("X=$SLURM_NNODES", "4"),
        ("X=1; printf -v X %s 2", None),
        ("X=1; if grep -q a b; then X=2; fi", None),
        ("X=1; if grep -q a b; then X=2; exit 1; fi", "1"),
        ("if grep -q a b; then X=2; else X=2; fi", "2"),
        ("X=0; while read l; do X=1; done", None),
        ("X=1; f() { X=2; }; for i in $(ls); do f; done", None),
        ("f() { X=1; if grep -q a b; then return; fi; X=2; }; f", None),
        ("X=$2", None),
    ],
)
def test_a_variable_is_known_exactly_when_it_is_certain(text: str, expected: str | None) -> None:
    assert known(read(text + "\n"), "X") == expected


def test_commands_are_kept_with_their_expanded_words() -> None:
    result = read('TP=4\nA=(--tp $TP)\nsrun -n 2 python t.py "${A[@]}" \\\n  --x=1\n')
    assert commands(result) == [["srun", "-n", "2", "python", "t.py", "--tp", "4", "--x=1"]]


def test_what_bash_c_runs_is_read_with_the_variables_it_sees() -> None:
    result = read("CMD='python t.py'\nsrun bash -c \"$CMD --node \\$SLURM_PROCID --tp 2\"\nTP=4 bash -c 'x $TP'\n")
    assert [word.known for word in result.invocations[1].words][:3] == ["python", "t.py", "--node"]
    assert commands(result)[-1] == ["x", "4"]


def test_a_command_in_an_undecided_branch_is_uncertain() -> None:
    result = read("if test -f x; then a; fi\nb\n")
    assert [(invocation.words[0].known, invocation.certain) for invocation in result.invocations] == [
        ("a", False),
        ("b", True),
    ]


def test_words_that_only_one_branch_adds_are_named() -> None:
    result = read('A="--tp 2"\nif test -f x; then A="$A --tp 4"; fi\nrun $A\n')
    words = result.invocations[0].words
    assert [word.known for word in words[:3]] == ["run", "--tp", "2"]
    assert words[3].parts[-1].mentions == ("--tp",)


def test_a_here_document_is_kept_by_its_path_and_expanded_unless_quoted() -> None:
    result = read("S=1\ncat <<E > a.$S.json\n{\"stage\": $S}\nE\ncat > b <<'E'\n$S\nE\ncat <<-E >> b\n\tt\n\tE\n")
    assert {path: text.known for path, text in result.files.items()} == {"a.1.json": '{"stage": 1}\n', "b": "$S\nt\n"}


def test_a_here_document_inside_a_substitution_may_hold_any_quote() -> None:
    result = read("A=$(python3 - <<'PY'\nprint(\"don't (\")\nPY\n)\nX=3\n")
    assert (known(result, "A"), known(result, "X")) == (None, "3")


def test_a_sourced_file_is_read_in_place_or_asked_for() -> None:
    assert known(read("source ./a.sh\nX=$Y\n", files={"a.sh": "Y=7\nreturn\nY=8\n"}), "X") == "7"
    assert read("source ./a.sh\n. $HOME/b\n").sourced == ("a.sh",)


def test_arguments_are_used_when_they_are_known() -> None:
    assert known(read('X=$2 N=$# A="$*"\n', arguments=("a", "b")), "X") == "b"
    assert known(read("X=${3:-none}\n", arguments=("a", "b")), "X") == "none"


def test_assignments_in_a_pipeline_are_lost_as_in_bash() -> None:
    assert known(read("X=1\necho a | X=2\n"), "X") == "1"


@pytest.mark.parametrize(
    "text", ["if true; then X=1\n", "X='abc\n", "done\nX=1\n", "case a in\n", 'echo "$(x\n', "f() {\n"]
)
def test_a_script_that_is_cut_off_is_read_as_far_as_it_goes(text: str) -> None:
    assert read("Y=2\n" + text).variables["Y"] == Scalar(Text(literal("2", 1).parts))


def test_flags_that_may_or_may_not_be_passed_are_not_certain() -> None:
    words = read('A="--tp 2"\nif test -f x; then A="$A --tp 4 --bf16"; fi\nrun $A --pp 2\n').invocations[0].words
    flags = parse_arguments(words, valueless=frozenset({"--bf16"})).flags
    assert [flags[name].certain for name in ("--tp", "--bf16", "--pp")] == [False, False, True]
    assert flags["--tp"].value.known is None


def test_what_a_template_leaves_to_be_filled_in_is_one_word() -> None:
    text = 'O="--save <PATH TO CHECKPOINTS> --split 98,2,0 --load <DIR>"\nsh -c "run $O --fp16"\nX=<Specify path>\n'
    result = read(text)
    assert commands(result)[-1][1:] == [
        *("--save", "<PATH TO CHECKPOINTS>", "--split", "98,2,0", "--load", "<DIR>", "--fp16"),
    ]
    assert known(result, "X") == "<Specify path>"


@pytest.mark.parametrize("text", ["run < in > out", "run <in >out", "run <<< text", "run <in>out", "run < <(ls) x>y"])
def test_redirections_stay_redirections(text: str) -> None:
    assert commands(read(text + "\n"))[0][0] == "run"
    assert not any("<" in (word or "") for word in commands(read(text + "\n"))[0])


def test_words_handed_to_another_shell_keep_the_lines_that_they_were_written_on() -> None:
    result = read('CMD="python t.py \\\n  --a 1 \\\n  --b 2"\nbash -c "$CMD --c 3 | tee log"\n')
    inner = next(entry for entry in result.invocations if entry.known_words[:2] == ("python", "t.py"))
    lines = [(word.known, word.line) for word in inner.words]
    assert lines == [
        *(("python", 1), ("t.py", 1), ("--a", 2), ("1", 2), ("--b", 3), ("2", 3)),
        *(("--c", 4), ("3", 4)),
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("MBS=2\nbash -c 'run ${MBS:-1}'", "1"),
        ("export MBS=2\nsrun bash -c 'run ${MBS:-1}'", "2"),
        ("export MBS=2\nexport -n MBS\nbash -c 'run ${MBS:-1}'", "1"),
        ('MBS=2\nbash -c "run ${MBS:-1}"', "2"),
        ("MBS=2 bash -c 'run ${MBS:-1}'", "2"),
        ("set -- a b\nbash -c 'run ${1:-none}'", "none"),
        ("bash -c 'run $1' me 4", "4"),
    ],
)
def test_a_text_for_another_shell_sees_what_is_exported_and_its_own_words(script: str, expected: str) -> None:
    """As in bash 5.2; the environment of the user is known and empty."""
    result = run(f"{script}\n", given={}, environment={}, arguments=())
    inner = next(entry for entry in result.invocations if entry.known_words[0] == "run")
    assert inner.known_words == ("run", expected)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("V=2\nif x=$(grep a b); then V=4; fi", None),
        ("V=2\nx=$(which a) || V=4", None),
        ("V=2\nx=`which a` && V=4", None),
        ("V=2\nx=1 && V=4", "4"),
        ("f() { local x; x=$(which a); }\nV=2\nf && V=8", None),
    ],
)
def test_a_value_that_a_command_prints_may_fail(script: str, expected: str | None) -> None:
    assert known(read(script), "V") == expected


@pytest.mark.parametrize("script", ["V=2\nSEP=#; V=4", "V=2\nC=#fff; V=4", "V=4 # V=2", "A=(# V=2\n1); V=4"])
def test_a_remark_begins_a_word(script: str) -> None:
    assert known(read(script), "V") == "4"


@pytest.mark.parametrize(
    "script",
    [
        "V=2\nV=4 & wait",
        "V=2\nf() { V=4; }\nf &\nwait",
        "V=2\n{ V=4; } &",
        "V=2\nif true; then V=4; fi &",
        "V=2\ntrue && V=4 &",
    ],
)
def test_what_runs_in_the_background_changes_nothing_here(script: str) -> None:
    assert known(read(script), "V") == "2"


def test_a_command_in_the_background_is_a_command() -> None:
    assert commands(read("run 1 &\nrun 2 &> log &\nwait\n"))[:2] == [["run", "1"], ["run", "2"]]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("f() { X=${V:-2}; }\nV=4 f", (None, None)),
        ("V=1\nf() { X=${V:-2}; V=7; }\nV=4 f", (None, "1")),
        ("V=1\nV=8 eval 'X=$V'", ("8", "1")),
    ],
)
def test_what_is_assigned_before_a_function_holds_within_it(script: str, expected: tuple[str, str | None]) -> None:
    result = run(script, given={}, environment={})
    assert (known(result, "X"), known(result, "V")) == expected


def test_what_a_function_runs_is_read_with_its_arguments_and_may_not_run() -> None:
    result = read("train() { local tp=$1; run --tp $tp --pp $2; }\ntrain 4 2\n")
    assert [(entry.known_words, entry.certain) for entry in result.invocations] == [
        (("run", "--tp", "4", "--pp", "2"), False)
    ]


@pytest.mark.parametrize(
    "writer",
    [
        "{ echo V=8; echo W=1; } > e.sh",
        "( echo V=8 ) > e.sh",
        "for i in 8; do echo V=$i; done > e.sh",
        "if x; then echo V=8; fi >> e.sh",
        "f() { echo V=8; }\nf > e.sh",
    ],
)
def test_a_file_that_several_commands_write_is_not_known(writer: str) -> None:
    assert known(read(f"echo V=2 > e.sh\n{writer}\n. ./e.sh\n"), "V") is None


@pytest.mark.parametrize("script", ["V=4\nf() { local -n r=$1; r=8; }\nf V", "V=4\ndeclare -n r=V\nr=8"])
def test_a_variable_with_another_name_is_not_followed(script: str) -> None:
    assert known(read(script), "V") is None


@pytest.mark.parametrize("name", ["echo", "printf", "cat", "say"])
def test_what_a_function_writes_is_not_what_a_program_of_its_name_would(name: str) -> None:
    result = read(f"echo old > ds.json\n{name}() {{ command cat other; }}\n{name} new > ds.json\n")
    assert result.changed == {"ds.json": f"{name}()"}
