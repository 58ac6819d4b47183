#!/usr/bin/env python3
"""Drive a server that speaks OpenCode's HTTP API through scripted journeys and compare it with recordings of the real one.

    apicheck.py run --spawn 'opencode serve --port {port} --hostname 127.0.0.1'     start everything, compare
    apicheck.py run --url http://127.0.0.1:4096 --root DIR --model-port 18901        a server you started (see `env`)
    apicheck.py learn --spawn CMD --runs 4 --golden golden/1.1.65                    record what a server does
    apicheck.py env DIR --model-port 18901                                           write isolated homes and a config, print exports

Python 3.11, httpx and the standard library. The README beside this file explains journeys, goldens and the table.
"""
import argparse, asyncio, base64, json, os, pathlib, re, secrets, shlex, shutil, signal, socket, subprocess, sys, tempfile, time
from collections import Counter, defaultdict
import httpx2 as httpx

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import scripted_model

# ---------------------------------------------------------------- the sandbox a server runs in

def base_config(model_port):
    cost = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
    model = lambda name: {"name": name, "reasoning": True, "tool_call": True, "attachment": True, "limit": {"context": 200000, "output": 8192}, "cost": cost}
    return {
        "$schema": "https://opencode.ai/config.json", "model": "fake/scripted", "small_model": "fake/small", "share": "disabled", "autoupdate": False,
        "provider": {"fake": {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": {"baseURL": f"http://127.0.0.1:{model_port}/v1", "apiKey": "x"},
                              "models": {"scripted": model("Scripted"), "small": model("Small"), "second": model("Second")}}},
        "permission": {"bash": {"*": "allow", "touch *": "ask", "mkdir *": "ask"}, "edit": "allow", "external_directory": "allow"},
        "command": {"greet": {"template": "SAY greeting for $ARGUMENTS", "description": "Greets somebody"},
                    "deleg": {"template": "SAY from the delegated command", "description": "Runs as a subtask", "agent": "general", "subtask": True}},
        "agent": {"reviewer": {"description": "Reviews", "mode": "primary", "prompt": "You review."}},
    }


