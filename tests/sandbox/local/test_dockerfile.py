from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.local.dockerfile import Dockerfile, parse
from benchflow.sandbox.local.instructions import ARCHITECTURE, Arg, Copy, Env, From, Instruction, Note, Run, Shell


def one(line: str) -> Instruction:
    """The last instruction of a file that ends in `line`."""
    return parse(f"FROM base\n{line}\n").instructions[-1]


def fields(instruction: Instruction) -> dict[str, Any]:
    return {k: v for k, v in asdict(instruction).items() if k not in {"line", "text", "buildkit"} and v}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ARG a", {"pairs": (("a", None),)}),
        ("ARG a= b=1 c='x y'", {"pairs": (("a", ""), ("b", "1"), ("c", "'x y'"))}),
        ("ENV a=1 b=$a", {"pairs": (("a", "1"), ("b", "$a"))}),
        ('ENV a="x y" b=x\\ y', {"pairs": (("a", '"x y"'), ("b", "x\\ y"))}),
        ("ENV a  x  y=z ", {"pairs": (("a", "x  y=z"),)}),
        ("WORKDIR /a b", {"path": "/a b"}),
        ("USER me:group", {"name": "me:group"}),
        ("RUN  echo  hi ", {"command": "echo  hi"}),
        ('RUN ["echo", "a b"]', {"command": ("echo", "a b")}),
        ("RUN [ -f x ]", {"command": "[ -f x ]"}),
        ("RUN ['echo']", {"command": "['echo']"}),
        ('SHELL ["/bin/bash", "-c"]', {"argv": ("/bin/bash", "-c")}),
        ("COPY a /b", {"sources": ("a",), "target": "/b"}),
        ("COPY a b* c/ /d/", {"sources": ("a", "b*", "c/"), "target": "/d/"}),
        ('COPY ["a b", "/c d"]', {"sources": ("a b",), "target": "/c d"}),
        (
            "COPY --chown=u:g --chmod=0755 --link a b",
            {"sources": ("a",), "target": "b", "chown": "u:g", "chmod": "0755"},
        ),
        ("ADD a b", {"sources": ("a",), "target": "b", "unpacks": True}),
        ("CMD echo hi", {"keyword": "CMD"}),
        ('ENTRYPOINT ["x"]', {"keyword": "ENTRYPOINT"}),
        ("LABEL a=b c='d e'", {"keyword": "LABEL"}),
        ("EXPOSE 80/tcp 90", {"keyword": "EXPOSE"}),
        ("STOPSIGNAL SIGTERM", {"keyword": "STOPSIGNAL"}),
        ("HEALTHCHECK --interval=5s CMD true", {"keyword": "HEALTHCHECK"}),
        ("VOLUME /a /b", {"keyword": "VOLUME"}),
        ("MAINTAINER Somebody <a@b>", {"keyword": "MAINTAINER"}),
    ],
)
def test_simple_instructions(line: str, expected: dict[str, object]) -> None:
    assert fields(one(line)) == expected
    keyword, _, rest = line.partition(" ")
    assert fields(one(f"  {keyword.lower()}\t{rest}")) == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("COPY --from=build a b", "--from"),
        ("COPY --exclude=x a b", "--exclude"),
        ("COPY <<EOF /x\ntext\nEOF", "heredoc"),
        ("ADD https://example.org/x /y", "it downloads https://example.org/x"),
        ("ADD git@example.org:x.git /y", "it downloads"),
        ("ADD --checksum=sha256:00 a b", "--checksum"),
        ("RUN --mount=type=cache,target=/x make", "--mount"),
        ("RUN --network=none make", "--network"),
        ("RUN <<EOF\necho hi\nEOF", "heredoc"),
        ("RUN cat <<-EOF > /x\n\techo\n\tEOF", "heredoc"),
        ("RUN 3<<A 4<<B cat\nA\nx\nB", "heredoc"),
        ("ONBUILD RUN x", "trigger"),
        ("FROM other", "another build stage"),
    ],
)
def test_complications_are_recognised(line: str, why: str) -> None:
    found = one(line) if why else None
    assert found is None or why in found.complication


@pytest.mark.parametrize("text", ["echo '<<EOF'", 'echo "<<EOF"', "echo $((1<<2))", "cat <<< word", "cat << EOF"])
def test_what_only_looks_like_a_heredoc_is_simple(text: str) -> None:
    assert not one(f"RUN {text}").complication


def test_platforms() -> None:
    for own in ("linux", f"linux/{ARCHITECTURE}", "$BUILDPLATFORM", "${TARGETPLATFORM}"):
        assert not parse(f"FROM --platform={own} base").complicated
    foreign = parse("FROM --platform=linux/s390x base").complicated
    assert foreign is not None
    assert "linux/s390x" in foreign.complication


def test_lines_are_joined_and_comments_dropped() -> None:
    parsed = parse(
        "# a comment\n\nFROM base\nRUN a && \\\n  # a comment inside\n\n  b && \\  \n  c\n"
        "   # another\nRUN d\\\n\tFROM\nENV x=y \\"
    )
    assert [(each.line, each.text) for each in parsed.instructions] == [
        (3, "FROM base"),
        (4, "RUN a &&   b &&   c"),
        (10, "RUN d\tFROM"),
        (12, "ENV x=y"),
    ]


