"""The metrics.jsonl of a run, as hearth-trainer and torch_gpu.py write it. Standard library only."""
import json


def read(path):
    """Step -> row; of a step that a resume repeated the last row."""
    rows = {}
    with open(path) as f:
        for line in f:
            if line.strip():
                row = json.loads(line)
                rows[int(row["step"])] = row  # protobuf's JSON writes int64 as a string
    return rows
