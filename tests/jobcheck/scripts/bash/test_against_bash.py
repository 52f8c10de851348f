"""Small scripts as people write them, run by bash and read by opsk: what is said to be known is what bash passes on.

Not followed by design, and not here: what other programs say that is run (``eval "$(conda shell.bash hook)"``, ``export
$(cat .env)``) and foreign files that are sourced are taken not to set again what the script has set; names of files
stand for themselves; options of the shell are the usual ones.

``t`` is a program that notes its words. Each script was once read wrongly; where its words are given, they are to be
known as well.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.splitting import DEFAULT_IFS
from opsk_jobcheck.scripts.bash.values import Invocation, literal

BASH = Path("/bin/bash")
pytestmark = pytest.mark.skipif(not BASH.exists(), reason="there is no /bin/bash to agree with")

PROGRAM = '#!/bin/sh\nprintf "%s\\0" "$@" END >> "$NOTES"\n'
Call = tuple[str, ...]


def passed_by_bash(script: str, folder: Path, environment: dict[str, str]) -> list[Call]:
    """Return the words of each call of ``t``."""
    program, notes = folder / "bin" / "t", folder / "notes"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (folder / "work").mkdir()
    for name in ("train.sh", "other.sh"):
        (folder / "work" / name).write_text("")
    path = f"{program.parent}:{os.environ['PATH']}"
    subprocess.run(
        [BASH, "-c", script, "job"], cwd=folder / "work", env={**environment, "PATH": path, "NOTES": str(notes)},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False,
    )  # fmt: skip
    said = notes.read_text().split("\0")[:-1] if notes.exists() else []
    calls, words = list[Call](), list[str]()
    for word in said:
        if word == "END":
            calls.append(tuple(words))
            words = []
        else:
            words.append(word)
    return calls


def read_by_opsk(script: str, environment: dict[str, str] | None) -> list[Invocation]:
    """Return the calls of ``t`` that opsk sees."""
    result = run(script, given={"IFS": literal(DEFAULT_IFS, 0)}, environment=environment, arguments=())
    return [entry for entry in result.invocations if entry.words and entry.known_words[0] == "t"]


def fits(invocation: Invocation, call: Call) -> bool:
    """Tell whether what is known of a call is what was passed."""
    words = invocation.words[1:]
    for index, word in enumerate(words):
        if any(part.many for part in word.parts):
            return True
        if index >= len(call) or (word.known is not None and word.known != call[index]):
            return False
    return len(words) == len(call)


def disagreement(script: str, folder: Path, environment: dict[str, str] | None) -> str:
    """Return what opsk says that bash does not do, empty where they agree."""
    calls = passed_by_bash(script, folder, environment or {})
    seen = read_by_opsk(script, environment)
    if not seen:
        return ""
    shown = [(entry.certain, [word.shown for word in entry.words[1:]]) for entry in seen]
    certain = [entry for entry in seen if entry.certain]
    if len(certain) > len(calls):
        return f"certain are {shown}, bash ran {calls}"
    if len(seen) == len(calls):
        wrong = not all(map(fits, seen, calls))
    else:
        wrong = not all(any(fits(entry, call) for entry in seen) for call in calls)
    return f"said {shown}, bash passed {calls}" if wrong else ""


SCRIPTS = {
    "export expands all its words first": ("A=1; export A=2 B=$A; t $B", "1"),
    "local expands all its words first": ("f() { local a=$1 b=$a; t $b; }; a=9; f 4", None),
    "export calculates first": ("export TP=4 PP=$((TP*2)); t $PP", None),
    "declare -i calculates in order": ("declare -i TP=4 PP=TP*2; t $PP", None),
    "a local integer begins unset": ("I=5; f() { local -i I=I+1; t $I; }; f", None),
    "a local begins empty": ("x=3; f() { local x+=4; t $x; }; f", None),
    "a counting loop counts": ("i=0; for ((i=0; i<3; i++)); do t a $i; done; t b $i", None),
    "brackets count in loops of words": ("for i in {1..3}; do t $i; done", None),
    "braces make several words": ("A=({0..3}); t ${#A[@]}", None),
    "braces make several arguments": ("set -- {1..4}; t $#", None),
    "braces in a word": ("t --gpus={0,1}", None),
    "braces are letters in an assignment": ("A={1,2}; t $A", "{1,2}"),
    "a text is added to the first member": ("A=(1 2); A+=3; t ${A[@]}", "13 2"),
    "flags are added to the first member": ('A=(--tp 4); A+=" --pp 2"; t "${A[@]}"', None),
    "a member behind the last": ("A=(a b); A[${#A[@]}]=--flag; t ${A[@]}", None),
    "an array grows in a loop": ('A=(p q); for w in *.sh; do A+=(x); t ${#A[@]} "${A[@]}"; done', None),
    "what bash sets itself": ("t r$SECONDS; t u$UID; t h$HOSTNAME; t o$OSTYPE; t l$LINENO", None),
    "what bash sets is not kept": ("LINENO=42; RANDOM=42; t $LINENO; t $RANDOM", None),
    "a match leaves its parts": ("[[ x12 =~ ([0-9]+) ]] && t m${BASH_REMATCH[1]}", None),
    "a regular expression that is found": ("M=llama3-70b; [[ $M =~ -70b$ ]] && TP=8 || TP=1; t $TP", None),
    "a regular expression in quotes": (
        "M=7.b; [[ $M =~ '7.b' ]] && TP=8 || TP=1; [[ 7xb =~ '7.b' ]] && TP=4; t $TP",
        None,
    ),
    "a number by a regular expression": ("N=16; if [[ $N =~ ^[0-9]+$ && $N != 0 ]]; then t $N; fi", "16"),
    "a regular expression of ways": ("M=13b; [[ $M =~ ^(7|13)b$ ]] && TP=2; t x$TP", None),
    "arguments in a loop": (
        "set -- --tp 4 --pp=2 x; while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2 ;; "
        '--pp=*) PP="${1#*=}"; shift ;; *) break ;; esac; done; t $TP $PP "$@"',
        "4 2 x",
    ),
    "no arguments in a loop": ("TP=2; while (( $# )); do TP=$1; shift; done; t $TP", "2"),
    "no options": ("TP=2; while getopts 't:' o; do case $o in t) TP=$OPTARG ;; esac; done; t $TP $o", None),
    "options": ("set -- -t 4; TP=2; while getopts 't:' o; do case $o in t) TP=$OPTARG ;; esac; done; t $TP", None),
    "a loop that is tried again": ("for ((i=0; i<3; i++)); do t $i && break; done; t a $i", None),
    "a loop that goes on for ever": ("i=0; while true; do t $i; i=$((i+1)); ls >/dev/null && break; done", None),
    "a loop until": ("i=0; until [ $i -ge 2 ]; do t $i; ((i++)); done; t a $i", None),
    "a loop whose test is a program": (
        "i=0; while [ $i -lt 2 ] && ls >/dev/null; do i=$((i+1)); t $i; done; t a $i",
        None,
    ),
    "a loop without in": ('f() { for a; do t "$a"; done; }; f 1 "2 3"', None),
    "a loop that reads": ("printf '4\\n8\\n' > l; while [ 1 ]; do read x || break; t $x; done < l", None),
    "a function of a branch": (
        "if [ -e /etc/passwd ]; then cfg() { TP=8; }; else cfg() { TP=4; }; fi; cfg; t $TP",
        None,
    ),
    "a function of a subshell": ("f() { TP=1; }; ( f() { TP=2; } ); f; t $TP", None),
    "a function that is unset": ("f() { TP=1; }; TP=2; unset -f f; f; t $TP", None),
    "command starts a builtin": ("TP=2; command export TP=4; t $TP", "4"),
    "builtin starts a builtin": ("TP=2; builtin read TP <<< 4; t $TP", "4"),
    "octal numbers in brackets": ("TP=1; H=012; [[ $H -gt 10 ]] && TP=2; t $TP", None),
    "brackets calculate": ("A=4; [[ A -eq 4 ]] && TP=2; t $TP", None),
    "echo ends its line": ("echo TP=4 > e.sh; echo PP=2 >> e.sh; . ./e.sh; t $TP $PP", "4 2"),
    "printf knows escapes": ("printf 'TP=4\\nPP=2\\n' > e.sh; . ./e.sh; t $TP", None),
    "slices of arguments are several": ('f() { X=("${@:2}"); t ${#X[@]}; }; f 1 2 3', None),
    "slices in a command": ('f() { t "${@:2}" --tp 4; }; f 1 2 3', None),
    "a flag where there are arguments": ("f() { t ${@:+--flag} x; }; f", None),
    "shift of too many": ("set -- a; shift 2; t $# $1", "1 a"),
    "shift of none": ("set --; shift && TP=1 || TP=2; t $TP", "2"),
    "lost arguments are no defaults": ("f() { while [[ $1 == --* ]]; do shift; done; t ${1:-4}; }; f --x 8", None),
    "env hands an unknown value on": ("export TP=2; N=$(echo 8 | cat); env TP=$N bash -c 't $TP'", None),
    "env before a script": ("echo 't $TP' > r.sh; export TP=2; env TP=8 bash r.sh", "8"),
    "env takes a variable from a script": ("echo 't x$TP' > r.sh; export TP=2; env -u TP bash r.sh", None),
    "names that may be unset": ("A=4; [ -e /etc/passwd ] && unset A; t ${A:-1}", None),
    "a file that is sourced may fail": ("echo false > e.sh; . ./e.sh && TP=1 || TP=2; t $TP", None),
    "a file of a branch may set all": (
        "ls > e.sh; if [ -e /etc/passwd ]; then echo TP=2 > e.sh; . ./e.sh; fi; t x$TP",
        None,
    ),
    "exported in the turn before": ("X=1; for w in *.sh; do bash -c 't x$X'; export X; done", None),
    "exported in the turn before, with the rest": ("for w in *.sh; do bash -c 't x$X'; set -a; X=1; done", None),
    "not exported any more": ("export X=1; for w in *.sh; do bash -c 't x$X'; unset X; X=2; done", None),
    "exported in a loop": ("i=0; while [ $i -lt 1 ]; do i=1; export P=$(echo 2); done; echo 't x$P' > r; bash r", None),
    "exported in a loop, two shells away": (
        "i=0; while [ $i -lt 1 ]; do i=1; export P=$(echo 2); done; echo \"bash -c 't x\\$P'\" > r; bash r",
        None,
    ),
    "a text for the shell in a loop": ("X=a; for w in *.sh; do t $X; eval 'X=b'; done", None),
    "a local integer in a loop": (
        "f() { Q=0; while [ $Q -lt 2 ]; do Q=$((Q+1)); local -i I=I+1; t $I; done; }; I=5; f",
        None,
    ),
    "output into a process": ("exec > >(cat >/dev/null) 2>&1; TP=4; t $TP", "4"),
    "input from a process": ("read TP < <(echo 4); t x$TP", None),
    "input of a loop from a process": ("while read -r TP; do t $TP; done < <(echo 4); t a", None),
    "readonly in a function called twice": ("f() { local -r a=$1; t $a; }; f 1 >/dev/null; f 2; a=3; t $a", None),
    "members of which nobody knows how many": ('X=$(ls); A=($X); set -- "${A[@]^^}" x; t $#', None),
    "members that may be none, and a letter": (
        'A=(1 0 $(ls /none)); t "${A[@]}"x; A=($(ls /none) 1); t x"${A[@]}"',
        None,
    ),
    "empty members and another IFS": ('IFS=,; A=(a "" b); t ${A[@]}; set -- "" b; t $@', None),
    "no members and a blank": ('A=\' 1\'; B=("${S[@]}"$A); t ${#B[@]}; t $A"$@"', None),
    "no members and nothing in quotes": ('t "${S[@]}"""; t "$@"', None),
    "a turn that may be left": ("for x in 1 2; do ls >/dev/null && continue; t $x; done", None),
    "a function that is left with another value": (
        'f() { if ls >/dev/null; then K=A; eval "$K=5"; return; fi; }; A=1; f; t $A',
        None,
    ),
    "a function of a function": ("g() { A=2; }; f() { g; t $A; }; A=1; t $A; f; t $A", None),
    "a function that one branch unsets": ("f() { A=2; }; A=1; [ -e /etc/passwd ] || unset -f f; f; t $A", None),
    "a function that defines a function": ("f() { g() { A=2; }; }; g() { A=3; }; A=1; f; g; t $A", None),
    "a local of a text for the shell": ("f() { eval 'local A'; t x$A; }; A=1; f; t $A", None),
    "a local that is unset": ("f() { local A=2; unset A; t x$A; }; A=1; f; t x$A", None),
    "a local of nothing": ("f() { declare A; t x$A; A=2; }; A=1; f; t $A", None),
    "a function that calls itself": ("f() { A=$((A+1)); [ $A -lt 3 ] && f; }; A=1; f; t $A", None),
    "a directory that a subshell pushes": (
        "pushd /usr >/dev/null; (pushd / >/dev/null); popd >/dev/null; pwd; t 1",
        None,
    ),
    "a function by a variable in a loop": ("f() { A=2; }; A=1; X=f; for w in *.sh *.sh; do t $A; $X; done", None),
    "a case that falls through": (
        "I=5; A=x; case b in a) I=1 ;& *) t $I ;; esac; case a in a) I=2 ;& b) t $I ;; esac",
        None,
    ),
    "a function that may be left": ("f() { ls >/dev/null && return; t 1; }; f", None),
    "a command that is only said": ('echo bash -c "t --tp 4"; t 1', "1"),
    "a script that is only named": ("echo 't 8' > hook.sh; true hook.sh; ls hook.sh; nohup ls hook.sh; t 1", "1"),
    "a name that cannot be changed": ("readonly TP=4; read TP <<< 8; t $TP", None),
    "braces in a default": ('DS=conf; X=${DS:-{"a": 1}}; t $X', "conf}"),
    "quoted braces in a default": ('DS=conf; t "${DS:-{}}"', "conf}"),
    "a name in quotes is set in a loop": ('i=1; for w in *.sh; do t $i; let "i+=1"; done', None),
    "an index counts in a loop": ("i=0; for w in *.sh; do A[i++]=x; t $i; done", None),
    "a directory changes in a loop": ("for w in *.sh; do t ${PWD##*/}; cd ..; done", None),
    "upper case": ("declare -u X=abc; t $X", None),
    "case by a pattern": ("X=abc; t ${X^^[ab]} ${X^b}", None),
    "an empty length": ("X=abc; t x${X:1:}", "x"),
    "sed without -E": ("t $(echo 'a  b' | sed 's/ +/ /g')", None),
    "xargs drops blanks": ("X=$(echo ' 4 ' | xargs); t \"$X\"", None),
    "tr and the last newline": ("t $(echo 4 | tr '\\n' ,)", None),
    "the folder of a path": (
        'A=/data/run/7b.yaml; t "$(dirname $A)" $(basename "$A") $(basename $A .yaml)',
        "/data/run 7b.yaml 7b",
    ),
    "the folder of a folder": ("cd /usr/lib; t $(dirname $PWD)", "/usr"),
    "the folder of two words": ("A='a/b c/d'; t $(dirname $A)", None),
    "the folder of a word cut by another IFS": ("A=a/b; IFS=/; t $(dirname $A)", None),
    "a function named like pwd": ("pwd() { echo /x; }; t $(pwd)", None),
    "a function named like a command": ("dirname() { echo /x; }; A=/a/b; t $(dirname $A)", None),
    "options of echo": ("t $(echo - -n)", None),
    "bc counts in tens": ("t $(echo '010 + 1' | bc)", None),
    "a value set in a regular expression": ("[[ a =~ ^(b)${X:=4} ]]; t x$X", None),
    "a short circuit in brackets": ("[[ a == b && -n ${X:=4} ]]; t x$X", None),
    "set stops at --": ("set -- -a 4; TP=1; bash -c 't x$TP'", None),
    "a prefix of nothing": ("E=; TP=8 $E; t $TP", None),
    "a counter in a prefix": ("I=4; MB=$((I-=1)) true; t $I", None),
    "errors into a file": ("echo TP=2 > e.sh; ls /none 2> e.sh; TP=1; . ./e.sh 2>/dev/null; t $TP", None),
    "a file that is emptied": ("echo TP=2 > e.sh; : > e.sh; TP=1; . ./e.sh; t $TP", None),
    "xargs fills in": ("echo 4 | xargs -I{} bash -c 't {}'", None),
    "a process is a word": ("t <(ls) b", None),
    "a joined name": ("TP=4; TPx=7; t $TP\\\nx", None),
    "files that match": ("A=(*.sh); t ${#A[@]}", None),
    "arguments that match": ("set -- *.sh; t $#", None),
    "an old sum": ("t $[1+2]", None),
    "a function named like a builtin": ("cd() { TP=4; }; TP=1; cd x; t $TP", None),
    "arguments of a sourced file": ("echo 't $1' > e.sh; f() { . ./e.sh 8; }; f 2", None),
    "an unread file may set all": ("TP=1; [ -e /etc/passwd ] && echo TP=2 > e.sh; . ./e.sh; t $TP", None),
    "a file of an unknown text": ('N=$(echo TP=8 | cat); TP=1; echo "$N" > e.sh; . ./e.sh; t $TP', None),
    "a name that nobody knows": ("TP=2; K=$(echo TP | cat); declare $K=4; t $TP", None),
    "a name that read sets": ("TP=2; K=$(echo TP | cat); read $K <<< 4; t $TP", None),
    "a name that is unset": ("TP=4; K=$(echo TP | cat); unset $K; t x$TP", None),
    "another name": ("TP=2; declare -n R=TP; R=8; t $TP; TP=4; t $R", None),
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("is_given", [False, True], ids=["environment unknown", "environment given"])
def test_what_is_known_is_what_bash_passes(name: str, is_given: bool, tmp_path: Path) -> None:
    script, known = SCRIPTS[name]
    environment: dict[str, str] | None = {} if is_given else None
    assert disagreement(script, tmp_path, environment) == ""
    if known is not None and is_given:
        assert [" ".join(entry.known_words[1:]) for entry in read_by_opsk(script, environment)] == [known]


@pytest.mark.parametrize(
    "script",
    [
        "TP=4; bash -c 't $TP'",
        "unset TP; bash -c 't x$TP'",
        "export -n TP; bash -c 't x$TP'",
        "f() { local TP=8; bash -c 't $TP'; }; f",
        "[ -e /etc/passwd ] && unset TP; t ${TP:-1}",
    ],
)
def test_what_comes_from_the_environment_is_handed_on(script: str, tmp_path: Path) -> None:
    assert disagreement(script, tmp_path, {"TP": "2"}) == ""
