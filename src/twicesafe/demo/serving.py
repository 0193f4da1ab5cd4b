"""Runs an ASGI application on a socket that is open already."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator
from typing import Any, Literal

import uvicorn


def serve(application: Any, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, as the process's main business."""
    uvicorn.Server(_config(application, lifespan="on")).run(sockets=[listening])


class Embedded(uvicorn.Server):
    """A server that lives in the event loop of a program with other business, which also minds the signals."""

    def __init__(self, application: Any) -> None:
        super().__init__(_config(application, lifespan="off"))

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them to the program."""
        yield


def _config(application: Any, *, lifespan: Literal["on", "off"]) -> uvicorn.Config:
    # h11, because what it answers to a request that asks for it ends with the connection: the gate relies on that.
    return uvicorn.Config(
        application,
        lifespan=lifespan,
        http="h11",
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
