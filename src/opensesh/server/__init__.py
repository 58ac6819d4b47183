"""OpenCode's HTTP API and event stream on the engine, so that OpenCode's own clients work with it.

:mod:`~opensesh.server.operations` declares routes, :mod:`~opensesh.server.routes` has them, one module a subject;
:mod:`~opensesh.server.application` builds the ASGI application, and :mod:`~opensesh.server.http_server` runs it.
"""
