"""What an operator's tools ask over HTTP: is it alive, is it ready, what does it measure."""

from worker.http.answers import Answering, Check, Page
from worker.http.server import serve_http

__all__ = ["Answering", "Check", "Page", "serve_http"]
