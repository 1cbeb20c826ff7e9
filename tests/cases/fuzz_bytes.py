"""atheris on the targets of byte_targets.py: bytes by coverage of our own code.

    python -m venv /tmp/atheris && /tmp/atheris/bin/pip install atheris==3.0.0
    PYTHONPATH=.:platform:.venv/lib/python3.11/site-packages \
        nice -n 15 /tmp/atheris/bin/python -m tests.cases.fuzz_bytes all 120

runs every target for 120 s. With a target's name instead of "all" the words after it are libFuzzer's: its time, a
folder that keeps what was found, an input to run again. The
environment is atheris's own, on the same Python; the project's packages come by PYTHONPATH. A finding becomes an
example of `test_bytes.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["engines.native", "tursiops.gateway", "msgspec", "json"]):
    from tests.cases.byte_targets import TARGETS

WORDS = [
    *(b"data: ", b"event: ", b"\n\n", b"\r\n\r\n", b"[DONE]", b'{"choices":[{"delta":{"content":"x"}}]}', b'"usage":{'),
    *(b'"prompt_tokens":7', b'"error"', b"message_delta", b"response.completed", b"response.output_text.delta"),
    *(
        b"<think>",
        b"</think>",
        b"<tool_call>",
        b"[TOOL_CALLS]",
        b'{"name": "f", "arguments": {',
        b"```json",
        b"[f(a=1)]",
    ),
    *(b'{"type":"object"}', b'"properties":{', b'"$ref":"#/$defs/a"', b'"anyOf":[', b'"pattern":"', b'"minLength":3'),
    *(b"start: ", b"root ::= ", b"%json ", b"(a|b)*", b"[a-z]{3,5}", b"\\p{L}", b"Mr. X. ", "。".encode(), b"\x00"),
]


STREAM = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":7}}\n\n'
NAMED = b'event: message_delta\r\ndata: {"type":"message_delta","usage":{"output_tokens":3}}\r\n\r\n: waiting\n\n'
SEEDS: dict[str, list[bytes]] = {
    "gateway_scanner": [
        b"\0\1" + STREAM + b"data: [DONE]\n\n", b"\1\2" + NAMED, b"\2\3" + NAMED,
        b'\0\3data: {"error":{"a":' + b"[" * 1500,
    ],
    "text_endings": [b'\3\1\5He said (e.g. so). {"a": [1, "}"]} and\0said\0a', b"\1\0\3One. Two\n\nThree\0wo"],
    "answer_parsers": [
        b'\0\0\5<think>so</think>\n<tool_call>{"name": "f", "arguments": {"a": "\\"}"}}</tool_call> x',
        b'\1\2\3[TOOL_CALLS] [{"name": "f", "arguments": {}}]',
        b"\2\3\4[f(a=1, b='x'), get_weather()]",
    ],
    "grammars": [
        b'\0\1{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"pattern":"^a+$"},true]}}}',
        b"\1\1[a-z]{3,5}(x|y)*", b'\2\1start: "a" b+\nb: /[0-9]/', b'\2\2root ::= "a" root | "b"', b"\3\1yes\0no",
    ],
}  # fmt: skip


def fuzz(name: str, options: list[str]) -> None:
    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Half of the time a word is put in; bytes alone seldom come to be one."""
        if seed % 2:
            return atheris.Mutate(data, most)
        word, at = WORDS[seed // 2 % len(WORDS)], (seed // 97) % (len(data) + 1)
        return (data[:at] + word + data[at:])[:most]

    atheris.Setup([sys.argv[0], *options], TARGETS[name], custom_mutator=mutate)
    atheris.Fuzz()


def fuzz_all(seconds: str) -> int:
    """Each target in a process of its own, from its seeds; a line of what was done. 1 if one found something."""
    found = 0
    for name in TARGETS:
        with tempfile.TemporaryDirectory(prefix="ts-atheris-") as folder:
            for number, seed in enumerate([b"\0", *SEEDS.get(name, [])]):
                Path(folder, str(number)).write_bytes(seed)
            options = [
                f"-max_total_time={seconds}",
                "-max_len=3000",
                "-timeout=20",
                f"-artifact_prefix={folder}/",
                folder,
            ]
            command = [sys.executable, "-m", "tests.cases.fuzz_bytes", name, *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        told = [line for line in lines if "DONE" in line or line.startswith("Done")]
        print(f"{name}: {'; '.join(told) or 'ended early'}", flush=True)
        if done.returncode:
            found = 1
            print(done.stdout[-4000:], "\n".join(lines[-4:]), sep="\n", flush=True)
    return found


def main() -> int:
    name, *options = sys.argv[1:]
    if name == "all":
        return fuzz_all(options[0])
    fuzz(name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