def test_a_hash_within_a_line_is_no_comment() -> None:
    assert isinstance(found := one("RUN echo # not a comment"), Run)
    assert found.command == "echo # not a comment"


def test_carriage_returns_and_a_byte_order_mark_are_dropped() -> None:
    parsed = parse("\ufeffFROM base\r\nRUN a \\\r\n  b\r\n")
    assert [each.text for each in parsed.instructions] == ["FROM base", "RUN a   b"]


def test_the_escape_directive() -> None:
    parsed = parse("# syntax=docker/dockerfile:1\n# Escape = `\nFROM base\nRUN a `\n  b\\\nRUN c")
    assert parsed.escape == "`"
    assert [each.text for each in parsed.instructions[1:]] == ["RUN a   b\\", "RUN c"]
    assert parse("# hello\n# escape=`\nFROM base").escape == "\\"


def test_args_before_from_and_names_of_stages() -> None:
    parsed = parse("ARG V=1\nfrom base:$V as Build\nARG V")
    first, base, last = parsed.instructions
    assert isinstance(first, Arg)
    assert isinstance(base, From)
    assert isinstance(last, Arg)
    assert (base.image, base.alias, base.complication) == ("base:$V", "build", "")


def test_the_first_complication_is_found() -> None:
    parsed = parse("FROM a\nRUN x\nRUN --mount=type=bind y\nFROM b\n")
    assert parsed.complicated is parsed.instructions[2]
    assert parse("FROM a\nRUN x").complicated is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Dockerfile:1: there is no FROM"),
        ("# only\nARG x", "Dockerfile:1: there is no FROM"),
        ("ENV a=b\nFROM base", "Dockerfile:1: only ARG"),
        ("FROM base\n\nRUNN x", "Dockerfile:3: unknown instruction 'RUNN'\n  fix: did you mean RUN?"),
        ("FROM base\nRUN", "Dockerfile:2: RUN: needs an argument"),
        ("FROM base\nRUN --mount=x", "Dockerfile:2: RUN: needs an argument"),
        ("FROM", "Dockerfile:1: FROM: needs"),
        ("FROM a b", "Dockerfile:1: FROM: is written"),
        ("FROM a of b", "Dockerfile:1: FROM: is written"),
        ("FROM base\nCOPY a", "Dockerfile:2: COPY: needs at least one source"),
        ('FROM base\nCOPY ["a"]', "Dockerfile:2: COPY: needs at least one source"),
        ('FROM base\nRUN ["a", 1]', "Dockerfile:2: RUN: a list in brackets"),
        ("FROM base\nRUN []", "Dockerfile:2: RUN: a list in brackets"),
        ("FROM base\nSHELL bash", "Dockerfile:2: SHELL: is written as a list"),
        ("FROM base\nENV a", "Dockerfile:2: ENV: needs a name and a value"),
        ("FROM base\nENV a=1 b", "Dockerfile:2: ENV: is written NAME=value"),
        ("FROM base\nENV =1", "Dockerfile:2: ENV: is written NAME=value"),
        ("FROM base\nLABEL a", "Dockerfile:2: LABEL: needs"),
        ("FROM base\nARG =1", "Dockerfile:2: ARG: a name is missing"),
        ("FROM base\nRUN <<EOF\nx\n", "Dockerfile:2: the heredoc is not closed by a line 'EOF'"),
        ("# escape=x\nFROM base", "Dockerfile:1: the escape character"),
    ],
)
def test_mistakes_name_the_line(text: str, message: str) -> None:
    with pytest.raises(SandboxBuildError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_an_error_carries_its_step() -> None:
    parsed = parse("FROM base\nRUN x", "env/Dockerfile")
    error = parsed.error(parsed.instructions[1], "is wrong", hint="mend it")
    assert "env/Dockerfile:2: is wrong" in str(error)
    assert (error.step, error.hint) == ("RUN x", "mend it")


LINES = st.lists(
    st.one_of(
        st.text(),
        st.builds(
            "{} {}".format,
            st.sampled_from(
                [
                    "FROM",
                    "RUN",
                    "COPY",
                    "ADD",
                    "ENV",
                    "ARG",
                    "LABEL",
                    "SHELL",
                    "CMD",
                    "# escape=",
                    "HEALTHCHECK",
                    "USER",
                ]
            ),
            st.text(alphabet="ab =\"'\\`$[]{},<>-#\n\t1"),
        ),
    )
)


@settings(deadline=None)
@given(st.booleans(), LINES)
def test_any_text_is_read_or_refused(begins: bool, lines: list[str]) -> None:
    text = "\n".join((["FROM base"] if begins else []) + lines)
    try:
        parsed = parse(text)
    except SandboxBuildError as error:
        if "Dockerfile:" not in str(error):
            raise
        return
    assert isinstance(parsed, Dockerfile)
    assert all(each.line >= 1 and each.text for each in parsed.instructions)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["RUN a", "ENV x=y", "COPY a b", "CMD x", 'SHELL ["s"]', "LABEL a=b"])), st.data())
def test_breaking_lines_at_blanks_changes_nothing(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(["FROM base", *lines])
    broken = "".join(c + "\\\n" if c == " " and data.draw(st.booleans()) else c for c in text)
    kinds = (From, Run, Env, Copy, Note, Shell)
    plain, other = parse(text).instructions, parse(broken).instructions
    assert [fields(a) for a in plain] == [fields(b) for b in other]
    assert all(isinstance(each, kinds) for each in plain)
