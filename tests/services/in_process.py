"""A transport that calls an application without a socket; safe to use from several threads."""

import asyncio

import httpx
from fastapi import FastAPI


class InProcess(httpx.BaseTransport):
    """Each request runs in an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._asgi = httpx.ASGITransport(app=app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return asyncio.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        forwarded = httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        response = await self._asgi.handle_async_request(forwarded)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())
