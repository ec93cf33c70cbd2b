"""The job files of configs/jobs are valid by configs/job.schema.json, and files with mistakes are not."""
import json
import pathlib
import re
import unittest

import jsonschema
import yaml

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"
LINE = "# yaml-language-server: $schema=../job.schema.json\n"


class Loader(yaml.SafeLoader):
    """PyYAML follows YAML 1.1; editors follow 1.2, where 3e-4 is a number and on is text."""


Loader.yaml_implicit_resolvers = {
    key: [(tag, regexp) for tag, regexp in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"), list("-+.0123456789"))


def load(text):
    return yaml.load(text, Loader=Loader)  # a SafeLoader


class JobSchemaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        schema = json.loads((CONFIGS / "job.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        cls.validator = jsonschema.Draft202012Validator(schema)

    def errors(self, text):
        return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in self.validator.iter_errors(load(text))]

    def test_job_files_are_valid_and_name_the_schema(self):
        files = sorted((CONFIGS / "jobs").glob("*.yaml"))
        self.assertGreater(len(files), 10)
        for path in files:
            with self.subTest(path.name):
                text = path.read_text()
                self.assertTrue(text.startswith(LINE))
                self.assertEqual(self.errors(text), [])

    def test_all_forms_of_values_are_valid(self):
        self.assertEqual(self.errors("""
name: a
labels: {team: 7, run: x}
model: {from: /models/x}
data:
  train: [/a, {path: /b, weight: 2}]
  validation: /c
batch: {micro_batch_size: auto}
precision: {recipe: fp8, fallback: none, stats_every: 0, remedies: {clip: 0.5}, high_precision_layers: {layers: [1, 2]}}
optimizer: {lr: 3e-4, groups: {head: {lr_scale: 2}}}
parallel: {shard: optimizer}
train: {steps: 10, deterministic: true}
resources: {time_limit: 1h30m}
"""), [])

    def test_mistakes_are_errors(self):
        job = "name: a\nmodel: {preset: hearth-nano}\ndata: {train: /a}\ntrain: {steps: 10}\n"
        self.assertEqual(self.errors(job), [])
        self.assertIn("hearth-nan", "".join(self.errors(job.replace("hearth-nano", "hearth-nan"))))
        for more, where in [("stepz: 10", "stepz"), ("batch: {micro_batch_size: 0.5}", "batch.micro_batch_size"),
                            ("batch: {micro_batch_size: 70000}", "batch.micro_batch_size"),
                            ("precision: {recipe: bf61}", "precision.recipe"), ("precision: {stats_every: 1}", "precision.stats_every"),
                            ("optimizer: {lr: 0}", "optimizer.lr"), ("optimizer: {beta1: 1}", "optimizer.beta1"),
                            ("optimizer: {groups: {heads: {lr_scale: 1}}}", "heads"), ("resources: {time_limit: 90}", "resources.time_limit"),
                            ("resources: {device: gpu}", "resources.device"), ("checkpoint: {keep: 1}", "keep")]:
            with self.subTest(more):
                errors = self.errors(job + more)
                self.assertEqual(len(errors), 1, errors)
                self.assertIn(where, errors[0])
        self.assertEqual(len(self.errors("model: {preset: x}")), 4)


if __name__ == "__main__":
    unittest.main()
