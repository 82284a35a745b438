"""Tiny ACP agents, each with one habit, for testing whoever talks to agents.

This file is also the program: it needs nothing but the standard library of Python 3.9, so it can be put into a sandbox
and run there as `python3 agents.py HABIT`. `command` gives the command line for this machine.

They answer `initialize` and `session/new` and then, for each prompt, do what their name says. `echo` is well-behaved;
the others show what real agents have been seen to do, or what a hostile one might.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

Json = dict[str, object]

SCRIPT = Path(__file__)
"""The program, to be put into a sandbox."""

BIG = 10 * 1024 * 1024
"""Characters in the one long line of the `big` agent."""


def command(habit: str, *args: str) -> list[str]:
    """The command that runs an agent on this machine."""
    return [sys.executable, str(SCRIPT), habit, *args]


class Agent:
    """The well-behaved agent; a habit overrides what it does differently."""

    version = 1

    def __init__(self, args: list[str]) -> None:
        self.args = args
        self.session = "session-1"
        self.prompts: list[str] = []
        self._asked = 0

    # -- the wire ----------------------------------------------------------------------------------------------------

    def send(self, message: Json) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def receive(self) -> Json:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        message: Json = json.loads(line)
        return message

    def ask(self, method: str, **params: object) -> Json:
        """Send a request and wait for its answer; what else arrives meanwhile is dropped."""
        self._asked += 1
        ident = f"ask-{self._asked}"
        self.send({"id": ident, "method": method, "params": {"sessionId": self.session, **params}})
        while True:
            message = self.receive()
            if message.get("id") == ident:
                return message

    def update(self, kind: str, **fields: object) -> None:
        params = {"sessionId": self.session, "update": {"sessionUpdate": kind, **fields}}
        self.send({"method": "session/update", "params": params})

    def say(self, text: str) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text})

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while True:
            message = self.receive()
            method, ident = message.get("method"), message.get("id")
            params = message.get("params")
            params = params if isinstance(params, dict) else {}
            if method == "initialize":
                self.initialize(ident)
            elif method == "session/new":
                self.new_session(ident, params)
            elif method == "session/prompt":
                self.prompts.append("".join(block.get("text", "") for block in params["prompt"]))
                self.prompt(ident, self.prompts[-1])
            elif ident is not None:
                self.other(ident, str(method), params)

    def initialize(self, ident: object) -> None:
        info = {"name": f"test-{type(self).__name__.lower()}", "version": "1"}
        self.send({"id": ident, "result": {"protocolVersion": self.version, "agentInfo": info}})

    def new_session(self, ident: object, params: Json) -> None:
        self.send({"id": ident, "result": {"sessionId": self.session}})

    def prompt(self, ident: object, text: str) -> None:
        self.say(f"{len(self.prompts)}: {text}")
        self.stop(ident)

    def other(self, ident: object, method: str, params: Json) -> None:
        self.send({"id": ident, "error": {"code": -32601, "message": f"no {method} here"}})

    def stop(self, ident: object, reason: str = "end_turn", **fields: object) -> None:
        self.send({"id": ident, "result": {"stopReason": reason, **fields}})


class Echo(Agent):
    """Repeats the prompt, with its number."""


class Noisy(Agent):
    """Mixes its messages with log lines, banners, JSON of its own, binary and half lines."""

    def send(self, message: Json) -> None:
        out = sys.stdout.buffer
        out.write(b'\nWelcome!\n{"level":"info","id":7}\n[1,2]\n12\n"text"\n\xff\xfe\x00\n{"broken": \n')
        out.write(b'{"jsonrpc":"2.0","method":7}\n{"jsonrpc":"2.0","id":[1],"result":1}\nprogress 50%')
        out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\r\n")
        out.flush()
        print("warning: something", file=sys.stderr)


class Pieces(Agent):
    """Writes its messages a few bytes at a time."""

    def send(self, message: Json) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        for start in range(0, len(data), 7):
            os.write(1, data[start : start + 7])
            time.sleep(0.001)


class Big(Agent):
    """Sends one line of ten megabytes."""

    def prompt(self, ident: object, text: str) -> None:
        self.say("x" * BIG)
        self.stop(ident)


class Dying(Agent):
    """Ends in the middle of a turn, after a word on standard error. With `at-once` it ends before anything else."""

    def __init__(self, args: list[str]) -> None:
        super().__init__(args)
        if "at-once" in args:
            self.die()
        if "first" in args and not Path(args[-1]).exists():
            Path(args[-1]).write_text("died once")
            self.die()

    def prompt(self, ident: object, text: str) -> None:
        self.say("last words")
        if "child" in self.args:  # a child that keeps our output open
            subprocess.Popen(["sleep", "60"])
        self.die()

    def die(self) -> None:
        print("fatal: out of cheese", file=sys.stderr, flush=True)
        os._exit(7)


class Hanging(Agent):
    """Says a word and never ends its turn. With `polite` it ends it when it is cancelled."""

    def prompt(self, ident: object, text: str) -> None:
        self.say("thinking")
        while True:
            message = self.receive()
            if "polite" in self.args and message.get("method") == "session/cancel":
                self.say("stopping")
                self.stop(ident, "cancelled")
                return


class Mute(Agent):
    """Never answers anything."""

    def initialize(self, ident: object) -> None:
        print("still loading", file=sys.stderr, flush=True)


class Closing(Agent):
    """Closes its standard output in the middle of a turn and lives on."""

    def prompt(self, ident: object, text: str) -> None:
        os.close(1)
        time.sleep(60)


class Flooding(Agent):
    """Sends as many updates as the prompt says, as fast as it can."""

    def prompt(self, ident: object, text: str) -> None:
        fields = {"toolCallId": "call-1", "status": "in_progress"}
        content = [{"type": "content", "content": {"type": "text", "text": "x" * 200}}]
        update = {"sessionUpdate": "tool_call_update", **fields, "content": content}
        params = {"sessionId": self.session, "update": update}
        line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"
        for _ in range(int(text) // 100):
            sys.stdout.buffer.write(line * 100)
        sys.stdout.buffer.flush()
        self.stop(ident)


class OtherVersion(Agent):
    """Speaks another version of the protocol."""

    version = 7


class Refusing(Agent):
    """Answers a prompt with an error. With `new` it refuses the session."""

    def new_session(self, ident: object, params: Json) -> None:
        if "new" in self.args:
            error = {"code": -32000, "message": "Authentication required", "data": {"details": "no key"}}
            self.send({"id": ident, "error": error})
        else:
            super().new_session(ident, params)

    def prompt(self, ident: object, text: str) -> None:
        print("quota is used up", file=sys.stderr, flush=True)
        error = {"code": -32603, "message": "Internal error", "data": {"details": "model said no"}}
        self.send({"id": ident, "error": "just a string" if "odd" in self.args else error})


class Asking(Agent):
    """Asks for permission for a call it has not announced, and says what it was told."""

    def prompt(self, ident: object, text: str) -> None:
        options = [
            {"optionId": "n", "name": "No", "kind": "reject_once"},
            {"optionId": "y", "name": "Yes", "kind": "allow_once"},
            {"optionId": "yy", "name": "Always", "kind": "allow_always"},
        ]
        call = {"toolCallId": "call-1", "title": "rm -rf build", "kind": "execute", "rawInput": {"command": "rm"}}
        answer = self.ask("session/request_permission", toolCall=call, options=options)
        self.update("tool_call_update", toolCallId="call-1", status="completed", rawOutput="gone")
        self.say(json.dumps(answer.get("result")))
        self.stop(ident)


class Requesting(Agent):
    """Sends the requests that the prompt lists, one after the other, and says the answers.

    The prompt is a JSON list of `[method, params]`; a parameter "$terminal" stands for the last terminal.
    """

    def prompt(self, ident: object, text: str) -> None:
        answers = []
        terminal: object = None
        for method, params in json.loads(text):
            known = {key: terminal if value == "$terminal" else value for key, value in params.items()}
            answer = self.ask(method, **known)
            result = answer.get("result")
            if isinstance(result, dict) and "terminalId" in result:
                terminal = result["terminalId"]
            answers.append(answer.get("result", answer.get("error")))
        self.say(json.dumps(answers))
        self.stop(ident)


class Forging(Agent):
    """Answers questions nobody asked, and each real one twice."""

    def send(self, message: Json) -> None:
        for ident in (999, -1, "0", True, 1.0, None):
            super().send({"id": ident, "result": {"stopReason": "forged"}})
        super().send(message)
        if "result" in message:
            super().send({**message, "result": {"stopReason": "forged", "protocolVersion": 9, "sessionId": "forged"}})


class Choosing(Agent):
    """Offers models and modes and says which were chosen: as `config` options, or by the older `models` and `modes`."""

    def __init__(self, args: list[str]) -> None:
        super().__init__(args)
        self.chosen: Json = {"model": "small", "mode": "ask"}

    def options(self) -> list[Json]:
        values = {"model": ["small", "big[low]", "big[high]"], "mode": ["ask", "yolo"]}
        return [
            {
                "id": name,
                "name": name,
                "category": name,
                "type": "select",
                "currentValue": self.chosen[name],
                "options": [{"value": value, "name": value} for value in offered],
            }
            for name, offered in values.items()
        ]

    def new_session(self, ident: object, params: Json) -> None:
        offer: Json = {"configOptions": self.options()}
        if "config" not in self.args:
            models = [{"modelId": name, "name": name} for name in ("small", "big")]
            modes = [{"id": name, "name": name} for name in ("ask", "yolo")]
            offer = {
                "models": {"currentModelId": "small", "availableModels": models},
                "modes": {"currentModeId": "ask", "availableModes": modes},
            }
        self.send({"id": ident, "result": {"sessionId": self.session, **offer}})

    def other(self, ident: object, method: str, params: Json) -> None:
        if method == "session/set_config_option":
            if "stubborn" not in self.args:
                self.chosen[str(params["configId"])] = params["value"]
            self.send({"id": ident, "result": {"configOptions": self.options()}})
        elif method == "session/set_model" and params["modelId"] in ("small", "big"):
            self.chosen["model"] = params["modelId"]
            self.send({"id": ident, "result": {}})
        elif method == "session/set_mode" and params["modeId"] in ("ask", "yolo"):
            self.chosen["mode"] = params["modeId"]
            self.send({"id": ident, "result": None})
        else:
            super().other(ident, method, params)

    def prompt(self, ident: object, text: str) -> None:
        self.say(json.dumps(self.chosen))
        usage = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
        self.stop(ident, usage=usage)


class Shell(Agent):
    """Runs every line of the prompt that starts with `$ ` as a command, each a tool call, and says what came out.

    `$N` in a command is the number of the prompt in this process.
    """

    def prompt(self, ident: object, text: str) -> None:
        env = {**os.environ, "N": str(len(self.prompts))}
        for number, line in enumerate(line for line in text.splitlines() if line.startswith("$ ")):
            call = f"call-{len(self.prompts)}-{number}"
            self.update("tool_call", toolCallId=call, title=line[2:], status="in_progress")
            done = subprocess.run(line[2:], shell=True, capture_output=True, text=True, env=env, check=False)
            self.update("tool_call_update", toolCallId=call, status="completed", rawOutput=done.stdout + done.stderr)
            self.say(done.stdout + done.stderr)
        self.stop(ident)


class Deaf(Agent):
    """Never reads after the session is open, so that a long prompt fills its pipe."""

    def new_session(self, ident: object, params: Json) -> None:
        super().new_session(ident, params)
        time.sleep(60)


class Calling(Agent):
    """Asks the model at MODEL_URL, in Anthropic's dialect, as often as its first argument says, and writes `done`.

    At an error it says it and ends its turn; `fragile` answers with an error instead, and `stubborn` asks for ever.
    With `work=SECONDS` it is busy by itself before each question. MODEL is the model, MODEL_KEY the key.
    """

    def prompt(self, ident: object, text: str) -> None:
        work = [float(arg[5:]) for arg in self.args if arg.startswith("work=")]
        asked = 0
        while asked < int(self.args[0]):
            time.sleep(sum(work))
            status, said = self.call(text, asked)
            self.say(f"{status}: {said}")
            asked += status == 200
            if status != 200 and "stubborn" not in self.args:
                break
            time.sleep(0 if status == 200 else 0.05)
        else:
            Path("done").write_text("done")
        if "fragile" in self.args and status != 200:
            self.send({"id": ident, "error": {"code": -32603, "message": "API error", "data": said}})
        else:
            self.stop(ident)

    def call(self, text: str, number: int) -> tuple[int, str]:
        import urllib.error  # which the other habits need not wait for
        import urllib.request

        body = {
            "model": os.environ["MODEL"],
            "max_tokens": 100,
            "messages": [{"role": "user", "content": f"{text} ({number})"}],
        }
        head = {"x-api-key": os.environ["MODEL_KEY"], "content-type": "application/json"}
        url = os.environ["MODEL_URL"] + "/v1/messages"
        asked = urllib.request.Request(url, json.dumps(body).encode(), head)
        try:
            with urllib.request.urlopen(asked) as reply:
                return reply.status, json.loads(reply.read())["content"][-1]["text"]
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


HABITS: dict[str, type[Agent]] = {
    "echo": Echo,
    "noisy": Noisy,
    "pieces": Pieces,
    "big": Big,
    "dying": Dying,
    "hanging": Hanging,
    "mute": Mute,
    "closing": Closing,
    "flooding": Flooding,
    "other-version": OtherVersion,
    "refusing": Refusing,
    "asking": Asking,
    "requesting": Requesting,
    "forging": Forging,
    "choosing": Choosing,
    "deaf": Deaf,
    "calling": Calling,
    "shell": Shell,
}


if __name__ == "__main__":
    HABITS[sys.argv[1]](sys.argv[2:]).run()
