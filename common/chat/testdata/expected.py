#!/usr/bin/python3
"""Writes expected.json: what Jinja2, set up as transformers does, makes of the templates here. Needs python3-jinja2.

  common/chat/testdata/expected.py          compare; exit 1 if expected.json says something else
  common/chat/testdata/expected.py --write  write it
"""
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent

U1 = {"role": "user", "content": "Hi, who are you?"}
A1 = {"role": "assistant", "content": "I am a model."}
U2 = {"role": "user", "content": "  What is 2 + 2?\n\nShow \"work\". "}
A2 = {"role": "assistant", "content": "\n2 + 2 = 4 \u2713 "}
SYSTEM = {"role": "system", "content": "You are terse."}
THOUGHT = {"role": "assistant", "content": "<think>\nadd them\n</think>\n\nIt is 4."}
CONVERSATIONS = {
    "one": [U1, A1],
    "two": [U1, A1, U2, A2],
    "system": [SYSTEM, U1, A1, U2, A2],
    "thought": [U2, THOUGHT, U1, THOUGHT],
    "question": [SYSTEM, U2],
    "empty_answer": [U1, {"role": "assistant", "content": ""}],
    "wrong_order": [A1, U1],
    "three_scripts": [{"role": "user", "content": "\u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d \U0001f600"},
                      {"role": "assistant", "content": "\u3000\u4f60\u597d\u00a0"}],
}


class Generation(jinja2.ext.Extension):
    """{% generation %} prints its body, as transformers' AssistantTracker does."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    env = environment()
    cases = []
    for path in sorted(HERE.glob("*.jinja")):
        template = env.from_string(path.read_text())
        for name, messages in CONVERSATIONS.items():
            for prompt in (False, True):
                case = {"template": path.name, "conversation": name, "add_generation_prompt": prompt}
                try:
                    case["text"] = template.render(messages=messages, tools=None, documents=None, add_generation_prompt=prompt,
                                                   bos_token="<s>", eos_token="</s>")
                except jinja2.exceptions.TemplateError as error:
                    case["error"] = str(error)
                cases.append(case)
    text = json.dumps({"conversations": CONVERSATIONS, "cases": cases}, indent=1, ensure_ascii=False) + "\n"
    if "--write" in sys.argv[1:]:
        (HERE / "expected.json").write_text(text)
    elif (HERE / "expected.json").read_text() != text:
        sys.exit("expected.json differs from what Jinja2 says; --write writes it")


if __name__ == "__main__":
    main()
