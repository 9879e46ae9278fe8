"""The command: exit code 2 if a question is not valid; the others are answered."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))

from .answers import ask, problem_of

parser = argparse.ArgumentParser(prog="ask", description="Answer questions as a broker would.")
parser.add_argument("directory", type=Path)
parser.add_argument("questions", type=Path)
parser.add_argument("--spec", type=Path, help="a broker's settings under 'store'")
given = parser.parse_args()
answers = list(ask(given.directory, json.loads(given.questions.read_text()), given.spec))
print("[", ",\n".join(map(json.dumps, answers)), "]", sep="\n")
problems = [each for line in answers if (each := problem_of(line["question"], line["answer"]))]
sys.exit(f"{len(problems)} cannot be asked: {problems[0]}" if problems else 0)
