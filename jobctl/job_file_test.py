"""The job file from the command line, without a coordinator: init, explain, hints and completion. Usage: job_file_test.py JOBCTL"""
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import unittest

import yaml

JOBCTL = sys.argv.pop(1)
COMPLETE = """
source <(jobctl completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
_jobctl; printf '%s\\n' "${COMPREPLY[@]}"
"""

# zsh completes only in its line editor: this has an interactive one complete a line, and notes what is offered.
ZSH = r"""
autoload -Uz compinit && compinit -u -D
source <(jobctl completion zsh)
compadd() {
  local -a found
  builtin compadd -O found "$@"
  (( $#found )) && print -rl -- $found >>$OFFERED
  builtin compadd "$@"
}
zle-line-init() { BUFFER=$LINE_TO_COMPLETE CURSOR=$#LINE_TO_COMPLETE; zle list-choices; exit 0 }
zle -N zle-line-init
"""


class JobFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name).resolve()
        self.env = {"PATH": os.path.dirname(JOBCTL) + ":/usr/bin:/bin", "HOME": str(self.dir / "home")}

    def jobctl(self, *args, fails=False):
        run = subprocess.run([JOBCTL, *args], cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode != 0, fails, run.stdout + run.stderr)
        return run.stderr if fails else run.stdout

    def complete(self, *words):
        run = subprocess.run(["bash", "-c", COMPLETE, "bash", "jobctl", *words], env=self.env, capture_output=True, text=True,
                             timeout=60, cwd=self.dir)
        self.assertEqual(run.stderr, "")
        return run.stdout.split()

    def complete_in_zsh(self, line):
        offered, script = self.dir / "offered", self.dir / "setup.zsh"
        offered.write_text("")
        script.write_text(ZSH)
        env = dict(self.env, TERM="dumb", OFFERED=str(offered), LINE_TO_COMPLETE=line)
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.dir)
            os.execvpe("zsh", ["zsh", "-f", "-i"], env)
        self.addCleanup(os.close, terminal)
        os.write(terminal, f"source {script}\n".encode())
        shown = b""
        while select.select([terminal], [], [], 60)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the shell has ended
                break
        else:
            os.kill(child, signal.SIGKILL)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, shown)
        return offered.read_text().split()

    def complete_in_fish(self, line):
        run = subprocess.run(["fish", "--no-config", "-c", "jobctl completion fish | source; complete -C $argv[1]", line], env=self.env,
                             capture_output=True, text=True, timeout=60, cwd=self.dir)
        self.assertEqual(run.stderr, "")
        return [offer.split("\t")[0] for offer in run.stdout.splitlines()]

    def test_zsh_and_fish_complete_as_bash_does(self):
        self.jobctl("context", "add", "lab", "--coordinator", "127.0.0.1:1")
        for line, offers in (("jobctl cord", {"cordon"}),
                             ("jobctl dataset mi", {"mix"}),
                             ("jobctl dataset mix --seq", {"--sequence-length"}),
                             ("jobctl --coordinator 127.0.0.1:1 dataset bu", {"build"}),
                             ("jobctl context use l", {"lab"}),
                             ("jobctl explain train.see", {"train.seed"}),
                             ("jobctl init --preset gpt2-", {"gpt2-124m"}),
                             ("jobctl submit job.yaml --set optimizer.l", {"optimizer.lr="}),
                             ("jobctl submit job.yaml --set schedule.name=co", {"schedule.name=cosine", "schedule.name=constant"}),
                             ("jobctl resume a-job --set train.step", {"train.steps="}),
                             ("jobctl resume a-job --set model.laye", set()),
                             ("jobctl explain -o ", {"table", "json", "yaml"}),
                             ("jobctl dataset mix -o j", {"json"}),
                             ("jobctl report a-job -o h", {"html"}),
                             ("jobctl list --state qu", {"queued"}),
                             ("jobctl completion ", {"bash", "zsh", "fish"})):
            with self.subTest(line):
                self.assertEqual(set(self.complete(*line.split(" ")[1:])), offers)
                self.assertEqual(set(self.complete_in_zsh(line)), offers)
                self.assertEqual(set(self.complete_in_fish(line)), offers)

    def presets(self):
        return [line.split()[0] for line in self.jobctl("plan", "--presets").splitlines()[1:]]

    def test_init_of_each_preset_passes_without_an_edit(self):
        presets = self.presets()
        self.assertGreater(len(presets), 8)
        for device in ("cpu", "cuda"):
            for preset in presets:
                with self.subTest(preset, device=device):
                    name = f"{preset}-{device}.yaml"
                    self.jobctl("init", "--preset", preset, "--set", f"resources.device={device}", "-f", name)
                    resolved = self.jobctl("submit", name, "--dry-run", "client")
                    self.assertIn(f"  preset: {preset}\n", resolved)
                    self.assertIn(f"  device: {device}\n", resolved)

    def test_init_takes_a_model_folder_and_datasets(self):
        model = self.dir / "My Model_7B"
        model.mkdir()
        self.assertIn("config.json", self.jobctl("init", "--from", model.name, fails=True))
        (model / "config.json").write_text("{}")
        self.datasets("sets")
        self.jobctl("init", "--from", model.name, "--data", "sets", "-f", "job.yaml")
        resolved = self.jobctl("submit", "job.yaml", "--dry-run", "client")
        for text in ("name: my-model-7b\n", f"from: \"{model}\"\n", str(self.dir / "sets/train"), str(self.dir / "sets/validation")):
            self.assertIn(text, resolved)
        self.assertIn("exists and is not overwritten", self.jobctl("init", "-f", "job.yaml", fails=True))
        self.assertIn("--data nowhere: ", self.jobctl("init", "--data", "nowhere", fails=True))
        self.assertIn("did you mean hearth-112m?", self.jobctl("init", "--preset", "hearth-112", fails=True))

    def datasets(self, folder):
        text = "".join(json.dumps({"text": f"Day {day} was bright and cold. " * 9}) + "\n" for day in range(60))
        (self.dir / "days.jsonl").write_text(text)
        self.jobctl("dataset", "build", "--input", "days.jsonl", "--field", "text", "--tokenizer", "bytes", "--validation-fraction", "0.2",
                    "--out", folder)

    def test_init_refuses_data_that_is_no_dataset(self):
        (self.dir / "texts").mkdir()
        (self.dir / "texts" / "a.txt").write_text("a")
        for data in ("texts", "texts/a.txt", "nowhere"):
            refused = self.jobctl("init", "--data", data, "-f", "job.yaml", fails=True)
            self.assertIn(f"--data {data}: {self.dir / data}: ", refused)
            self.assertIn("`jobctl dataset build` makes a dataset", refused)
        self.assertIn("it has no dataset.json", self.jobctl("init", "--data", "texts", fails=True))
        (self.dir / "texts" / "train").mkdir()
        self.assertIn("texts/train: not a dataset", self.jobctl("init", "--data", "texts", fails=True))
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()), ["texts"])

    def test_the_file_of_init_takes_short_runs(self):
        self.jobctl("init", "-f", "job.yaml")
        for name in ("wsd", "cosine"):
            resolved = self.jobctl("submit", "job.yaml", "--dry-run", "client", "--set", "train.steps=20", "--set", f"schedule.name={name}")
            self.assertIn("warmup_steps: 10\n", resolved)
        for steps in (1, 20, 250):
            self.jobctl("init", "--set", f"train.steps={steps}", "-f", f"{steps}.yaml")
            self.assertIn(f"  steps: {steps}\n", self.jobctl("submit", f"{steps}.yaml", "--dry-run", "client"))
        self.assertIn("\n  warmup_steps: 2\n", (self.dir / "250.yaml").read_text())
        self.jobctl("init", "--set", "schedule.warmup_steps=null", "--set", "train.steps=20", "-f", "none.yaml")
        self.jobctl("submit", "none.yaml", "--dry-run", "client")
        given = self.jobctl("init", "--set", "schedule.warmup_steps=7")
        self.assertIn("\n  warmup_steps: 7\n", given)

    def test_editors_find_the_schema_beside_the_file_of_init(self):
        (self.dir / "jobs").mkdir()
        self.jobctl("init", "-f", "jobs/a.yaml")
        self.assertTrue((self.dir / "jobs" / "a.yaml").read_text().startswith("# yaml-language-server: $schema=job.schema.json\n"))
        schema = json.loads((self.dir / "jobs" / "job.schema.json").read_text())
        self.assertIn("optimizer", schema["properties"])
        (self.dir / "jobs" / "job.schema.json").write_text("{}")  # somebody's own is kept
        self.jobctl("init", "-f", "jobs/b.yaml")
        self.assertEqual((self.dir / "jobs" / "job.schema.json").read_text(), "{}")
        self.assertNotIn("yaml-language-server", self.jobctl("init"))

    def test_explain_knows_every_field(self):
        rows = json.loads(self.jobctl("explain", "-o", "json"))
        self.assertGreater(len(rows), 100)
        by_path = {row["path"]: row for row in rows}
        self.assertEqual(by_path["optimizer.lr"]["default"], "3e-4")
        self.assertEqual(by_path["resources.device"]["one_of"], ["cpu", "cuda"])
        self.assertEqual([row["path"] for row in json.loads(self.jobctl("explain", "batch", "-o", "json"))],
                         ["batch", "batch.micro_batch_size", "batch.global_batch_tokens"])
        text = self.jobctl("explain", "schedule.decay_shape")
        for line in ("  type       string\n", "  one of     linear, sqrt\n", "  default    linear\n",
                     "  acts only  with schedule.name wsd and with schedule.decay_steps > 0\n",
                     "  a resume   may change it: the learning rate depends only on the step\n"):
            self.assertIn(line, text)
        self.assertIn("did you mean lr?", self.jobctl("explain", "optimizer.learning_rate", fails=True))
        self.assertIn("did you mean train.steps?", self.jobctl("explain", "max_steps", fails=True))
        overview = self.jobctl("explain")
        for section in ("model", "data", "train", "resources"):
            self.assertRegex(overview, rf"(?m)^{section} +section")

    def test_formats_are_printed_or_refused(self):
        self.datasets("sets")
        for command in (["explain"], ["explain", "batch"], ["dataset", "inspect", "sets/train"],
                        ["dataset", "inspect", "sets/train", "--decode", "2"], ["dataset", "mix", "sets/train", "sets/validation=2"]):
            with self.subTest(command):
                value = json.loads(self.jobctl(*command, "-o", "json"))
                text = self.jobctl(*command, "-o", "yaml")
                self.assertEqual(yaml.safe_load(text), value)
                self.assertNotEqual(text[0], "{", "a block, not JSON")
        for command, told in ((["explain", "-o", "wide"], "jobctl explain does not take -o wide; give json, yaml or leave -o out"),
                              (["init", "-o", "yaml"], "jobctl init does not take -o yaml; it prints text only"),
                              (["-o", "json", "plan", "--presets"], "-o is for plans of GPUs"),
                              (["completion", "bash", "-o", "json"], "jobctl completion does not take -o json"),
                              (["dataset", "build", "-o", "json", "--input", "days.jsonl", "--tokenizer", "bytes", "--out", "new"],
                               "jobctl dataset build does not take -o json")):
            with self.subTest(command):
                self.assertIn(told, self.jobctl(*command, fails=True))
        self.assertFalse((self.dir / "new").exists(), "refused before it is made")

    def test_paths_from_here_become_absolute(self):
        self.jobctl("init", "--set", "data.train=[~/a, ./b, c]", "-f", "job.yaml")
        resolved = self.jobctl("submit", "job.yaml", "--dry-run", "client", "--set", "data.validation=../d")
        self.assertIn(f"{self.dir}/home/a", resolved)
        self.assertIn(f"{self.dir}/b", resolved)
        self.assertIn(f"{self.dir.parent}/d", resolved)
        self.assertIn("path: c", resolved)

    def test_a_coordinator_that_is_down_says_what_to_do(self):
        down = self.jobctl("--coordinator", "http://127.0.0.1:1/", "list", fails=True)
        self.assertIn("cannot reach the coordinator at 127.0.0.1:1 (scripts/start-node.sh starts one", down)

    def test_completion_of_fields_and_values(self):
        self.assertEqual(self.complete("submit", "job.yaml", "--set", "optimizer.l"), ["optimizer.lr="])
        self.assertEqual(self.complete("submit", "job.yaml", "--set", "resources.device", "="), ["cpu", "cuda"])
        self.assertEqual(self.complete("submit", "job.yaml", "--set", "schedule.name", "=", "co"), ["cosine", "constant"])
        self.assertEqual(self.complete("plan", "--set", "schedule.name=co"), ["schedule.name=cosine", "schedule.name=constant"])
        self.assertIn("model.layers=", self.complete("submit", "--set", ""))
        self.assertNotIn("model.layers=", self.complete("resume", "a-job", "--set", ""))
        self.assertIn("train.steps=", self.complete("resume", "a-job", "--set", ""))
        self.assertEqual(self.complete("explain", "train.see"), ["train.seed"])
        self.assertEqual(self.complete("init", "--preset", "gpt2-"), ["gpt2-124m"])
        self.assertEqual(self.complete("plan", "--preset"), ["--presets"])

    def test_completion_scripts_are_well_formed(self):
        self.assertEqual(subprocess.run(["bash", "-n"], input=self.jobctl("completion", "bash"), text=True, check=False).returncode, 0)
        fish = self.jobctl("completion", "fish")
        self.assertIn("-l set -x -a ", fish)
        self.assertIn("resources.device=cuda", fish)
        self.assertIn("_jobctl_set", self.jobctl("completion", "zsh"))


if __name__ == "__main__":
    unittest.main()
