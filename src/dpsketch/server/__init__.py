"""The service: collects local reports durably, and serves releases to people and programs.

``dpsketch serve`` starts it; :func:`dpsketch.server.app.create_app` makes the ASGI application. One process serves one
store.
"""
