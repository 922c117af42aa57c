"""The service: collects local reports durably, and serves releases to people and programs.

``dpsketch serve`` starts it; :func:`create_app` makes the ASGI application for another server, and reads its settings
from the environment. One process serves one store, or several one PostgreSQL. It needs ``pip install
'dpsketch[serve]'``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from dpsketch import lazy
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.server.app import create_app
else:
    __getattr__ = lazy.names(__name__, app="create_app")

__all__ = ["check_installed", "create_app"]


def check_installed() -> None:
    """Refuse to go on without what the extra ``serve`` brings."""
    for name in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        if find_spec(name) is None:
            raise InvalidInput(f"the service needs {name}, which is not installed: pip install 'dpsketch[serve]'.")
