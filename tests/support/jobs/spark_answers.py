"""Writes the answers of PySpark to the tasks of "Coming from Spark" to a file of JSON.

It runs in an environment that has PySpark and nothing else of the tests: ``spark_answers.py FILE``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.jobs.first_hour import answer_of, tasks

if __name__ == "__main__":
    beginning, each = tasks("spark")
    imports = "import pandas as pd\n"
    answers = {task.title: answer_of(imports + beginning.theirs, task.theirs) for task in each}
    Path(sys.argv[1]).write_text(json.dumps(answers))
