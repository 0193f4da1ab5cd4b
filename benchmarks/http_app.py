"""The application of benchmarks.http: the environment's BENCH_SUBJECT says what is around it."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.asgi import application, subjects

app: Any = subjects()[os.environ["BENCH_SUBJECT"]](application(b'{"id": "' + b"y" * 200 + b'"}'))