def make_env(root, model_port, overrides=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
    for name, var in (("home", "HOME"), ("data", "XDG_DATA_HOME"), ("config", "XDG_CONFIG_HOME"), ("cache", "XDG_CACHE_HOME"), ("state", "XDG_STATE_HOME")):
        (root / name).mkdir(parents=True, exist_ok=True)
        env[var] = str(root / name)
    (root / "config/opencode").mkdir(exist_ok=True)
    (root / "proj").mkdir(exist_ok=True)
    config = base_config(model_port)
    config.update((overrides or {}).get("config", {}))
    (root / "config/opencode/opencode.json").write_text(json.dumps(config, indent=1))
    env.update(OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1", OPENCODE_DISABLE_DEFAULT_PLUGINS="1")
    env.update((overrides or {}).get("env", {}))
    return env


def make_project(path, token, git=True):
    path.mkdir(parents=True, exist_ok=True)
    (path / "src").mkdir(exist_ok=True)
    (path / "README.md").write_text("hello\nsecond line\n")
    (path / "src/a.py").write_text("def f():\n    return 1\n")
    (path / "notes.txt").write_text("alpha\nbeta\ngamma\n")
    if git:
        run = lambda *a: subprocess.run(["git", "-c", "user.email=dev@example.com", "-c", "user.name=dev", *a], cwd=path, check=True, capture_output=True)
        run("init", "-q", "-b", "main", ".")
        run("add", "-A")
        run("commit", "-qm", token)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Spawned:
    """A server process in its own process group, with isolated homes."""

    def __init__(self, command, root, model_port, profile):
        self.port, self.root = free_port(), root
        env = make_env(root, model_port, profile)
        cwd = root / "proj/_cwd"
        make_project(cwd, secrets.token_hex(6))
        self.log = open(root / "server.log", "wb")
        args = shlex.split(command.format(port=self.port)) + profile.get("args", [])
        self.process = subprocess.Popen(args, cwd=cwd, env=env, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.url = f"http://127.0.0.1:{self.port}"

    def wait(self, auth=None):
        for _ in range(240):
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}: {(self.root / 'server.log').read_text()[-2000:]}")
            try:
                if httpx.get(self.url + "/global/health", timeout=5, auth=auth).status_code in (200, 401):
                    httpx.get(self.url + "/agent", timeout=90, auth=auth, headers={"x-opencode-directory": str(self.root / "proj/_cwd")})
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.25)
        raise SystemExit("the server did not answer within 60 s")

    def stop(self):
        for sig in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                try:
                    os.killpg(self.process.pid, sig)
                    self.process.wait(5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
        self.log.close()

# ---------------------------------------------------------------- running one journey

class Stream:
    """One SSE connection, read in the background."""

    def __init__(self):
        self.events, self.changed, self.mark, self.closed, self.status, self.headers, self.frames = [], asyncio.Event(), 0, False, None, {}, Counter()
        self.ready = asyncio.Event()

    async def read(self, client, method, url, **kw):
        try:
            async with client.stream(method, url, timeout=httpx.Timeout(20, read=None), **kw) as r:
                self.status, self.headers = r.status_code, dict(r.headers)
                self.ready.set()
                data = []
                async for line in r.aiter_lines():
                    if line.startswith("data:"):
                        data.append(line[5:].lstrip())
                        self.frames["data"] += 1
                    elif line:
                        self.frames[line.split(":")[0] or "comment"] += 1
                    elif data:
                        try:
                            self.events.append((time.time(), json.loads("\n".join(data))))
                        except ValueError:
                            self.frames["not json"] += 1
                        data = []
                        self.changed.set()
        except (httpx.HTTPError, asyncio.CancelledError) as e:
            if isinstance(e, httpx.HTTPError) and self.status is None:
                self.status = f"error {type(e).__name__}"
        finally:
            self.closed = True
            self.ready.set()
            self.changed.set()


def dig(obj, path):
    for k in path.split("."):
        if obj is None:
            return None
        obj = obj[int(k)] if isinstance(obj, list) and k.lstrip("-").isdigit() and -len(obj) <= int(k) < len(obj) else obj.get(k) if isinstance(obj, dict) else None
    return obj


def payload(event):
    return event["payload"] if isinstance(event, dict) and "payload" in event and "type" not in event else event


LAST = [0]


def fresh_id(prefix):
    LAST[0] = max(LAST[0] + 1, int(time.time() * 1000) * 0x1000 + 1)  # ascending, as the clients make them
    now = LAST[0] & ((1 << 48) - 1)
    return f"{prefix}_{now:012x}" + "".join(secrets.choice("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") for _ in range(14))


class Journey:
    def __init__(self, spec, url, root, auth=None):
        self.spec, self.url, self.root = spec, url, root
        self.token = secrets.token_hex(4)
        self.dir = root / "proj" / f"{spec['name']}-{self.token}"
        self.vars = {"dir": str(self.dir), "root": str(root), "home": str(root / "home"), "cwd": str(root / "proj/_cwd"), "url": url}
        self.streams, self.tasks, self.jobs, self.results = {}, [], {}, {}
        self.auth = auth

    def fill(self, value):
        if isinstance(value, str):
            def sub(m):
                k = m.group(1)
                if k.startswith("new:"):
                    _, prefix, name = (k.split(":") + [None])[:3]
                    ident = fresh_id(prefix)
                    if name:
                        self.vars[name] = ident
                    return ident
                if k not in self.vars:
                    raise KeyError(k)
                return str(self.vars[k])
            if value.startswith("{now"):
                return int(time.time() * 1000) + int(value[4:-1] or 0)
            return re.sub(r"\{([a-z][a-zA-Z0-9_:]*)\}", sub, value)
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        if isinstance(value, dict):
            return {self.fill(k): self.fill(v) for k, v in value.items()}
        return value

    def request(self, step):
        method, path = step["req"].split(" ", 1)
        headers = {"x-opencode-directory": self.vars["dir"]} if step.get("dir", "header") == "header" else {}
        kw = {}
        if "json" in step:
            kw["content"] = json.dumps(self.fill(step["json"])).encode()
            headers["content-type"] = "application/json"
        if "raw" in step:
            kw["content"] = step["raw"].encode() if isinstance(step["raw"], str) else b"x" * step["raw"]["size"]
        if "pad" in step:  # a JSON body with one long string
            kw["content"] = json.dumps(self.fill(step["json"])).replace("@PAD@", "x" * step["pad"]).encode()
        headers.update(self.fill(step.get("headers", {})))
        if "auth" in step:
            if step["auth"]:
                headers["authorization"] = "Basic " + base64.b64encode(step["auth"].encode()).decode()
        elif self.auth:
            headers["authorization"] = "Basic " + base64.b64encode(":".join(self.auth).encode()).decode()
        return method, self.url + self.fill(path), {"headers": {k: v for k, v in headers.items() if v is not None}, **kw}

    async def send(self, step):
        method, url, kw = self.request(step)
        started = time.time()
        try:
            r = await self.client.request(method, url, timeout=step.get("timeout", 60), **kw)
            body = r.content
            text = body.decode("utf-8", "replace")
            try:
                parsed = json.loads(text) if text else ""
                kind = "json" if text else "empty"
            except ValueError:
                parsed, kind = text, "text"
            return {"status": r.status_code, "headers": dict(r.headers), "kind": kind, "body": parsed, "seconds": time.time() - started}
        except httpx.TimeoutException:
            return {"status": "no answer", "headers": {}, "kind": "empty", "body": "", "seconds": time.time() - started}
        except httpx.HTTPError as e:
            return {"status": "connection broken" if not isinstance(e, httpx.ConnectError) else "refused", "headers": {}, "kind": "empty", "body": type(e).__name__, "seconds": time.time() - started}

    def open_stream(self, name, step):
        s = self.streams[name] = Stream()
        method, url, kw = self.request({**step, "req": "GET " + step.get("path", "/event")})
        self.tasks.append(asyncio.create_task(s.read(self.client, method, url, **kw)))
        s.task = self.tasks[-1]
        return s

    async def wait_event(self, step):
        s, want, where = self.streams[step.get("on", "main")], [step["wait"]] if isinstance(step["wait"], str) else step["wait"], self.fill(step.get("where", {}))
        end = time.time() + step.get("timeout", 30)
        i = s.mark
        while True:
            while i < len(s.events):
                e = payload(s.events[i][1])
                i += 1
                if e.get("type") in want and all(dig(e, k) not in (None, "") if v == "*" else dig(e, k) == v for k, v in where.items()):
                    s.mark = i
                    return e
            if time.time() > end or s.closed:
                return None
            s.changed.clear()
            if i >= len(s.events):
                try:
                    await asyncio.wait_for(s.changed.wait(), max(0.01, end - time.time()))
                except asyncio.TimeoutError:
                    pass

    async def settle(self, quiet):
        start = time.time()
        while time.time() < start + 10:
            last = max([start] + [s.events[-1][0] for s in self.streams.values() if s.events])
            left = quiet - (time.time() - last)
            if left <= 0:
                return
            await asyncio.sleep(min(left, 0.1))

    async def run(self):
        make_project(self.dir, self.token, git=self.spec.get("git", True))
        limits = httpx.Limits(max_connections=300, max_keepalive_connections=50)
        async with httpx.AsyncClient(limits=limits) as self.client:
            if self.spec.get("events", True):
                s = self.open_stream("main", {})
                await asyncio.wait_for(s.ready.wait(), 60)
                for _ in range(100):
                    if s.events or s.closed:
                        break
                    await asyncio.sleep(0.02)
            for n, step in enumerate(self.spec["steps"]):
                sid = step.get("id") or f"{n:02d}"
                try:
                    await self.one(step, sid)
                except KeyError as e:
                    self.results[sid] = {"op": op_of(step), "status": f"blocked: no value for {e}", "headers": {}, "kind": "empty", "body": ""}
            for job in list(self.jobs):
                await self.join(job, 30)
            await self.settle(self.spec.get("quiet", 0.7))
            for t in self.tasks:
                t.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        return self

    async def join(self, job, timeout=60):
        task, step, sid = self.jobs.pop(job)
        try:
            r = await asyncio.wait_for(task, timeout)
        except asyncio.TimeoutError:
            r = {"status": "no answer", "headers": {}, "kind": "empty", "body": ""}
        self.keep(step, sid, r)

    def keep(self, step, sid, r):
        self.results[sid] = {"op": op_of(step), **r}
        for name, path in step.get("save", {}).items():
            got = dig(r["body"], path) if path else r["body"]
            if got is not None:
                self.vars[name] = got

    async def one(self, step, sid):
        if "req" in step:
            if step.get("bg"):
                self.request(step)  # a missing value shows now
                for stream in self.streams.values():  # what is waited for next comes after this request
                    stream.mark = len(stream.events)
                self.jobs[step["bg"]] = (asyncio.create_task(self.send(step)), step, sid)
                await asyncio.sleep(0)
            elif "many" in step:  # the same request several times at once: statuses only
                rs = await asyncio.gather(*(self.send(step) for _ in range(step["many"])))
                self.results[sid] = {"op": op_of(step), "status": rs[0]["status"], "headers": {}, "kind": "json", "body": {"statuses": sorted({str(r["status"]) for r in rs})}}
            else:
                if step["req"].endswith("/prompt_async"):
                    for stream in self.streams.values():
                        stream.mark = len(stream.events)
                racing = bool(self.jobs) and step["req"].startswith("GET")
                self.keep(step, sid, {**await self.send(step), "racing": racing})
        elif "join" in step:
            if step["join"] in self.jobs:
                await self.join(step["join"], step.get("timeout", 60))
        elif "wait" in step:
            e = await self.wait_event(step)
            self.results[sid] = {"op": "event " + (step["wait"] if isinstance(step["wait"], str) else step["wait"][0]), "status": "seen" if e else "not seen", "headers": {}, "kind": "empty", "body": ""}
            for name, path in step.get("save", {}).items():
                if dig(e, path) is not None:
                    self.vars[name] = dig(e, path)
        elif "sse" in step:
            if step["sse"] == "open":
                s = self.open_stream(step["name"], step)
                try:
                    await asyncio.wait_for(s.ready.wait(), 30)
                except asyncio.TimeoutError:
                    pass
                await asyncio.sleep(0.1)
                self.results[sid] = {"op": f"GET {step.get('path', '/event').split('?')[0]}", "status": s.status, "headers": s.headers, "kind": "empty", "body": ""}
            elif step["sse"] == "close":
                self.streams[step["name"]].task.cancel()
                await asyncio.sleep(0.05)
            elif step["sse"] == "ended":  # does the server end it?
                for _ in range(int(step.get("within", 3) * 20)):
                    if self.streams[step["name"]].closed:
                        break
                    await asyncio.sleep(0.05)
                self.results[sid] = {"op": "event stream end", "status": "ended" if self.streams[step["name"]].closed else "open", "headers": {}, "kind": "empty", "body": ""}
        elif "settle" in step:
            await self.settle(step["settle"])
        elif "sleep" in step:
            await asyncio.sleep(step["sleep"])
        elif "write" in step:
            p = pathlib.Path(self.fill(step["write"]))
            p = p if p.is_absolute() else self.dir / p
            p.parent.mkdir(parents=True, exist_ok=True)
            p.write_text(step["text"])
        elif "file" in step:
            p = self.dir / self.fill(step["file"])
            self.results[sid] = {"op": "file on disk", "status": "there" if p.exists() else "absent", "headers": {}, "kind": "json", "body": {"content": p.read_text()} if p.exists() else {}}
        elif "wire" in step:
            self.results[sid] = {"op": "raw HTTP", **await asyncio.to_thread(wire, self.url, self.fill(step["wire"]))}
        else:
            raise SystemExit(f"{self.spec['name']}: unknown step {step}")


def wire(url, text):
    """Send bytes as they are; the status line only."""
    host, port = url.split("//")[1].split(":")
    with socket.create_connection((host, int(port)), 10) as s:
        s.settimeout(10)
        s.sendall(text.replace("\n", "\r\n").encode())
        data = b""
        try:
            while b"\r\n\r\n" not in data and len(data) < 65536:
                piece = s.recv(65536)
                if not piece:
                    break
                data += piece
        except (TimeoutError, ConnectionResetError):
            pass
    line = data.split(b"\r\n")[0].decode("latin-1")
    return {"status": int(line.split()[1]) if line.startswith("HTTP/") else "closed", "headers": {}, "kind": "empty", "body": ""}


def op_of(step):
    method, path = step["req"].split(" ", 1)
    path = path.split("?")[0]
    path = re.sub(r"/session/(?!status)[^/]+", "/session/:id", path)
    path = re.sub(r"/message/[^/]+", "/message/:id", path)
    path = re.sub(r"/part/[^/]+", "/part/:id", path)
    path = re.sub(r"/(permission|question|permissions)/[^/]+", r"/\1/:id", path)
    return f"{method} {re.sub(r'/(project|pty|mcp|auth)/(?!current)[^/]+', lambda m: '/' + m.group(1) + '/:id', path)}"

# ---------------------------------------------------------------- normalising and shapes

EXACT = set("""type status role name reason finish mode agent tool permission action reply providerID modelID text title mime filename priority content
header label question branch vcs variant event id directory worktree cwd root path file before after url command arguments pattern parentID sessionID
messageID partID callID projectID source npm patterns always answers statuses subagent_type healthy kind _tag error_code family prompt_role expected
format api success hash field home state config stopReason sessionUpdate optionId currentModelId currentModeId modelId modeId sessionId""".split())
EXACT_NUMBERS = set("protocolVersion additions deletions files cost input output reasoning read write total attempt context statusCode exit retryCount start end".split())
FREE = set("description prompt template slug version output message snapshot diff preview raw responseBody stack ref hints summary body system".split())
HEADERS = ("content-type", "www-authenticate", "vary", "cache-control", "location", "allow", "x-accel-buffering",
           "access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers", "access-control-allow-credentials", "access-control-max-age")
ID = re.compile(r"\b(ses|msg|prt|per|que|pty|evt|call|tool|wrk)_[A-Za-z0-9_]{8,}")


class Normal:
    """Replaces what changes from run to run by placeholders."""

    def __init__(self, journey):
        v = journey.vars
        self.paths = sorted(((v[k], f"<{k}>") for k in ("dir", "cwd", "root")), key=lambda p: -len(p[0]))
        real = [(os.path.realpath(p), n) for p, n in self.paths]
        self.paths = list(dict.fromkeys(self.paths + real + [(p.lstrip("/"), n) for p, n in self.paths + real]))  # also as shown relative to /
        self.url, self.token = v["url"], journey.token
        self.names = {str(val): f"<{k}>" for k, val in v.items() if isinstance(val, str) and ID.fullmatch(val)}

    def text(self, s, ids):
        for p, n in self.paths:
            s = s.replace(p, n)
        s = s.replace(self.url, "<url>").replace(self.token, "<token>")
        s = ID.sub(lambda m: self.names.get(m.group(0)) or ids.setdefault(m.group(0), f"<{m.group(1)}#{sum(1 for k in ids if k.startswith(m.group(1) + '_')) + 1}>"), s)
        s = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "<iso>", s)
        s = re.sub(r"\b[0-9a-f]{40}\b", "<sha>", s)
        s = re.sub(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<ulid>", s)
        s = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>", s)
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", s)

    def shape(self, v, key="", ids=None, free=frozenset()):
        ids = {} if ids is None else ids
        if isinstance(v, dict):
            cut = isinstance(v.get("info"), dict) and (v["info"].get("error") or {}).get("name") == "MessageAbortedError"  # how far an aborted text came is luck
            free = free | ({"text"} if v.get("synthetic") is True or cut else set())
            if {"code", "path", "message"} <= v.keys():  # one issue of a failed validation: where, not in which words
                v = {k: v[k] for k in ("code", "path", "message")}
            return {self.text(k, ids): self.shape(v[k], k, ids, free) for k in sorted(v)}  # sorted: ordinals of ids must not depend on the order of keys
        if isinstance(v, list):
            return [self.shape(x, key, ids, free) for x in v]
        if v is None or isinstance(v, bool):
            return {"=": [v]}
        if isinstance(v, str):
            if key in free or key in FREE:
                return "string"
            t = self.text(v, ids)
            if key in EXACT or t.startswith("<"):
                return {"=": [t if len(t) <= 400 else t[:400] + "..."]}
            return "string"
        if 1.5e12 < v < 2.6e12:
            return "ms"
        if key in EXACT_NUMBERS and key not in free:
            return {"=": [round(v, 9)]}
        return "number"


def is_leaf(n):
    return isinstance(n, str) or (isinstance(n, dict) and "=" in n and isinstance(n["="], list))


def kind_of(n):
    if isinstance(n, str):
        return {n}
    return {"null" if v is None else "bool" if isinstance(v, bool) else "string" if isinstance(v, str) else "number" for v in n["="]}


def merge(a, b):
    """A node that both fit: unions of values, optional keys marked with a trailing `?`, alternatives under `|`."""
    if a == b:
        return a
    if a == "*" or b == "*":
        return "*"
    if isinstance(a, dict) and "|" in a or isinstance(b, dict) and "|" in b:
        alts = list(a["|"]) if isinstance(a, dict) and "|" in a else [a]
        for n in (b["|"] if isinstance(b, dict) and "|" in b else [b]):
            for i, x in enumerate(alts):
                if same_class(x, n):
                    alts[i] = merge(x, n)
                    break
            else:
                alts.append(n)
        return alts[0] if len(alts) == 1 else {"|": alts}
    if not same_class(a, b):
        return {"|": [a, b]}
    if is_leaf(a):
        if isinstance(a, dict) and isinstance(b, dict):
            values = a["="] + [v for v in b["="] if v not in a["="] or any(type(v) is not type(w) for w in a["="] if w == v)]
            if len(values) <= 8:
                return {"=": values}
        kinds = sorted(kind_of(a) | kind_of(b))
        return kinds[0] if len(kinds) == 1 else {"|": kinds}
    if is_list(a):
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(same_class(x, y) for x, y in zip(a, b)):
            return [merge(x, y) for x, y in zip(a, b)]
        node = None
        for n in (a, b):
            for x in n if isinstance(n, list) else [n["[*]"]]:
                node = x if node is None else merge(node, x) if x is not None else node
        return {"[*]": node}
    out = {}
    for k in list(a) + [k for k in b if k not in a]:
        bare = k.rstrip("?")
        if bare in out or bare + "?" in out:
            continue
        x, y = a.get(bare, a.get(bare + "?")), b.get(bare, b.get(bare + "?"))
        optional = bare + "?" in a or bare + "?" in b or x is None or y is None
        out[bare + "?" if optional else bare] = merge(x, y) if x is not None and y is not None else (x if x is not None else y)
    return out


def same_class(a, b):
    def cls(n):
        if isinstance(n, list) or (isinstance(n, dict) and "[*]" in n):
            return "list"
        if is_leaf(n):
            return "null" if kind_of(n) == {"null"} else "leaf"
        if isinstance(n, dict) and "|" in n:
            return "|"
        return "object"
    if cls(a) != cls(b):
        return False
    if cls(a) == "object":  # objects told apart by their discriminator
        for k in ("type", "role"):
            x, y = a.get(k), b.get(k)
            if isinstance(x, dict) and isinstance(y, dict) and "=" in x and "=" in y and not set(map(str, x["="])) & set(map(str, y["="])):
                return False
    return True


def differences(want, got, at="", out=None, extra=None):
    """Where `got` (the shape of one value) does not fit `want` (a learned node)."""
    out, extra = ([] if out is None else out), ([] if extra is None else extra)
    if want == "*" or got == "*" or want is None or got is None:
        return out, extra
    if isinstance(got, dict) and "|" in got and isinstance(got["|"], list):
        for g in got["|"]:
            differences(want, g, at, out, extra)
    elif isinstance(want, dict) and "|" in want:
        best = None
        for alt in want["|"]:
            o, e = differences(alt, got, at)
            if best is None or len(o) < len(best[0]):
                best = (o, e)
        out += best[0]
        extra += best[1]
    elif is_leaf(want):
        if not is_leaf(got):
            out.append(f"{at or '.'}: {'a list' if is_list(got) else 'an object'} instead of {show(want)}")
        elif isinstance(want, dict) and isinstance(got, dict):
            if not all(any(v == w and isinstance(v, bool) == isinstance(w, bool) for w in want["="]) for v in got["="]):
                out.append(f"{at or '.'}: {show(got)} instead of {show(want)}")
        elif not kind_of(got) <= kind_of(want):
            out.append(f"{at or '.'}: {show(got)} instead of {show(want)}")
    elif is_list(want):
        if not is_list(got):
            out.append(f"{at or '.'}: {show(got)} instead of a list")
        elif isinstance(want, list) and isinstance(got, list):
            if len(want) != len(got):
                out.append(f"{at or '.'}: {len(got)} items instead of {len(want)}")
            for i, (w, g) in enumerate(zip(want, got)):
                differences(w, g, f"{at}[{i}]", out, extra)
        else:
            item = None
            for w in want if isinstance(want, list) else [want["[*]"]]:
                item = w if item is None else merge(item, w) if w is not None else item
            for i, g in enumerate(got if isinstance(got, list) else [got["[*]"]]):
                differences(item, g, f"{at}[{i}]", out, extra)
    elif not isinstance(got, dict) or is_leaf(got) or "[*]" in got:
        out.append(f"{at or '.'}: {show(got)} instead of an object")
    else:
        for k, w in want.items():
            bare = k.rstrip("?")
            if bare in got or bare + "?" in got:
                differences(w, got.get(bare, got.get(bare + "?")), f"{at}.{bare}" if at else bare, out, extra)
            if bare not in got and not k.endswith("?"):
                out.append(f"{at + '.' if at else ''}{bare}: {'sometimes ' if bare + '?' in got else ''}missing")
        extra += [f"{at}.{k}" if at else k for k in got if k.rstrip("?") not in want and k.rstrip("?") + "?" not in want]
    return out, extra


def is_list(n):
    return isinstance(n, list) or (isinstance(n, dict) and "[*]" in n)


def show(n):
    if isinstance(n, str):
        return n
    if isinstance(n, dict) and "=" in n:
        return " or ".join(json.dumps(v, ensure_ascii=False)[:60] for v in n["="])
    return json.dumps(n)[:60]

# ---------------------------------------------------------------- events

SIDE = {"session.updated", "session.diff", "project.updated", "file.edited", "file.watcher.updated", "vcs.branch.updated", "lsp.updated", "lsp.client.diagnostics",
        "installation.updated", "installation.update-available", "todo.updated", "server.heartbeat", "server.connected", "mcp.tools.changed", "catalog.updated", "models-dev.refreshed"}


WEATHER = {"file.watcher.updated", "lsp.updated", "lsp.client.diagnostics", "vcs.branch.updated", "installation.updated", "installation.update-available"}  # may come or not


class Events:
    """Labels, subjects and order of one stream's events."""

    def __init__(self, stream, journey, normal):
        self.chain, self.subjects, self.labels, self.bad = [], defaultdict(list), {}, []
        sessions, messages, parts, turn, texts = {}, {}, {}, Counter(), {}
        names = {v: k for k, v in journey.vars.items() if isinstance(v, str) and v.startswith("ses_")}
        roles = {}
        for _, raw in stream.events:
            e = payload(raw)
            p = e.get("properties") or {}
            if e.get("type") in ("message.updated",) and isinstance(p.get("info"), dict):
                roles[p["info"].get("id")] = p["info"].get("role")
        for _, raw in stream.events:
            e = payload(raw)
            kind, p = e.get("type", "?"), e.get("properties") or {}
            if kind in ("server.heartbeat", "sync"):
                continue
            info = p.get("info") if isinstance(p.get("info"), dict) else {}
            part = p.get("part") if isinstance(p.get("part"), dict) else {}
            sid = p.get("sessionID") or info.get("sessionID") or part.get("sessionID") or (info.get("id") if kind.startswith("session.") else None)
            subject = ""
            if sid:
                subject = sessions.setdefault(sid, names.get(sid) or f"s{sum(1 for s in sessions if s not in names) + 1}")
            mid = part.get("messageID") or p.get("messageID") or (info.get("id") if kind.startswith("message.") else None)
            label, free = kind, frozenset()
            if kind in ("message.updated", "message.part.updated", "message.part.delta", "message.removed", "message.part.removed") and mid:
                role = roles.get(mid, "m")
                subject += "/" + messages.setdefault(mid, f"{(role or 'm')[0]}{sum(1 for m in messages if roles.get(m, 'm') == role and messages[m].startswith((role or 'm')[0])) + 1}")
                if kind == "message.updated":
                    label += f"[{info.get('role')}]"
                    if info.get("role") == "assistant":
                        err = (info.get("error") or {}).get("name")
                        label += ("+finish" if info.get("finish") else "") + ("+completed" if (info.get("time") or {}).get("completed") else "") + (f"+{err}" if err else "")
                else:
                    pid = part.get("id") or p.get("partID")
                    if kind != "message.removed":
                        subject += "." + parts.setdefault(pid, f"p{sum(1 for q in parts if parts[q].split('@')[1] == mid) + 1}@{mid}").split("@")[0]
                    if part:
                        label += f"[{part.get('type')}" + (f".{part['state'].get('status')}" if isinstance(part.get("state"), dict) else "") + "]" + ("+delta" if "delta" in p else "+end" if (part.get("time") or {}).get("end") else "")
                        if "delta" in p:
                            free = frozenset({"text", "delta"})
                            before = texts.get(pid, "")
                            if part.get("text") != before + p["delta"]:
                                self.bad.append(f"{label}: text is not the text before plus delta")
                        if "text" in part:
                            texts[pid] = part["text"]
                        if part.get("type") == "tool" and part.get("state", {}).get("status") == "running":
                            free = frozenset({"output", "input", "metadata"})
                    if kind == "message.part.delta":
                        free = frozenset({"text", "delta"})
            elif kind == "session.status":
                label += f"[{(p.get('status') or {}).get('type')}]"
            elif kind == "session.error":
                label += f"[{(p.get('error') or {}).get('name')}]"
            elif kind == "permission.replied":
                label += f"[{p.get('reply')}]"
            shape = normal.shape(raw, "", None, free | frozenset(journey.spec.get("loose", [])))
            self.labels[label] = merge(self.labels[label], shape) if label in self.labels else shape
            token = f"{subject or '-'} {label}" + (f"@{turn[sid] + 1}" if kind.startswith("session.") and kind not in SIDE else "")
            if kind not in SIDE and token not in self.chain:
                self.chain.append(token)
            if kind not in SIDE and label != "message.updated[user]":
                seq = self.subjects[subject or "-"]
                if not seq or seq[-1] != label:
                    seq.append(label)
            if kind == "session.idle":
                turn[sid] += 1


def stream_golden(runs):
    chains = [r.chain for r in runs]
    common = [t for t in chains[0] if all(t in c for c in chains)]
    where = [{t: i for i, t in enumerate(c)} for c in chains]
    loose = [[i, j] for i, a in enumerate(common) for j in range(i + 1, len(common)) for b in [common[j]] if any(w[a] > w[b] for w in where)]
    subjects = {}
    for s in sorted({s for r in runs for s in r.subjects}):
        variants = []
        for r in runs:
            v = r.subjects.get(s)
            if v not in variants:
                variants.append(v)
        subjects[s] = variants
    labels, optional = {}, []
    for r in runs:
        for label, n in r.labels.items():
            labels[label] = merge(labels[label], n) if label in labels else n
    optional = sorted(label for label in labels if not all(label in r.labels for r in runs))
    return {"chain": common, "loose": loose, "subjects": subjects, "labels": {k: relax(v) for k, v in labels.items()}, "optional": optional}


def side_by_side(a, b):
    """A tool runs beside the rest of its message: which of two parts is done first is nobody's promise."""
    (s, x), (t, y) = a.split(" ", 1), b.split(" ", 1)
    return ("[tool." in x or "[tool." in y) and s != t and s.rsplit(".", 1)[0] == t.rsplit(".", 1)[0]


def compare_stream(want, got):
    """(label -> differences), order differences"""
    per, order = {}, list(dict.fromkeys(got.bad))
    for label, node in want["labels"].items():
        if label in got.labels:
            per[label] = differences(node, got.labels[label])
        elif label not in want["optional"] and label not in WEATHER:
            per[label] = (["never sent"], [])
    for label in got.labels:
        if label not in want["labels"]:
            per[label] = ([], ["the whole event"])
    at = {t: i for i, t in enumerate(got.chain)}
    loose = {tuple(p) for p in want["loose"]}
    chain = want["chain"]
    for i, a in enumerate(chain):
        for j in range(i + 1, len(chain)):
            if (i, j) not in loose and a in at and chain[j] in at and at[a] > at[chain[j]] and not side_by_side(a, chain[j]):
                order.append(f"«{chain[j]}» came before «{a}»")
                break
    for s, variants in want["subjects"].items():
        mine = []
        for label in got.subjects.get(s, []):  # events the original does not know are extra, not disorder
            if label in want["labels"] and (not mine or mine[-1] != label):
                mine.append(label)
        mine = mine or None
        if mine not in variants:
            best = variants[0] or variants[-1]
            order.append(f"{s}: {' → '.join(mine or ['nothing'])} instead of {' → '.join(best or ['nothing'])}")
    return per, order

# ---------------------------------------------------------------- learning and comparing

def prune(node, depth):
    """Below the depth anything goes (`*`)."""
    if is_leaf(node):
        return node
    if depth == 0:
        return "*"
    if isinstance(node, list):
        return [prune(n, depth - 1) for n in node] if depth > 1 else {"[*]": "*"}
    return {k: prune(n, depth - 1) for k, n in node.items()}


def record(journey):
    normal = Normal(journey)
    out = {"steps": {}, "streams": {}}
    by_id = {s.get("id") or f"{n:02d}": s for n, s in enumerate(journey.spec["steps"])}
    for sid, r in journey.results.items():
        headers = {k: {"=": [normal.text(", ".join(sorted(x.strip().lower() for x in v.split(","))) if k == "vary" or k.startswith("access-control-allow-") else v, {})]} for k, v in ((k.lower(), v) for k, v in r["headers"].items()) if k in HEADERS}
        step = by_id.get(sid, {})
        for k, where in step.get("pick", {}).items():  # of a long list, only the items that matter
            where, chosen = journey.fill(where), lambda x: all(isinstance(x, dict) and x.get(a) == b for a, b in where.items())
            if not k and isinstance(r["body"], list):
                r["body"] = [x for x in r["body"] if chosen(x)]
            elif isinstance(r["body"], dict) and isinstance(r["body"].get(k), list):
                r["body"] = {**r["body"], k: [x for x in r["body"][k] if chosen(x)]}
        body = prune(normal.shape(r["body"], "", None, frozenset(step.get("loose", []) + journey.spec.get("loose", []) + (["title"] if r.get("racing") else []))), step.get("depth", 99)) if r["kind"] == "json" else {"=": [normal.text(r["body"], {})[:300]]} if r["kind"] == "text" and "html" not in str(headers.get("content-type")) else "string" if r["kind"] == "text" else None
        if r.get("racing") and isinstance(body, list):  # read while a prompt runs: how many there are is a matter of luck
            body = {"[*]": merge_all(body)}
        out["steps"][sid] = {"op": r["op"], "status": r["status"], "headers": headers, "kind": r["kind"], "body": body}
    for name, s in journey.streams.items():
        out["streams"][name] = (Events(s, journey, normal), {"frames": sorted(s.frames)})
    return out


def relax(node):
    """What the real server adds to a record some time later, in its own time, may be missing: a user message's and a session's summary."""
    if isinstance(node, list):
        return [relax(n) for n in node]
    if not isinstance(node, dict) or is_leaf(node):
        return node
    out = {k: relax(v) for k, v in node.items()}
    user = isinstance(out.get("role"), dict) and out["role"].get("=") == ["user"]
    if "summary" in out and (user or "slug" in out):
        out = {k + "?" if k == "summary" else k: v for k, v in out.items()}
    if user and isinstance(out.get("summary?"), dict) and not is_leaf(out["summary?"]):
        out["summary?"] = {k if k.endswith("?") else k + "?": {"[*]": merge_all(v)} if k.startswith("diffs") and isinstance(v, list) else v for k, v in out["summary?"].items()}
    return out


def merge_all(nodes):
    node = None
    for n in nodes:
        node = n if node is None else merge(node, n)
    return node


def learn(records):
    golden = {"steps": {}, "streams": {}}
    for sid in records[0]["steps"]:
        all_ = [r["steps"][sid] for r in records if sid in r["steps"]]
        node = {"op": all_[0]["op"], "status": list(dict.fromkeys(r["status"] for r in all_)), "kind": list(dict.fromkeys(r["kind"] for r in all_))}
        headers, body = all_[0]["headers"], all_[0]["body"]
        for r in all_[1:]:
            headers = merge(headers, r["headers"])
            body = merge(body, r["body"]) if body is not None and r["body"] is not None else (body if r["body"] is None else r["body"])
        golden["steps"][sid] = {**node, "headers": headers, "body": relax(body)}
    for name in records[0]["streams"]:
        golden["streams"][name] = {**stream_golden([r["streams"][name][0] for r in records if name in r["streams"]]), "frames": records[0]["streams"][name][1]["frames"]}
    return golden


def pack(n):
    """For the file: a single text value {"=": ["x"]} is written "=x"."""
    if isinstance(n, list):
        return [pack(x) for x in n]
    if isinstance(n, dict):
        if len(n) == 1 and isinstance(n.get("="), list):
            return "=" + n["="][0] if len(n["="]) == 1 and isinstance(n["="][0], str) else n
        return {k: pack(v) for k, v in n.items()}
    return n


def unpack(n):
    if isinstance(n, str):
        return {"=": [n[1:]]} if n.startswith("=") else n
    if isinstance(n, list):
        return [unpack(x) for x in n]
    if isinstance(n, dict):
        return n if len(n) == 1 and isinstance(n.get("="), list) else {k: unpack(v) for k, v in n.items()}
    return n


def load_golden(path):
    g = json.loads(path.read_text())
    for s in g["steps"].values():
        s["headers"], s["body"] = unpack(s["headers"]), unpack(s["body"])
    for s in g["streams"].values():
        s["labels"] = unpack(s["labels"])
    return g


def save_golden(path, g):
    g = {"steps": {k: {**s, "headers": pack(s["headers"]), "body": pack(s["body"])} for k, s in g["steps"].items()}, "streams": {k: {**s, "labels": pack(s["labels"])} for k, s in g["streams"].items()}}
    path.write_text(json.dumps(g, ensure_ascii=False, separators=(",", ":")))


def accepted(step, got):
    for a in step.get("accept", []):
        if got["status"] in (a["status"] if isinstance(a["status"], list) else [a["status"]]):
            if "name" not in a or (isinstance(got["body"], dict) and a["name"] in str(got["body"].get("name", ""))):
                return True
    return False


LIST = {"[*]": "*"}
RULES = {  # what depends on the catalogue, the machine or the wording of rules: only that it is there, and a list where a list belongs
    "GET /agent": {"permission": LIST, "options": "*"}, "GET /formatter": {"": LIST}, "GET /experimental/tool/ids": {"": LIST}, "GET /skill": {"": LIST}, "GET /find/file": {"": LIST},
    "GET /provider/auth": {"": "*"}, "GET /provider": {"default": "*", "connected": LIST}, "GET /config/providers": {"default": "*"},
}


def ruled(op, node):
    rules = RULES.get(op, {})
    if "" in rules and (is_list(node) or rules[""] == "*"):
        return rules[""]
    if isinstance(node, dict) and {"data", "error", "success"} <= node.keys():  # a failed validation: at least where and why, in our own words
        node = {**node, "error": {"[*]": {"code": "string", "message": "string", "path": LIST}}}
    if not rules:
        return node

    def walk(n):
        if isinstance(n, list):
            return [walk(x) for x in n]
        if isinstance(n, dict) and not is_leaf(n):
            return {k: rules.get(k.rstrip("?")) or walk(v) for k, v in n.items()}
        return n
    return walk(node)


def compare(spec, golden, got, strict):
    """Rows (operation, where, verdict, details); verdict is equal, extra, better or differs."""
    rows = []
    steps = {s.get("id") or f"{n:02d}": s for n, s in enumerate(spec["steps"])}
    for sid, want in golden["steps"].items():
        where, have = f"{spec['name']}:{sid}", got["steps"].get(sid)
        if have is None:
            rows.append((want["op"], where, "differs", ["step was not run"]))
            continue
        out, extra = [], []
        if have["status"] not in want["status"]:
            out.append(f"status {have['status']} instead of {' or '.join(map(str, want['status']))}")
        else:
            differences(want["headers"], have["headers"], "header", out, extra)
            if have["kind"] not in want["kind"]:
                out.append(f"body is {have['kind']} instead of {' or '.join(want['kind'])}")
            elif want["body"] is not None and have["body"] is not None:
                differences(ruled(want["op"], want["body"]), have["body"], "", out, extra)
        step = steps.get(sid, {})
        if out and accepted(step, have):
            rows.append((want["op"], where, "better", [step.get("note", "an accepted other answer")]))
        else:
            rows.append((want["op"], where, "differs" if out else "extra" if extra else "equal", out or [f"extra: {', '.join(extra[:6])}"] if out or extra else []))
    for name, want in golden["streams"].items():
        if spec.get("events_free") or name in spec.get("streams_free", []):
            continue
        where = f"{spec['name']}~{name}"
        if name not in got["streams"]:
            rows.append(("event stream", where, "differs", ["not opened"]))
            continue
        have, meta = got["streams"][name]
        per, order = compare_stream(want, have)
        for label, (out, extra) in per.items():
            rows.append((f"event {label}", where, "differs" if out else "extra" if extra else "equal", out or ([f"extra: {', '.join(extra[:6])}"] if extra else [])))
        rows.append(("event order", where, "differs" if order else "equal", order))
        if set(meta["frames"]) - set(want["frames"]):
            rows.append(("event framing", where, "differs", [f"fields {meta['frames']} instead of {want['frames']}"]))
    if strict:
        rows = [(a, b, "differs" if c == "extra" else c, d) for a, b, c, d in rows]
    return rows


def table(rows, verbose):
    by = defaultdict(Counter)
    for op, _, verdict, _ in rows:
        by[op][verdict] += 1
    width = max((len(op) for op in by), default=10)
    print(f"{'operation':{width}}  checks  equal  extra  better  newer  differs")
    def order(op):
        return (op.startswith("event"), op)
    for op in sorted(by, key=order):
        c = by[op]
        print(f"{op:{width}}  {sum(c.values()):6d}  {c['equal']:5d}  {c['extra'] or '':>5}  {c['better'] or '':>6}  {c['newer'] or '':>5}  {c['differs'] or '':>7}")
    total = Counter(v for *_, v, _ in rows)
    bad = [r for r in rows if r[2] == "differs"]
    if bad:
        print("\nwhere it differs:")
        for op, where, _, out in bad:
            print(f"  {where}  {op}")
            for line in (out if verbose else out[:4]):
                print(f"      {line[:600 if verbose else 220]}")
            if not verbose and len(out) > 4:
                print(f"      ... and {len(out) - 4} more")
    good = total["equal"] + total["extra"] + total["better"] + total["newer"]
    print(f"\n{good} of {len(rows)} checks equal ({100 * good / max(1, len(rows)):.1f} %): {total['equal']} equal, {total['extra']} equal with extra keys, {total['better']} better than the original{', ' + str(total['newer']) + ' as the newer server' if total['newer'] else ''}, {total['differs']} differ")
    return total["differs"]


def load_journeys(folder, only):
    specs = [json.loads(p.read_text()) for p in sorted(pathlib.Path(folder).glob("*.json"))]
    return [s for s in specs if not only or any(o in s["name"] for o in only.split(","))]


def profiles(folder):
    p = pathlib.Path(folder).parent / "profiles.json"
    return {"default": {}, **(json.loads(p.read_text()) if p.exists() else {})}


def run_all(args, specs, announce=True):
    """Run every journey once; returns {name: record}."""
    records, profs = {}, profiles(args.journeys)
    for name in dict.fromkeys(s.get("profile", "default") for s in specs):
        chosen, prof = [s for s in specs if s.get("profile", "default") == name], profs[name]
        auth = tuple(prof["auth"]) if prof.get("auth") else None
        server = model = None
        if args.spawn:
            root = pathlib.Path(tempfile.mkdtemp(prefix="apicheck-")).resolve()
            model, model_port = scripted_model.start(0)
            server = Spawned(args.spawn, root, model_port, prof)
            url = server.url
        else:
            if name != "default" and name not in dict(u.split("=", 1) for u in args.profile_url):
                print(f"(profile {name} skipped: {len(chosen)} journeys need --spawn or --profile-url {name}=URL)", file=sys.stderr)
                continue
            url = args.url.rstrip("/") if name == "default" else dict(u.split("=", 1) for u in args.profile_url)[name]
            root = pathlib.Path(args.root or tempfile.mkdtemp(prefix="apicheck-")).resolve()
            (root / "proj").mkdir(parents=True, exist_ok=True)
        try:
            if server:
                server.wait(auth)
            for spec in chosen:
                started = time.time()
                try:
                    j = asyncio.run(Journey(spec, url, root, auth).run())
                    records[spec["name"]] = record(j)
                    if getattr(args, "dump", None):
                        pathlib.Path(args.dump).mkdir(parents=True, exist_ok=True)
                        (pathlib.Path(args.dump) / f"{spec['name']}.json").write_text(json.dumps({"results": j.results, "vars": j.vars, "events": {n: [e for _, e in s.events] for n, s in j.streams.items()}}, indent=1, ensure_ascii=False))
                    verdict = ""
                except Exception as e:  # a journey that cannot be run is a difference, not a crash of the tool
                    if os.environ.get("APICHECK_TRACE"):
                        raise
                    records[spec["name"]] = {"steps": {}, "streams": {}, "error": f"{type(e).__name__}: {e}"}
                    verdict = f"  FAILED TO RUN {e!r}"
                if announce:
                    print(f"  {spec['name']}  {time.time() - started:.1f} s{verdict}", file=sys.stderr, flush=True)
        finally:
            if server:
                server.stop()
                model.shutdown()
                if not args.keep:
                    shutil.rmtree(root, ignore_errors=True)
    return records


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="verb", required=True)
    for verb in ("run", "learn"):
        p = sub.add_parser(verb)
        p.add_argument("--url"); p.add_argument("--spawn", help="command line with {port}"); p.add_argument("--root", help="folder both sides can write in (with --url)")
        p.add_argument("--model-port", type=int, default=0, help="serve the scripted model here (with --url)")
        p.add_argument("--profile-url", action="append", default=[], metavar="NAME=URL")
        p.add_argument("--kit", help="a folder with journeys/, golden/ and profiles.json (this one)"); p.add_argument("--journeys"); p.add_argument("--golden", help="default: golden/1.1.65 of the kit")
        p.add_argument("--only", help="names, or parts of names, separated by commas"); p.add_argument("--keep", action="store_true", help="keep the sandbox")
        p.add_argument("--dump", help="write what was really answered into this folder")
        p.add_argument("-v", "--verbose", action="store_true")
        if verb == "run":
            p.add_argument("--strict", action="store_true", help="extra keys and events count as differences"); p.add_argument("--json", help="write the rows here")
            p.add_argument("--repeat", type=int, default=1)
            p.add_argument("--also", help="a second golden folder: what differs from the first but equals this one counts as «newer»")
        else:
            p.add_argument("--runs", type=int, default=4)
    p = sub.add_parser("env"); p.add_argument("root"); p.add_argument("--model-port", type=int, default=18901); p.add_argument("--profile", default="default"); p.add_argument("--journeys", default=str(HERE / "journeys"))
    args = ap.parse_args()
    if args.verb != "env":
        kit = pathlib.Path(args.kit or HERE)
        args.journeys, args.golden = args.journeys or str(kit / "journeys"), args.golden or str(kit / "golden/1.1.65")
    if args.verb == "env":
        root = pathlib.Path(args.root).resolve()
        env = make_env(root, args.model_port, profiles(args.journeys)[args.profile])
        make_project(root / "proj/_cwd", secrets.token_hex(6)) if not (root / "proj/_cwd").exists() else None
        for k in sorted(env):
            if k == "HOME" or k.startswith(("XDG_", "OPENCODE")):
                print(f"export {k}={shlex.quote(env[k])}")
        print(f"cd {shlex.quote(str(root / 'proj/_cwd'))}")
        return 0
    if not (args.url or args.spawn):
        ap.error("one of --url and --spawn")
    if args.url and args.model_port:
        scripted_model.start(args.model_port)
    specs = load_journeys(args.journeys, args.only)
    golden = pathlib.Path(args.golden)
    if args.verb == "learn":
        all_ = defaultdict(list)
        for n in range(args.runs):
            print(f"run {n + 1} of {args.runs}", file=sys.stderr)
            for name, r in run_all(args, specs).items():
                all_[name].append(r)
        golden.mkdir(parents=True, exist_ok=True)
        for name, records in all_.items():
            broken = [r["error"] for r in records if "error" in r]
            if broken:
                print(f"{name}: {broken}")
                continue
            if os.environ.get("APICHECK_RECORDS"):
                import pickle  # earlier runs kept there count too
                kept = pathlib.Path(os.environ["APICHECK_RECORDS"]) / f"{name}.pickle"
                kept.parent.mkdir(parents=True, exist_ok=True)
                records = (pickle.loads(kept.read_bytes()) if kept.exists() else []) + records
                kept.write_bytes(pickle.dumps(records))
            save_golden(golden / f"{name}.json", learn(records))
        return 0
    worst = 0
    for _ in range(args.repeat):
        records, rows = run_all(args, specs), []
        for spec in specs:
            if spec["name"] not in records:
                continue
            g = golden / f"{spec['name']}.json"
            if not g.exists():
                rows.append(("journey", spec["name"], "differs", ["no golden recording"]))
            elif "error" in records[spec["name"]]:
                rows.append(("journey", spec["name"], "differs", [records[spec["name"]]["error"]]))
            else:
                mine = compare(spec, load_golden(g), records[spec["name"]], args.strict)
                other = pathlib.Path(args.also or "/nonexistent") / g.name
                if other.exists():
                    fine = {(op, where) for op, where, verdict, _ in compare(spec, load_golden(other), records[spec["name"]], args.strict) if verdict != "differs"}
                    mine = [(op, where, "newer" if verdict == "differs" and (op, where) in fine else verdict, out) for op, where, verdict, out in mine]
                rows += mine
        worst = max(worst, table(rows, args.verbose))
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps([{"operation": a, "where": b, "verdict": c, "details": d} for a, b, c, d in rows], indent=1, ensure_ascii=False))
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
