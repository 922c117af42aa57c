"""The service: collects local reports durably, and serves releases to people and programs.

``dpsketch serve`` starts it; :func:`create_app` makes the ASGI application for another server, and reads its settings
from the environment. One process serves one store, or several one PostgreSQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.server.app import create_app
else:
    __getattr__ = lazy.names(__name__, app="create_app")

__all__ = ["create_app"]
